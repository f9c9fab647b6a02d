"""Cases that are too large for the request of their sweep, and so are sent before it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from wtb.hosting.api.routes import PREFIX, UPLOADS
from wtb.hosting.client.requests import Request

INLINE_BYTES = 800_000  # of cases, in a request that may have 1 MB


def upload_of(arguments: Mapping[str, Any]) -> tuple[Request, dict[str, Any]] | None:
    """Return the request that sends the cases of a sweep, and the arguments that name them; None where they are few.

    Args:
        arguments: Of an operation that a server is to carry out.
    """
    keys = arguments.get("keys")
    if not isinstance(keys, Mapping):
        return None
    cases = keys.get("cases")
    if not isinstance(cases, Sequence) or isinstance(cases, str):
        return None
    content = "\n".join(json.dumps(case) for case in cases).encode()
    if len(content) <= INLINE_BYTES:
        return None
    digest = hashlib.sha256(content).hexdigest()
    project = keys.get("project")
    query = [("project", project)] if isinstance(project, str) else []
    request = Request(
        "PUT", f"{PREFIX}{UPLOADS}/{digest}", query, content, {"Content-Type": "application/octet-stream"}
    )
    named = {**keys, "cases": {"upload": digest, "name": "cases.jsonl"}}
    return request, {**arguments, "keys": named}
