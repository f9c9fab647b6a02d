"""The stack of a folder in a terminal: each part, whether it runs, and what it takes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from wtb.render import words
from wtb.render.grid import grid, wrapped

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
            words.bytes_of(part["memory"]) if part["memory"] is not None else "",
        ]
        for part in document["parts"]
    ]
    headers = ["part", "status", "process", "address", "since", "memory"]
    state = "up" if document["up"] else "not all up"
    text = f"stack of {document['folder']}: {state} (process {document['pid']}, since {_moment(document['since'])})"
    title = "\n".join(wrapped(text, width)) + "\n\n"
    return title + grid(headers, rows, width, right={"process", "memory"}, color=color)


def _moment(iso: str | None) -> str:
    return "" if iso is None else words.moment(datetime.fromisoformat(iso).timestamp())
