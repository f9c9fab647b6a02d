"""What a collection removed, or would remove, in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.core import texts
from wtb.display.tables import grid, wrapped

_WHAT = {
    "sweeps": "sweeps",
    "checkpoints": "superseded checkpoints",
    "node_runs": "their node runs",
    "outputs": "outputs of attempts",
    "values": "values",
    "files": "stored files",
    "directories": "directories of dead runners",
    "processes": "processes of dead runners",
}


def collected(document: Mapping[str, Any], width: int, color: bool = False) -> str:
    """A line for each kind of thing: how many, and how large where that is known."""
    rows = [
        [_WHAT.get(kind, kind), f"{one['count']:,}", "" if one["bytes"] is None else texts.bytes_of(one["bytes"])]
        for kind, one in document["removed"].items()
    ]
    title = "would be removed" if document["dry_run"] else "removed"
    parts = [grid([title, "how many", "bytes"], rows, width, right={"how many", "bytes"}, color=color)]
    parts += ["\n".join(wrapped(note, width)) + "\n" for note in document["notes"]]
    return "\n".join(parts)
