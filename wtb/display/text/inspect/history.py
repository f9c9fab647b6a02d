"""Histories and checkpoints in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from wtb.core import texts as words
from wtb.core.documents.common import RouteDocument
from wtb.core.documents.events.texts import under
from wtb.core.documents.lineage import CheckpointDetails, CheckpointDocument, HistoryDocument, InsideDocument
from wtb.core.texts import MISSING, money, printable
from wtb.display.tables import facts, grid, wrapped
from wtb.display.text.inspect.executions import state_lines, title


def history(document: HistoryDocument, width: int, color: bool = False) -> str:
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
        note = note or _made(checkpoint["made"])
        notes += [""] * (len(rows) - len(notes) - 1) + [note]
    costs = any(row[5] for row in rows)
    triggers = any(row[7] not in ("", "step") for row in rows)
    headers = ["step", "checkpoint", "node=variant", "visit", "time", "cost", "next", "trigger"]
    kept = [i for i in range(8) if (i != 5 or costs) and (i != 7 or triggers)]
    table = grid(
        [headers[i] for i in kept],
        [[row[i] for i in kept] for row in rows],
        width,
        right={"step", "visit", "time", "cost"},
        whole={"checkpoint"},
        notes=notes,
        color=color,
    )
    parts = [f"{head}\n{table}", _boundaries(document, width, color), *_values(document, width)]
    parts += [_inside(document.get("inside", ()), width, color), _left(document, width)]
    return "\n".join(part for part in parts if part)


def _made(origin: Mapping[str, Any] | None) -> str:
    """How a person made a checkpoint."""
    if origin is None:
        return ""
    how = {"execution.rolled_back": "rolled back", "execution.redone": "a rollback undone", "fork.made": "forked"}
    keys = ", ".join(origin.get("set") or origin.get("changed") or origin.get("keys") or ())
    by = f" by {origin['by']}" if origin.get("by") else ""
    why = f": {origin['reason']}" if origin.get("reason") else ""
    return f"{how.get(origin['kind'], 'edited')}{by}{f' ({keys} changed)' if keys else ''}{why}"


def _left(document: HistoryDocument, width: int) -> str:
    """The lines that rollbacks left."""
    lines = []
    for one in document["left"]:
        nodes = ", ".join(one["nodes"]) or "nothing"
        again = ", undone since" if one["redone_at"] else ""
        lines += wrapped(f"by {one['by']}: {nodes}{again}; its head is checkpoint {one['from_id']}", width, "  ")
    return "lines left by rollbacks\n" + "\n".join(lines) + "\n" if lines else ""


def _checkpoint_rows(checkpoint: CheckpointDocument) -> list[list[str]]:
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


def _decision(one: RouteDocument) -> str:
    """Why it went on where it went, and the edges that were tried and not taken."""
    left = [edge for edge in one.get("tried", ()) if not edge["taken"]]
    tried = ", ".join(_end(edge["to"]) + (f" if {edge['when']}" if edge["when"] else "") for edge in left)
    return f"{one['node']} → {_end(one['to'])}: {one['why']}" + (f" (not taken: {tried})" if tried else "")


def _end(name: str) -> str:
    return "the end" if name == "__end__" else name


def _boundaries(document: HistoryDocument, width: int, color: bool) -> str:
    if not document["boundaries"]:
        return "no node has been reached yet\n"
    step = {one["id"]: f"step {one['step']}" for one in document["checkpoints"]}
    headers = ["node", "visit", "entry", "exit", "status", "time"]
    rows = [
        [
            one["node"],
            str(one["visit"]),
            step[one["entry"]],
            step[one["exit"]] if one["exit"] else MISSING,
            one["status"],
            words.took(one["duration_s"]) if one["status"] == "succeeded" else MISSING,
        ]
        for one in document["boundaries"]
    ]
    errors = [one.get("error") or "" for one in document["boundaries"]]
    right = {"visit", "time"}
    return "boundaries\n" + grid(headers, rows, width, right=right, whole={"status"}, notes=errors, color=color)


def _inside(taken: Sequence[InsideDocument], width: int, color: bool) -> str:
    """Checkpoints inside nodes, to which an execution can be rolled back, too."""
    if not taken:
        return ""
    rows = [[one["id"], f"{one['node']}={one['variant']}", one["name"] or "", one["trigger"]] for one in taken]
    headers = ["checkpoint", "node=variant", "name", "trigger"]
    return "checkpoints inside nodes\n" + grid(headers, rows, width, whole={"checkpoint"}, color=color)


def _values(document: HistoryDocument, width: int) -> list[str]:
    """The state at each checkpoint, and what went into each visit and came out of it, if the document has them."""
    parts = []
    for checkpoint in document["checkpoints"]:
        if state := checkpoint.get("state"):
            parts.append(f"state at step {checkpoint['step']} ({checkpoint['id']})\n{state_lines(state, width)}")
    for one in document["boundaries"]:
        for name, values in (("input", one.get("input")), ("output", one.get("output"))):
            if values:
                parts.append(f"{name} of {printable(one['node'])}, visit {one['visit']}\n{state_lines(values, width)}")
    return parts


def checkpoint(document: CheckpointDetails, width: int, color: bool = False) -> str:
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
        ("made", _made(about["made"])),
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
        rows = [[one["path"], words.bytes_of(one["size"])] for one in document["files"]]
        parts.append("files\n" + grid(["path", "size"], rows, width, right={"size"}, color=color))
    return "\n".join(parts)
