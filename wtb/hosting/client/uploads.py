"""Cases that are too large for a request, which are sent before it."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from wtb.core.errors import InputError
from wtb.core.mappings import Arguments
from wtb.hosting.api.routes import PREFIX, UPLOADS
from wtb.hosting.client.requests import Request
from wtb.store.files.uploads import MOST_BYTES

INLINE_BYTES = 800_000  # of cases, in a request that may have 1 MB


def upload_of(arguments: Arguments) -> tuple[Request, Arguments] | None:
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
