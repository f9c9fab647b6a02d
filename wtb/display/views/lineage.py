"""The tree of a sweep or of one of its executions as a document: segments of lines, heads, forks, lines left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wtb.core.serialization.plain_json import iso
from wtb.store.control.rollback import SUPERSEDED
from wtb.store.database import Database
from wtb.store.read import details, lineage, queries
from wtb.store.rows.executions import Mark
from wtb.store.tables.control import RollbackRow
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.lineage import (
        InsideDocument,
        SegmentDocument,
        TreeDocument,
        TreeExecution,
        TreeNode,
        TreeOfCase,
    )


MOST = 60  # segments, where nobody asks for more


def tree_document(
    database: Database,
    sweep: SweepRow,
    *,
    execution: ExecutionRow | None = None,
    case: str | None = None,
    limit: int = MOST,
) -> TreeDocument:
    """The lines of a sweep's executions, of those of one case, or of those around one execution.

    {"sweep", "execution", "trees": [{"case", "repeat", "segments": [{"id", "parent", "nodes": [{node, variant}],
    "left", "made", "heads"}], "not_begun"}], "executions": {id: ...}, "left_out": how many segments, "cases_left_out"}.
    A segment is the checkpoints between two places where lines part; its id is that of the last.

    Raises:
        InputError: The sweep has no such case.
    """
    names = _defaults(database, sweep)
    numbers = _cases(database, sweep, execution, case)
    trees: list[TreeOfCase] = []
    summaries: dict[str, TreeExecution] = {}
    used = cases = 0
    for number in numbers:
        if used >= limit and execution is None:
            break
        cases += 1
        repeat = None if execution is None else execution.repeat
        found, marks, left = lineage.family(database, sweep.id, number, repeat)
        cells = lineage.cells_held(database, sweep.id, number)
        case_id = queries.case_rows(database, sweep.id, [number])[number].id
        for one in sorted({row.repeat for row in found}):
            mine = [row for row in found if row.repeat == one]
            segments, segment_of = _segments(database, sweep.id, mine, marks, left, names)
            if execution is not None or sweep.kind == "single":
                _add_inside(database, segments, segment_of)
            used += len(segments)
            begun = {row.id for row in mine if row.head_id is not None}
            waiting = [row.id for row in mine if row.id not in begun]
            trees.append({"case": case_id, "repeat": one, "segments": segments, "not_begun": waiting})
            summaries |= {row.id: _summary(row, cells.get(row.id, {})) for row in mine}
    left_out = 0
    if execution is None:
        room = limit
        for tree in trees:
            left_out += max(0, len(tree["segments"]) - room)
            tree["segments"] = tree["segments"][: max(0, room)]
            room -= len(tree["segments"])
    trees = [tree for tree in trees if tree["segments"] or tree["not_begun"]]
    heads = {head for tree in trees for one in tree["segments"] for head in one["heads"]}
    heads |= {id for tree in trees for id in tree["not_begun"]}
    return {
        "sweep": {"id": sweep.id, "name": sweep.name, "status": sweep.status, "reason": sweep.reason},
        "execution": None if execution is None else execution.id,
        "trees": trees,
        "executions": {id: one for id, one in summaries.items() if id in heads},
        "left_out": left_out,
        "cases_left_out": len(numbers) - cases,
    }


def _defaults(database: Database, sweep: SweepRow) -> dict[str, str]:
    """Node -> variant, of nodes whose variant is not shown."""
    varied = {node for choices in queries.choices(database, sweep.id)[:1] for node in choices}
    graph = queries.workflow_graph(database, sweep.workflow_id)
    return {node["name"]: node["default"] for node in graph.get("nodes", ()) if node["name"] not in varied}


def _cases(database: Database, sweep: SweepRow, execution: ExecutionRow | None, case: str | None) -> list[int]:
    if execution is not None:
        return [execution.case_number]
    with database.read() as connection:
        numbers = lineage.case_numbers(connection, sweep.id, case)
    if case is not None and not numbers:
        details.check_case(database, sweep.id, case)
    return numbers


def _summary(row: ExecutionRow, statuses: Mapping[str, int]) -> TreeExecution:
    cells = sum(statuses.values()) or (len(row.combinations) if row.status not in ("cancelled", "forked") else 0)
    return {
        "status": row.status,
        "reason": row.reason,
        "origin": row.origin,
        "parent": row.parent_id,
        "cells": cells,
        "edited": row.edited,
        "superseded": row.reason == SUPERSEDED,
    }


def _segments(
    database: Database,
    sweep_id: str,
    rows: Sequence[ExecutionRow],
    marks: lineage.Marks,
    rollbacks: Sequence[RollbackRow],
    defaults: Mapping[str, str],
) -> tuple[list[SegmentDocument], dict[str, str]]:
    """The segments of these executions' lines, each after the one that it goes on from, lines left first.

    Also returned: checkpoint -> the segment that it is in.
    """
    ids = {row.id for row in rows}
    left_heads = [one for one in rollbacks if one.execution_id in ids and one.redone_at is None]
    mine: dict[str, Mark] = {}
    ends = [row.head_id for row in rows]
    ends += [one.from_id for one in rollbacks if one.execution_id in ids]
    for head in ends:
        while head is not None and head in marks and head not in mine:
            mine[head] = marks[head]
            head = marks[head].parent_id
    current = {mark.id for row in rows for mark in lineage.line(marks, row.head_id)}
    heads: dict[str, list[str]] = {}
    for row in rows:
        if row.head_id is not None and row.status != "forked":
            heads.setdefault(row.head_id, []).append(row.id)
    why = {mark.id: one.by for one in left_heads for mark in lineage.line(marks, one.from_id)}
    children: dict[str | None, list[str]] = {}
    for id, mark in mine.items():
        parent = mark.parent_id if mark.parent_id in mine else None
        children.setdefault(parent, []).append(id)
    by_hand = lineage.made_by_people(database, sweep_id, [id for id in mine if _is_manual(mine[id])])
    segments: list[SegmentDocument] = []
    segment_of: dict[str, str] = {}
    todo: list[tuple[str, str | None]] = [(id, None) for id in sorted(children.get(None, []), reverse=True)]
    while todo:
        id, parent = todo.pop()
        start, nodes, covered = mine[id], [], []
        while True:
            covered.append(id)
            nodes += [_node(writer, defaults) for writer in mine[id].writers]
            below = children.get(id, [])
            if len(below) != 1 or id in heads or _is_manual(mine[below[0]]) or (below[0] in current) != (id in current):
                break
            id = below[0]
        segment_of.update(dict.fromkeys(covered, id))
        left = id not in current
        segments.append(
            {
                "id": id,
                "parent": parent,
                "input": start.parent_id is None,
                "nodes": nodes,
                "left": left,
                "left_by": why.get(id) if left else None,
                "made": by_hand.get(start.id, {"kind": "manual"}) if _is_manual(start) else None,
                "step": mine[id].position["step"],
                "heads": heads.get(id, []),
            }
        )
        # What goes on comes last, so that it stands at the end of a drawing.
        below = sorted(children.get(id, []), key=lambda one: (one in current, mine[one].created_at, one))
        todo += [(one, id) for one in reversed(below)]
    return segments, segment_of


def _add_inside(database: Database, segments: Sequence[SegmentDocument], segment_of: Mapping[str, str]) -> None:
    """Add the checkpoints that were taken inside nodes, each to the segment in which its node began."""
    by_segment: dict[str, list[InsideDocument]] = {}
    with database.read() as connection:
        taken = lineage.inside(connection, segment_of)
    for mark in taken:
        if mark.inside is None or mark.parent_id is None or mark.id in segment_of:
            continue
        document: InsideDocument = {
            "id": mark.id,
            "parent": mark.parent_id,
            "node": mark.inside["node"],
            "variant": mark.inside["variant"],
            "node_run": mark.inside["node_run"],
            "name": mark.name,
            "trigger": mark.trigger,
            "created_at": iso(mark.created_at),
        }
        by_segment.setdefault(segment_of[mark.parent_id], []).append(document)
    for segment in segments:
        segment["inside"] = by_segment.get(segment["id"], [])


def _is_manual(mark: Mark) -> bool:
    return mark.trigger == "manual" and mark.parent_id is not None and not mark.writers


def _node(writer: Sequence[str], defaults: Mapping[str, str]) -> TreeNode:
    node, variant, run = writer
    return {"node": node, "variant": variant, "node_run": run, "varied": defaults.get(node) != variant}
