"""The JSON Schemas of all documents and events, from the types in `wtb/core/documents`.

The build of wheel and sdist runs this module with nothing but the packages of `[build-system]` in pyproject.toml.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from wtb.core.documents.catalog import DOCUMENTS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "wtb" / "schemas"
Schema = Mapping[str, Any]
ADDED = "Within a version keys may be added; none is removed or changed."


def all_schemas() -> dict[str, Schema]:
    """Return the schema of each document by the document's name."""
    return {name: document_schema(name) for name in DOCUMENTS}


def document_schema(name: str) -> Schema:
    """Return the schema of a document."""
    document = DOCUMENTS[name]
    return type_schema(name, document.type, document.version, document.type.__doc__)


def type_schema(name: str, type_: Any, version: int, description: str) -> Schema:
    """Return the schema of a type, as the document of a name and version."""
    first, _, rest = description.strip().partition("\n")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:wtb:{name}:{version}",
        **TypeAdapter(type_).json_schema(mode="serialization"),
        "title": name,
        "version": version,
        "description": " ".join([first, *rest.split(), ADDED]),
    }


def file_text(schema: Schema) -> str:
    """Return a schema as its file in `wtb/schemas` has it."""
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def write_files(folder: Path = FOLDER) -> None:
    """Write the schemas into a folder, and remove files of documents that no longer exist."""
    folder.mkdir(exist_ok=True)
    texts = {f"{name}.json": file_text(schema) for name, schema in all_schemas().items()}
    for file in folder.glob("*.json"):
        if file.name not in texts:
            file.unlink()
    for file_name, text in texts.items():
        (folder / file_name).write_text(text, "utf-8")
