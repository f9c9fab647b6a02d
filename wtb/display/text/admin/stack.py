"""The stack of a folder in a terminal: each part, whether it runs, and what it takes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from wtb.core import texts
from wtb.display.tables import grid, wrapped

Document = Mapping[str, Any]


def stack(document: Document, width: int, color: bool = False) -> str:
    """A line for each part. No passwords: this is for shared screens."""
    if document["pid"] is None:
        return "no stack is up in this folder; `wtb up` starts one\n"
    rows = [
        [
            part["name"],
            part["status"],
            str(part["pid"] or ""),
            part["address"] or "",
            _moment(part["since"]),
            texts.bytes_of(part["memory"]) if part["memory"] is not None else "",
            str(part["restarts"]),
        ]
        for part in document["parts"]
    ]
    headers = ["part", "status", "pid", "address", "since", "memory", "restarts"]
    state = "up" if document["up"] else "not all up"
    text = f"stack of {document['folder']}: {state} (process {document['pid']}, since {_moment(document['since'])})"
    title = "\n".join(wrapped(text, width)) + "\n\n"
    table = title + grid(headers, rows, width, right={"pid", "memory", "restarts"}, color=color)
    restarts = [line for part in document["parts"] for line in _restart(part, width)]
    return "\n".join([table, *restarts, ""]) if restarts else table


def _restart(part: Document, width: int) -> list[str]:
    """When a part was started again the last time, and why."""
    if not part["restarts"]:
        return []
    text = f"{part['name']} was started again at {_moment(part['restarted_at'])}: it {part['restart_reason']}"
    return wrapped(text, width)


def _moment(iso: str | None) -> str:
    return "" if iso is None else texts.moment(datetime.fromisoformat(iso).timestamp())
