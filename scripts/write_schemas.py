"""Write the JSON Schemas of all documents and events to wtb/schemas, and the table of docs/json.md: `make schemas`.

The types in `wtb/core/documents` are the source. A schema says what is there within a version: keys may be added, so
that readers have to ignore keys that they do not know.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from wtb.core.documents.catalog import DOCUMENTS

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "wtb" / "schemas"
PAGE = ROOT / "docs" / "json.md"
HEADER = "| document | printed by | schema |\n| --- | --- | --- |\n"
# What of a schema readers do not rest on, and what is compared by itself.
WORDS = {"title", "description", "$id", "$schema", "version", "properties", "required", "$defs"}
ANY_OBJECT = {"type": "object", "additionalProperties": True}
ADDED = "Within a version keys may be added; none is removed or changed."


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schema of each document by the name of its file."""
    return {
        f"{name}.json": schema_of(name, document.type, document.version, document.type.__doc__)
        for name, document in DOCUMENTS.items()
    }


def schema_of(name: str, type_: Any, version: int, description: str) -> dict[str, Any]:
    """Return the schema of a type."""
    made = TypeAdapter(type_).json_schema(mode="serialization")
    first, _, rest = description.strip().partition("\n")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:wtb:{name}:{version}",
        **made,
        "title": name,
        "version": version,
        "description": " ".join([first, *rest.split(), ADDED]),
    }


def written(schema: dict[str, Any]) -> str:
    """Return a schema as its file has it."""
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def table() -> str:
    """Return the table of docs/json.md: each document, the commands that print it, and its file."""
    rows = []
    for name, document in DOCUMENTS.items():
        commands = ", ".join(f"`wtb {command}`" for command in document.commands)
        rows.append(f"| {name} {document.version} | {commands} | `wtb/schemas/{name}.json` |\n")
    return HEADER + "".join(rows)


def page(text: str) -> str:
    """Return the text of docs/json.md with the table as it is to be."""
    before, _, rest = text.partition(HEADER)
    lines = rest.splitlines(keepends=True)
    after = next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return before + table() + "".join(lines[after:])


def breaks(before: Any, after: Any, place: str = "") -> list[str]:
    """Return what of a schema another one of the same version does not keep.

    It may add keys that may be missing, and say what is in an object that was one of anything.

    Args:
        before: A schema, or a part of one.
        after: What it is to become.
        place: Where the part is, for messages.
    """
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [text for pair in zip(before, after, strict=True) for text in breaks(*pair, place)]
    if _is_narrowed(before, after):
        return []
    if not isinstance(before, dict) or not isinstance(after, dict):
        return [] if before == after else [f"{place}: was {before!r}"]
    was, now = (one.get("properties", {}) for one in (before, after))
    found = [f"{place}/{key}: removed" for key in was.keys() - now.keys()]
    required = set(after.get("required", ())) - set(before.get("required", ()))
    found += [f"{place}/{key}: new, and required (NotRequired may be missing)" for key in required]
    for key in was.keys() & now.keys():
        found += breaks(was[key], now[key], f"{place}/{key}")
    definitions = [one.get("$defs", {}) for one in (before, after)]
    for name in definitions[0].keys() & definitions[1].keys():
        found += breaks(definitions[0][name], definitions[1][name], f"{place}/{name}")
    for key in (before.keys() | after.keys()) - WORDS:
        found += breaks(before.get(key), after.get(key), f"{place} {key}")
    return sorted(found)


def _is_narrowed(before: Any, after: Any) -> bool:
    """Return whether an object of anything became one of which more is said."""
    if not isinstance(before, dict) or {key: of for key, of in before.items() if key not in WORDS} != ANY_OBJECT:
        return False
    return isinstance(after, dict) and ("$ref" in after or after.get("type") == "object")


def changed_within_version(schema: dict[str, Any], file: Path) -> list[str]:
    """Return what a schema does not keep of its file, if that is of the same version."""
    if not file.exists():
        return []
    before = json.loads(file.read_text("utf-8"))
    return breaks(before, schema, file.stem) if before["version"] == schema["version"] else []


def main() -> None:
    found = schemas()
    FOLDER.mkdir(exist_ok=True)
    if broken := [one for name, schema in found.items() for one in changed_within_version(schema, FOLDER / name)]:
        raise SystemExit("\n".join([*broken, "raise the version in wtb/core/documents/catalog.py, or keep the keys"]))
    for file in FOLDER.glob("*.json"):
        if file.name not in found:
            file.unlink()
    for file_name, schema in found.items():
        (FOLDER / file_name).write_text(written(schema), "utf-8")
    if PAGE.exists():
        PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
