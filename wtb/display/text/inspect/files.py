"""The files of workspaces in a terminal: a list of them, and what changed between two."""

from __future__ import annotations

from wtb.core import texts
from wtb.core.documents.lineage import FileChangesDocument, FilesDocument, FilesHeading
from wtb.core.texts import MISSING
from wtb.display.tables import facts, grid

_SHORT_HASH = 12


def listed(document: FilesDocument, width: int, color: bool = False) -> str:
    """Path, size, mode and the beginning of the hash of each file."""
    head = facts([("of", _of(document)), ("at", _place(document))], width)
    if not document["files"]:
        return head + "\nno files\n"
    rows = [
        [one["path"], texts.bytes_of(one["size"]), one["mode"], one["sha256"][:_SHORT_HASH]]
        for one in document["files"]
    ]
    table = grid(["path", "size", "mode", "sha256"], rows, width, right={"size"}, whole={"mode", "sha256"}, color=color)
    total = f"{texts.plural(len(rows), 'file')}, {texts.bytes_of(document['bytes'])}"
    return f"{head}\n{table}\n{total}\n"


def changes(document: FileChangesDocument, width: int, color: bool = False) -> str:
    """What was added, removed and changed from A to B, with sizes."""
    sides = [f"{_of(document[side])}, {_place(document[side])}" for side in ("a", "b")]
    head = facts([("A", sides[0]), ("B", sides[1])], width)
    if not document["changes"]:
        return head + "\nthe same files\n"
    rows = [[one["kind"], one["path"], _size(one["before"]), _size(one["after"])] for one in document["changes"]]
    table = grid(["change", "path", "in A", "in B"], rows, width, right={"in A", "in B"}, whole={"change"}, color=color)
    counts = [(sum(one["kind"] == kind for one in document["changes"]), kind) for kind in _KINDS]
    total = ", ".join(f"{count:,} {kind}" for count, kind in counts if count)
    return f"{head}\n{table}\n{total}\n"


_KINDS = ("added", "removed", "changed")


def _of(about: FilesHeading) -> str:
    if about["execution"] is None:
        return f"sweep {about['sweep']}"
    chosen = texts.chosen_by_all(about["combinations"])
    return f"execution {about['execution']}: {about['case']}, repeat {about['repeat']}, {chosen}"


def _place(about: FilesHeading) -> str:
    if about["checkpoint"] is None:
        return "it has not begun yet"
    after = f"after {', '.join(about['after'])}" if about["after"] else "before the first node"
    return f"checkpoint {about['checkpoint']} (step {about['step']}, {after})"


def _size(count: int | None) -> str:
    return MISSING if count is None else texts.bytes_of(count)
