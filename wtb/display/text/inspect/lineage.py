"""A tree in a terminal: a line for each segment, indented below what it goes on from."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len

from wtb.core import texts
from wtb.core.classes.frozen import frozen
from wtb.core.documents.lineage import SegmentDocument, TreeDocument, TreeExecution, TreeNode
from wtb.core.texts import cut_one, printable
from wtb.display.tables import wrapped

_BOXES = ("├─ ", "└─ ", "│  ", " → ", "● ", "╳ ")
_ASCII = ("|- ", "`- ", "|  ", " -> ", "* ", "x ")
_MADE = {
    "execution.rolled_back": "rolled back by",
    "execution.redone": "rollback undone by",
    "execution.resumed": "edited by",
    "approval.answered": "edited by",
    "fork.made": "forked by",
}


@frozen
class _Canvas:
    """What a tree is drawn on and with. signs: `_BOXES`, or `_ASCII` where the output cannot show these."""

    width: int
    color: bool
    signs: Sequence[str]


def tree(document: TreeDocument, width: int, color: bool = False) -> str:
    """The lines of executions from their inputs to their heads."""
    canvas = _Canvas(width, color, _signs())
    about = document["sweep"]
    status = texts.colored(about["status"], about["status"], color)
    parts = [f"sweep {printable(about['name'])} ({about['id']}): {status}\n"]
    for one in document["trees"]:
        repeat = f", repeat {one['repeat']}" if one["repeat"] else ""
        lines = [texts.cut(f"case {one['case']}{repeat}", width)]
        lines += _lines(one["segments"], document, canvas)
        lines += _inside(one["segments"], width)
        if one["not_begun"]:
            lines.append(f"{texts.plural(len(one['not_begun']), 'execution')} not begun")
        parts.append("\n".join(lines) + "\n")
    if not document["trees"]:
        parts.append("nothing has begun\n")
    out = []
    if document["left_out"]:
        out.append(texts.plural(document["left_out"], "line"))
    if document["cases_left_out"]:
        out.append(texts.plural(document["cases_left_out"], "case"))
    if out:
        parts.append(
            "\n".join(wrapped(f"left out: {', '.join(out)}; more with --limit, or name a --case", width)) + "\n"
        )
    return "\n".join(parts)


def _inside(segments: Sequence[SegmentDocument], width: int) -> list[str]:
    """Checkpoints inside nodes with their ids, of the tree of an execution."""
    taken = [one for segment in segments for one in segment.get("inside", ())]
    names = [f"  {one['id']}  {printable(one['node'])}  {printable(one['name'] or one['trigger'])}" for one in taken]
    return ["checkpoints inside nodes", *(texts.cut(name, width) for name in names)] if names else []


def _signs() -> Sequence[str]:
    """Lines and arrows, or what stands for them where the output cannot show them."""
    try:
        "".join(_BOXES).encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return _ASCII
    return _BOXES


def _lines(segments: Sequence[SegmentDocument], document: TreeDocument, canvas: _Canvas) -> list[str]:
    middle, last, through, _, _, _ = canvas.signs
    below: dict[str | None, list[str]] = {}
    for segment in segments:
        below.setdefault(segment["parent"], []).append(segment["id"])
    lines: list[str] = []
    indent: dict[str | None, str] = {None: ""}
    for segment in segments:
        parent = segment["parent"]
        before = indent.get(parent, "")
        is_last = segment["id"] == below[parent][-1]
        alone = parent is not None and len(below[parent]) == 1
        front = before if parent is None else before + (last if is_last or alone else middle)
        # What goes on alone stays where it is, so that a line edited often does not wander off.
        indent[segment["id"]] = before if parent is None or alone else before + ("   " if is_last else through)
        if cell_len(front) > canvas.width // 2:  # too deep to be drawn
            front = indent[segment["id"]] = "... "
        # What passes by on the left of lines of their own: to those beside it, and to what goes on from it.
        beside = indent[segment["id"]].replace(".", " ") + (through[0] if segment["id"] in below else "")
        lines += _line(segment, front, beside, document, canvas)
    return lines


def _line(segment: SegmentDocument, front: str, beside: str, document: TreeDocument, canvas: _Canvas) -> list[str]:
    width, color = canvas.width, canvas.color
    arrow, head, cross = canvas.signs[3:]
    nodes = texts.line([_label(node) for node in segment["nodes"]])
    if segment["input"]:
        nodes.insert(0, "(input)")
    if segment["made"] is not None:
        nodes.insert(0, _made(segment["made"]))
    room = width - cell_len(front)
    beside = beside.ljust(cell_len(front) + 2)
    path = printable(arrow.join(nodes)) if nodes else "(here)"
    ends = []
    for id in segment["heads"]:
        about, marked = document["executions"][id], id == document["execution"]
        ends.append((_head(id, about, False, marked), _head(id, about, color, marked)))
    if segment["left"]:
        by = f" by {printable(segment['left_by'])}" if segment["left_by"] else ""
        text = cut_one(f"{cross}{path}  left{by}", room, 0)
        return [front + (f"\x1b[2m{text}\x1b[0m" if color else text), *_below(beside, ends, head, width)]
    if len(ends) == 1:
        plain, shown = ends[0]
        if cell_len(path) + cell_len(plain) + 4 <= room:
            return [f"{front}{path}  {head}{shown}"]
    return [front + _elided(path, nodes, arrow, room), *_below(beside, ends, head, width)]


def _below(beside: str, ends: Sequence[tuple[str, str]], head: str, width: int) -> list[str]:
    """Heads on lines of their own. ends: each without colours and with them."""
    room = [max(0, width - cell_len(head + plain)) for plain, _ in ends]
    return [beside[:most] + head + shown for most, (_, shown) in zip(room, ends, strict=True)]


def _elided(path: str, nodes: Sequence[str], arrow: str, room: int) -> str:
    """The first and last nodes of a line that is too long, with how many there are."""
    if cell_len(path) <= room or len(nodes) < 4:
        return cut_one(path, room, 0)
    return cut_one(printable(f"{nodes[0]}{arrow}...{arrow}{nodes[-1]} ({len(nodes)} nodes)"), room, 0)


def _label(node: TreeNode) -> str:
    return f"{node['node']}={node['variant']}" if node["varied"] else str(node["node"])


def _made(origin: Mapping[str, Any]) -> str:
    by = origin.get("by")
    keys = origin.get("set") or origin.get("changed") or origin.get("keys") or ()
    how = _MADE.get(origin["kind"], "changed by hand")
    if origin["kind"] == "fork.made" and keys:
        how = "forked and edited by"
    return f"({how}{f' {by}' if by else ''}{': ' + ', '.join(keys) if keys else ''})"


def _head(id: str, one: TreeExecution, color: bool, marked: bool) -> str:
    cells = texts.plural(one["cells"], "cell") if one["cells"] else ""
    if one["origin"] == "manual":
        cells = "fork"
    status = "superseded" if one["superseded"] else one["status"]
    notes = [texts.colored(status, one["status"], color), cells, "edited" if one["edited"] else "", id]
    return ", ".join(note for note in notes if note) + (" <" if marked else "")
