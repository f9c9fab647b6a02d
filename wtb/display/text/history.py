"""Histories, checkpoints, trees and the files of workspaces, in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len

from wtb.core import texts
from wtb.core import texts as words
from wtb.core.documents import lineage as documents
from wtb.core.documents.event_texts import shown_target, under
from wtb.core.documents.shared_types import RouteDocument
from wtb.core.frozen import frozen
from wtb.core.texts import MISSING, cut_one, money, printable
from wtb.display.tables import facts, grid, wrapped
from wtb.display.text.executions import state_lines, title


def history(document: documents.HistoryDocument, width: int, color: bool = False) -> str:
    """The line of checkpoints, and below it where each visit of a node begins and ends."""
    about = document["execution"]
    single = about["sweep"]["kind"] == "single"
    case = "" if single else f"{about['case']}, repeat {about['repeat']}"
    head = title(about, color) + "\n" + facts([("case", case)], width)
    if not document["checkpoints"]:
        return f"{head}\nit has not begun yet\n"
    rows: list[list[str]] = []
    notes: list[str] = []
    for checkpoint in document["checkpoints"]:
        rows += _checkpoint_rows(checkpoint)
        why = list(map(_decision, checkpoint["decisions"]))
        note = "; ".join(words.line(why))
        note = note or _origin_in_words(checkpoint["made"])
        # `grid` takes a note for each row. That of a checkpoint stands below its last row.
        notes += [""] * (len(rows) - len(notes) - 1) + [note]
    costs = any(row[5] for row in rows)
    triggers = any(row[7] not in ("", "step") for row in rows)
    headers = ["step", "checkpoint", "node=variant", "visit", "time", "cost", "next", "trigger"]
    visible = [i for i in range(8) if (i != 5 or costs) and (i != 7 or triggers)]
    table = grid(
        [headers[i] for i in visible],
        [[row[i] for i in visible] for row in rows],
        width,
        right={"step", "visit", "time", "cost"},
        whole={"checkpoint"},
        notes=notes,
        color=color,
    )
    parts = [f"{head}\n{table}", _boundaries(document, width, color), *_values(document, width)]
    parts += [_inside(document.get("inside", ()), width, color), _lines_left(document, width)]
    return "\n".join(part for part in parts if part)


def _origin_in_words(origin: Mapping[str, Any] | None) -> str:
    """Return how a person made a checkpoint, in words; empty if no person did."""
    if origin is None:
        return ""
    how = {"execution.rolled_back": "rolled back", "execution.redone": "a rollback undone", "fork.made": "forked"}
    keys = ", ".join(origin.get("set") or origin.get("changed") or origin.get("keys") or ())
    by = f" by {origin['by']}" if origin.get("by") else ""
    why = f": {origin['reason']}" if origin.get("reason") else ""
    return f"{how.get(origin['kind'], 'edited')}{by}{f' ({keys} changed)' if keys else ''}{why}"


def _lines_left(document: documents.HistoryDocument, width: int) -> str:
    """The lines that rollbacks left."""
    lines = []
    for rollback in document["left"]:
        nodes = ", ".join(rollback["nodes"]) or "nothing"
        undone = ", undone since" if rollback["redone_at"] else ""
        lines += wrapped(
            f"by {rollback['by']}: {nodes}{undone}; its head is checkpoint {rollback['from_id']}", width, "  "
        )
    return "lines left by rollbacks\n" + "\n".join(lines) + "\n" if lines else ""


def _checkpoint_rows(checkpoint: documents.CheckpointDocument) -> list[list[str]]:
    """A row for each writer; the root, which nobody wrote, has one too."""
    following = ", ".join(checkpoint["next"]) or "the end"
    trigger = checkpoint["name"] or checkpoint["trigger"]
    front = [str(checkpoint["step"]), checkpoint["id"]]
    if not checkpoint["writers"]:
        what = "(input)" if checkpoint["parent"] is None else ""
        return [[*front, what, "", "", "", following, trigger]]
    return [
        [
            *(front if number == 0 else ["", ""]),
            under(run) + ("" if run["status"] == "succeeded" else f" ({run['status']})"),
            str(run["visit"]),
            words.took(run["duration_s"]),
            money(run["usd"]) if run["usd"] else "",
            following if number == 0 else "",
            trigger if number == 0 else "",
        ]
        for number, run in enumerate(checkpoint["writers"])
    ]


def _decision(route: RouteDocument) -> str:
    """Return the reason for a route, and the edges that were tried and not taken."""
    not_taken = [edge for edge in route.get("tried", ()) if not edge["taken"]]
    alternatives = ", ".join(
        shown_target(edge["to"]) + (f" if {edge['when']}" if edge["when"] else "") for edge in not_taken
    )
    return f"{route['node']} → {shown_target(route['to'])}: {route['why']}" + (
        f" (not taken: {alternatives})" if alternatives else ""
    )


def _boundaries(document: documents.HistoryDocument, width: int, color: bool) -> str:
    if not document["boundaries"]:
        return "no node has been reached yet\n"
    step = {checkpoint["id"]: f"step {checkpoint['step']}" for checkpoint in document["checkpoints"]}
    headers = ["node", "visit", "entry", "exit", "status", "time"]
    rows = [
        [
            visit["node"],
            str(visit["visit"]),
            step[visit["entry"]],
            step[visit["exit"]] if visit["exit"] else MISSING,
            visit["status"],
            words.took(visit["duration_s"]) if visit["status"] == "succeeded" else MISSING,
        ]
        for visit in document["boundaries"]
    ]
    errors = [visit.get("error") or "" for visit in document["boundaries"]]
    right = {"visit", "time"}
    return "boundaries\n" + grid(headers, rows, width, right=right, whole={"status"}, notes=errors, color=color)


def _inside(checkpoints: Sequence[documents.InsideDocument], width: int, color: bool) -> str:
    """Checkpoints inside nodes, to which an execution can be rolled back, too."""
    if not checkpoints:
        return ""
    rows = [
        [
            checkpoint["id"],
            f"{checkpoint['node']}={checkpoint['variant']}",
            checkpoint["name"] or "",
            checkpoint["trigger"],
        ]
        for checkpoint in checkpoints
    ]
    headers = ["checkpoint", "node=variant", "name", "trigger"]
    return "checkpoints inside nodes\n" + grid(headers, rows, width, whole={"checkpoint"}, color=color)


def _values(document: documents.HistoryDocument, width: int) -> list[str]:
    """The state at each checkpoint, and what went into each visit and came out of it, if the document has them."""
    parts = []
    for checkpoint in document["checkpoints"]:
        if state := checkpoint.get("state"):
            parts.append(f"state at step {checkpoint['step']} ({checkpoint['id']})\n{state_lines(state, width)}")
    for visit in document["boundaries"]:
        for name, values in (("input", visit.get("input")), ("output", visit.get("output"))):
            if values:
                parts.append(
                    f"{name} of {printable(visit['node'])}, visit {visit['visit']}\n{state_lines(values, width)}"
                )
    return parts


def checkpoint(document: documents.CheckpointDetails, width: int, color: bool = False) -> str:
    """A checkpoint: where it is, who wrote it, what comes next, its state and files."""
    about, inside = document["checkpoint"], document["inside"]
    sweep = document["sweep"]
    why = list(map(_decision, about["decisions"]))
    lines = [
        ("sweep", f"{sweep['name']} ({sweep['id']})"),
        ("execution", document["execution"]),
        ("step", str(about["step"])),
        ("parent", about["parent"] or "none: it is the input"),
        ("name", about["name"] or ""),
        ("note", about.get("note", "")),
        ("trigger", about["trigger"]),
        ("taken", about["created_at"]),
        ("made", _origin_in_words(about["made"])),
        ("written by", ", ".join(under(run) for run in about["writers"])),
        ("inside", "" if inside is None else f"{inside['node']}={inside['variant']} (node run {inside['node_run']})"),
        ("next", ", ".join(about["next"]) or "the end"),
        ("because", "; ".join(why)),
    ]
    parts = [f"checkpoint {about['id']}\n{facts(lines, width)}"]
    for name, values in (("state", about.get("state")), ("saved", document["saved"])):
        if values:
            parts.append(f"{name}\n{state_lines(values, width)}")
    if document["files"]:
        rows = [[file["path"], words.bytes_of(file["size"])] for file in document["files"]]
        parts.append("files\n" + grid(["path", "size"], rows, width, right={"size"}, color=color))
    return "\n".join(parts)


_BOXES = ("├─ ", "└─ ", "│  ", " → ", "● ", "╳ ")
_ASCII = ("|- ", "`- ", "|  ", " -> ", "* ", "x ")
_ORIGINS = {
    "execution.rolled_back": "rolled back by",
    "execution.redone": "rollback undone by",
    "execution.resumed": "edited by",
    "approval.answered": "edited by",
    "fork.made": "forked by",
}


@frozen
class _Canvas:
    """The surface that a tree is drawn on, and its `signs`: `_BOXES`, or `_ASCII` if the output cannot show these."""

    width: int
    color: bool
    signs: Sequence[str]


def tree(document: documents.TreeDocument, width: int, color: bool = False) -> str:
    """The lines of executions from their inputs to their heads."""
    canvas = _Canvas(width, color, _signs())
    about = document["sweep"]
    status = texts.colored(about["status"], about["status"], color)
    parts = [f"sweep {printable(about['name'])} ({about['id']}): {status}\n"]
    for case_tree in document["trees"]:
        repeat = f", repeat {case_tree['repeat']}" if case_tree["repeat"] else ""
        lines = [texts.cut(f"case {case_tree['case']}{repeat}", width)]
        lines += _lines(case_tree["segments"], document, canvas)
        lines += _inside_segments(case_tree["segments"], width)
        if case_tree["not_begun"]:
            lines.append(f"{texts.plural(len(case_tree['not_begun']), 'execution')} not begun")
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


def _inside_segments(segments: Sequence[documents.SegmentDocument], width: int) -> list[str]:
    """Checkpoints inside nodes with their ids, of the tree of an execution."""
    checkpoints = [mark for segment in segments for mark in segment.get("inside", ())]
    names = [
        f"  {mark['id']}  {printable(mark['node'])}  {printable(mark['name'] or mark['trigger'])}"
        for mark in checkpoints
    ]
    return ["checkpoints inside nodes", *(texts.cut(name, width) for name in names)] if names else []


def _signs() -> Sequence[str]:
    """Lines and arrows, or what stands for them where the output cannot show them."""
    try:
        "".join(_BOXES).encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return _ASCII
    return _BOXES


def _lines(
    segments: Sequence[documents.SegmentDocument], document: documents.TreeDocument, canvas: _Canvas
) -> list[str]:
    middle, last, through, _, _, _ = canvas.signs
    children: dict[str | None, list[str]] = {}
    for segment in segments:
        children.setdefault(segment["parent"], []).append(segment["id"])
    lines: list[str] = []
    indent: dict[str | None, str] = {None: ""}
    for segment in segments:
        parent = segment["parent"]
        before = indent.get(parent, "")
        is_last = segment["id"] == children[parent][-1]
        alone = parent is not None and len(children[parent]) == 1
        front = before if parent is None else before + (last if is_last or alone else middle)
        # An only child is not indented, so that a line that was edited often does not wander to the right.
        indent[segment["id"]] = before if parent is None or alone else before + ("   " if is_last else through)
        if cell_len(front) > canvas.width // 2:  # too deep to be drawn
            front = indent[segment["id"]] = "... "
        # The lines on the left of heads that have lines of their own: those of siblings, and that to the children.
        beside = indent[segment["id"]].replace(".", " ") + (through[0] if segment["id"] in children else "")
        lines += _line(segment, front, beside, document, canvas)
    return lines


def _line(
    segment: documents.SegmentDocument, front: str, beside: str, document: documents.TreeDocument, canvas: _Canvas
) -> list[str]:
    width, color = canvas.width, canvas.color
    arrow, head, cross = canvas.signs[3:]
    nodes = texts.line([_label(node) for node in segment["nodes"]])
    if segment["input"]:
        nodes.insert(0, "(input)")
    if segment["made"] is not None:
        nodes.insert(0, _origin_of_tree(segment["made"]))
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
        return [front + (f"\x1b[2m{text}\x1b[0m" if color else text), *_heads_below(beside, ends, head, width)]
    if len(ends) == 1:
        plain, colored = ends[0]
        if cell_len(path) + cell_len(plain) + 4 <= room:
            return [f"{front}{path}  {head}{colored}"]
    return [front + _elided(path, nodes, arrow, room), *_heads_below(beside, ends, head, width)]


def _heads_below(beside: str, ends: Sequence[tuple[str, str]], head: str, width: int) -> list[str]:
    """Heads on lines of their own. ends: each without colours and with them."""
    room = [max(0, width - cell_len(head + plain)) for plain, _ in ends]
    return [beside[:available] + head + colored for available, (_, colored) in zip(room, ends, strict=True)]


def _elided(path: str, nodes: Sequence[str], arrow: str, room: int) -> str:
    """The first and last nodes of a line that is too long, with how many there are."""
    if cell_len(path) <= room or len(nodes) < 4:
        return cut_one(path, room, 0)
    return cut_one(printable(f"{nodes[0]}{arrow}...{arrow}{nodes[-1]} ({len(nodes)} nodes)"), room, 0)


def _label(node: documents.TreeNode) -> str:
    return f"{node['node']}={node['variant']}" if node["varied"] else str(node["node"])


def _origin_of_tree(origin: Mapping[str, Any]) -> str:
    by = origin.get("by")
    keys = origin.get("set") or origin.get("changed") or origin.get("keys") or ()
    how = _ORIGINS.get(origin["kind"], "changed by hand")
    if origin["kind"] == "fork.made" and keys:
        how = "forked and edited by"
    return f"({how}{f' {by}' if by else ''}{': ' + ', '.join(keys) if keys else ''})"


def _head(id: str, execution: documents.TreeExecution, color: bool, marked: bool) -> str:
    cells = texts.plural(execution["cells"], "cell") if execution["cells"] else ""
    if execution["origin"] == "manual":
        cells = "fork"
    status = "superseded" if execution["superseded"] else execution["status"]
    notes = [texts.colored(status, execution["status"], color), cells, "edited" if execution["edited"] else "", id]
    return ", ".join(note for note in notes if note) + (" <" if marked else "")


_SHORT_HASH = 12


def listed(document: documents.FilesDocument, width: int, color: bool = False) -> str:
    """Path, size, mode and the beginning of the hash of each file."""
    head = facts([("of", _of(document)), ("at", _place(document))], width)
    if not document["files"]:
        return head + "\nno files\n"
    rows = [
        [file["path"], texts.bytes_of(file["size"]), file["mode"], file["sha256"][:_SHORT_HASH]]
        for file in document["files"]
    ]
    table = grid(["path", "size", "mode", "sha256"], rows, width, right={"size"}, whole={"mode", "sha256"}, color=color)
    total = f"{texts.plural(len(rows), 'file')}, {texts.bytes_of(document['bytes'])}"
    return f"{head}\n{table}\n{total}\n"


def changes(document: documents.FileChangesDocument, width: int, color: bool = False) -> str:
    """Show the files that were added, removed and changed from A to B, with their sizes."""
    sides = [f"{_of(document[side])}, {_place(document[side])}" for side in ("a", "b")]
    head = facts([("A", sides[0]), ("B", sides[1])], width)
    if not document["changes"]:
        return head + "\nthe same files\n"
    rows = [
        [change["kind"], change["path"], _size(change["before"]), _size(change["after"])]
        for change in document["changes"]
    ]
    table = grid(["change", "path", "in A", "in B"], rows, width, right={"in A", "in B"}, whole={"change"}, color=color)
    counts = [(sum(change["kind"] == kind for change in document["changes"]), kind) for kind in _KINDS]
    total = ", ".join(f"{count:,} {kind}" for count, kind in counts if count)
    return f"{head}\n{table}\n{total}\n"


_KINDS = ("added", "removed", "changed")


def _of(about: documents.FilesHeading) -> str:
    if about["execution"] is None:
        return f"sweep {about['sweep']}"
    choices = texts.chosen_by_all(about["combinations"])
    return f"execution {about['execution']}: {about['case']}, repeat {about['repeat']}, {choices}"


def _place(about: documents.FilesHeading) -> str:
    if about["checkpoint"] is None:
        return "it has not begun yet"
    after = f"after {', '.join(about['after'])}" if about["after"] else "before the first node"
    return f"checkpoint {about['checkpoint']} (step {about['step']}, {after})"


def _size(count: int | None) -> str:
    return MISSING if count is None else texts.bytes_of(count)
