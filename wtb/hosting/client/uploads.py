"""What is read of files before a request: parameters; and cases too large for it, which are sent before it."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wtb.config.yaml_reader import Located
from wtb.core.errors import InputError
from wtb.hosting.api.routes import PREFIX, UPLOADS
from wtb.hosting.client.requests import Request
from wtb.planning.factors.parameter_files import read_level_files, read_parameter_files, with_file_texts
from wtb.store.files.uploads import MOST_BYTES

INLINE_BYTES = 800_000  # of cases, in a request that may have 1 MB


def with_files_read(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of an operation with the texts of the files that parameters name: a server reads none.

    Args:
        arguments: Of an operation that a server is to carry out.

    Raises:
        InputError: With every file that cannot be read, and why.
    """
    changed = dict(arguments)
    if isinstance(keys := arguments.get("keys"), Mapping):
        changed["keys"] = read_parameter_files(keys, Path(), Located(where="keys"))
    for name in ("evaluate", "evaluator"):
        if arguments.get(name) is not None:
            changed[name] = with_file_texts(arguments[name], name)
    for name in ("variants", "vary", "typed"):
        if isinstance(arguments.get(name), Mapping):
            levels, texts = read_level_files(arguments[name], name, arguments.get("texts"))
            changed |= {name: levels} | ({"texts": texts} if texts else {})
    return changed


def upload_of(arguments: Mapping[str, Any]) -> tuple[Request, dict[str, Any]] | None:
    """Return the request that sends cases, and the arguments that name them; None where they are few, and no file.

    Args:
        arguments: Of an operation that a server is to carry out.
    """
    if isinstance(cases := arguments.get("cases"), Path):
        name, content = cases.name, _content(cases)
        digest = hashlib.sha256(content).hexdigest()
        return _request(digest, content, []), {**arguments, "cases": {"upload": digest, "name": name}}
    keys = arguments.get("keys")
    if not isinstance(keys, Mapping):
        return None
    file = _as_file(keys.get("cases"))
    if file is None or len(file[1]) <= INLINE_BYTES:
        return None
    name, content = file
    digest = hashlib.sha256(content).hexdigest()
    project = keys.get("project")
    query = [("project", project)] if isinstance(project, str) else []
    named = {**keys, "cases": {"upload": digest, "name": name}}
    return _request(digest, content, query), {**arguments, "keys": named}


def _request(digest: str, content: bytes, query: list[tuple[str, str]]) -> Request:
    headers = {"Content-Type": "application/octet-stream"}
    return Request("PUT", f"{PREFIX}{UPLOADS}/{digest}", query, content, headers)


def _content(file: Path) -> bytes:
    """Return what is in a file. Raises InputError."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"{file}: cannot be read ({error.strerror}); expected a file of cases", argument="cases"
        ) from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{file}: more than {MOST_BYTES:,} bytes; expected at most that many", argument="cases")
    return content


def _as_file(cases: object) -> tuple[str, bytes] | None:
    """A list of cases, or a table of them, as a file with its name; None of anything else."""
    if isinstance(cases, Sequence) and not isinstance(cases, str):
        return "cases.jsonl", "\n".join(json.dumps(case) for case in cases).encode()
    if isinstance(cases, Mapping) and cases.keys() == {"headings", "rows"}:
        text = io.StringIO(newline="")
        csv.writer(text).writerows([cases["headings"], *cases["rows"]])
        return "cases.csv", text.getvalue().encode()
    return None
