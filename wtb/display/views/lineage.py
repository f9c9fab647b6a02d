"""The tree of a sweep or execution as a document, and two executions or checkpoints side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, cast

from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import iso
from wtb.core.tree.checkpoints import Checkpoint, visible_state
from wtb.core.tree.recorded_runs import inside_document
from wtb.display.views.executions import Trace, readable_values, state, totals_of
from wtb.store.control.rollback import SUPERSEDED
from wtb.store.database import Database
from wtb.store.files.manifest import compare
from wtb.store.files.store import FileStore
from wtb.store.read import details, lineage, queries
from wtb.store.records import Mark
from wtb.store.tables.control import RollbackRow
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents import lineage as documents
    from wtb.core.documents.executions import CheckpointHeading, ExecutionHeading

MAX_SEGMENTS = 60  # segments, where nobody asks for more


def tree_document(
    database: Database,
    sweep: SweepRow,
    *,
    execution: ExecutionRow | None = None,
    case: str | None = None,
    limit: int = MAX_SEGMENTS,
) -> documents.TreeDocument:
    """The lines of a sweep's executions, of those of one case, or of those around one execution.

    {"sweep", "execution", "trees": [{"case", "repeat", "segments": [{"id", "parent", "nodes": [{node, variant}],
    "left", "made", "heads"}], "not_begun"}], "executions": {id: ...}, "left_out": how many segments, "cases_left_out"}.
    A segment is the checkpoints between two places where lines part; its id is that of the last.

    Raises:
        InputError: The sweep has no such case.
    """
    names = _defaults(database, sweep)
    numbers = _cases(database, sweep, execution, case)
    trees: list[documents.TreeOfCase] = []
    summaries: dict[str, documents.TreeExecution] = {}
    used = cases = 0
    for number in numbers:
        # Cases are read one at a time, so that a large sweep reads only those that are shown.
        if used >= limit and execution is None:
            break
        cases += 1
        repeat = None if execution is None else execution.repeat
        rows, marks, rollbacks = lineage.family(database, sweep.id, number, repeat)
        cells = lineage.cells_held(database, sweep.id, number)
        case_id = queries.case_rows(database, sweep.id, [number])[number].id
        for repeat_number in sorted({row.repeat for row in rows}):
            mine = [row for row in rows if row.repeat == repeat_number]
            segments, segment_of = _segments(database, sweep.id, mine, marks, rollbacks, names)
            if execution is not None or sweep.kind == "single":
                _add_inside(database, segments, segment_of)
            used += len(segments)
            begun_ids = {row.id for row in mine if row.head_id is not None}
            waiting = [row.id for row in mine if row.id not in begun_ids]
            trees.append({"case": case_id, "repeat": repeat_number, "segments": segments, "not_begun": waiting})
            summaries |= {row.id: _summary(row, cells.get(row.id, {})) for row in mine}
    left_out = 0
    if execution is None:
        room = limit
        for tree in trees:
            left_out += max(0, len(tree["segments"]) - room)
            tree["segments"] = tree["segments"][: max(0, room)]
            room -= len(tree["segments"])
    trees = [tree for tree in trees if tree["segments"] or tree["not_begun"]]
    heads = {head for tree in trees for segment in tree["segments"] for head in segment["heads"]}
    heads |= {id for tree in trees for id in tree["not_begun"]}
    return {
        "sweep": {"id": sweep.id, "name": sweep.name, "status": sweep.status, "reason": sweep.reason},
        "execution": None if execution is None else execution.id,
        "trees": trees,
        "executions": {id: summary for id, summary in summaries.items() if id in heads},
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


def _summary(row: ExecutionRow, statuses: Mapping[str, int]) -> documents.TreeExecution:
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
) -> tuple[list[documents.SegmentDocument], dict[str, str]]:
    """The segments of these executions' lines, each after the one that it goes on from, lines left first.

    Also returned: checkpoint -> the segment that it is in.
    """
    ids = {row.id for row in rows}
    # A rollback that was undone has left no line.
    left_heads = [rollback for rollback in rollbacks if rollback.execution_id in ids and rollback.redone_at is None]
    mine: dict[str, Mark] = {}
    ends = [row.head_id for row in rows]
    ends += [rollback.from_id for rollback in rollbacks if rollback.execution_id in ids]
    for head in ends:
        # A checkpoint that is in `mine` already has all its ancestors there, so each is visited once.
        while head is not None and head in marks and head not in mine:
            mine[head] = marks[head]
            head = marks[head].parent_id
    current = {mark.id for row in rows for mark in lineage.line(marks, row.head_id)}
    heads: dict[str, list[str]] = {}
    for row in rows:
        # A forked execution has passed its head on to its children.
        if row.head_id is not None and row.status != "forked":
            heads.setdefault(row.head_id, []).append(row.id)
    why = {mark.id: rollback.by for rollback in left_heads for mark in lineage.line(marks, rollback.from_id)}
    children: dict[str | None, list[str]] = {}
    for id, mark in mine.items():
        parent = mark.parent_id if mark.parent_id in mine else None
        children.setdefault(parent, []).append(id)
    by_hand = lineage.made_by_people(database, sweep_id, [id for id in mine if _is_manual(mine[id])])
    segments: list[documents.SegmentDocument] = []
    segment_of: dict[str, str] = {}
    todo: list[tuple[str, str | None]] = [(id, None) for id in sorted(children.get(None, []), reverse=True)]
    while todo:
        id, parent = todo.pop()
        start, nodes, covered = mine[id], [], []
        while True:
            covered.append(id)
            nodes += [_node(writer, defaults) for writer in mine[id].writers]
            next_ids = children.get(id, [])
            # A segment ends where lines part, at a head, before an edit, and where a rollback left the line.
            if (
                len(next_ids) != 1
                or id in heads
                or _is_manual(mine[next_ids[0]])
                or (next_ids[0] in current) != (id in current)
            ):
                break
            id = next_ids[0]
        segment_of.update(dict.fromkeys(covered, id))
        is_left = id not in current
        segments.append(
            {
                "id": id,
                "parent": parent,
                "input": start.parent_id is None,
                "nodes": nodes,
                "left": is_left,
                "left_by": why.get(id) if is_left else None,
                "made": by_hand.get(start.id, {"kind": "manual"}) if _is_manual(start) else None,
                "step": mine[id].position["step"],
                "heads": heads.get(id, []),
            }
        )
        # Current lines come last, so that a drawing ends with them.
        next_ids = sorted(
            children.get(id, []), key=lambda child_id: (child_id in current, mine[child_id].created_at, child_id)
        )
        # A stack: the first child has to be on top.
        todo += [(child_id, id) for child_id in reversed(next_ids)]
    return segments, segment_of


def _add_inside(
    database: Database, segments: Sequence[documents.SegmentDocument], segment_of: Mapping[str, str]
) -> None:
    """Add the checkpoints that were taken inside nodes, each to the segment in which its node began."""
    by_segment: dict[str, list[documents.InsideDocument]] = {}
    with database.read() as connection:
        marks = lineage.inside(connection, segment_of)
    for mark in marks:
        if mark.inside is None or mark.parent_id is None or mark.id in segment_of:
            continue
        document: documents.InsideDocument = {
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


def _node(writer: Sequence[str], defaults: Mapping[str, str]) -> documents.TreeNode:
    node, variant, run = writer
    return {"node": node, "variant": variant, "node_run": run, "varied": defaults.get(node) != variant}


def diff_document(database: Database, a: Trace, b: Trace, files: FileStore | None = None) -> documents.DiffDocument:
    """Return the step at which two executions or checkpoints part, and the differences at their heads.

    Args:
        database: Where both are.
        a: The trace of one.
        b: The trace of the other.
        files: Where their snapshots are; without it `files` of the document is None.

    Raises:
        StoreError: A snapshot is missing or damaged.
    """
    # Executions with a common past share its checkpoints, so the first that differs by id ends it.
    shared = 0
    for checkpoint_a, checkpoint_b in zip(a.line, b.line, strict=False):
        if checkpoint_a.id != checkpoint_b.id:
            break
        shared += 1
    before, after = state(database, a.head), state(database, b.head)
    digests = [visible_state(trace.head.state) if trace.head else {} for trace in (a, b)]
    # Digests are exact, while plain JSON may show different values alike.
    same = [key for key in before if digests[0][key] == digests[1].get(key)]
    return {
        "a": _side(a),
        "b": _side(b),
        # The first checkpoint is the input, which is no step.
        "shared_steps": max(0, shared - 1),
        "common_checkpoint": a.line[shared - 1].id if shared else None,
        "divergence": _divergence(database, a, b, shared),
        "state": {
            "same": same,
            "changed": {
                key: {"a": before[key], "b": after[key]}
                for key in before
                if key in after and digests[0][key] != digests[1][key]
            },
            "only_a": {key: before[key] for key in before if key not in after},
            "only_b": {key: after[key] for key in after if key not in before},
        },
        "files": None if files is None else _files(files, a, b),
    }


def _side(trace: Trace) -> documents.ExecutionSide | documents.CheckpointSide:
    totals, path = totals_of(trace.head), _writers(trace.line)
    if trace.about["status"] == "checkpoint":
        return {**cast("CheckpointHeading", trace.about), "totals": totals, "path": path}
    return {**cast("ExecutionHeading", trace.about), "totals": totals, "path": path}


def _files(files: FileStore, a: Trace, b: Trace) -> list[documents.FileDifference]:
    """The files that only one of two heads has, or that differ: path, kind, and bytes in a and b."""
    before, after = (
        files.of_project(trace.project).manifest(trace.head.workspace if trace.head else None) for trace in (a, b)
    )
    return [
        {"path": change.path, "kind": change.kind, "a": change.before, "b": change.after}
        for change in compare(before, after)
    ]


def _writers(line: Sequence[Checkpoint]) -> list[str]:
    return [f"{writer.node}={writer.variant}" for checkpoint in line for writer in checkpoint.writers]


@frozen
class _Step:
    number: int
    runs: Sequence[tuple[str, str]]
    labels: list[str]
    state: Mapping[str, str]
    node_runs: Sequence[str]


def _steps(trace: Trace, start: int) -> list[_Step]:
    """The steps after the shared ones; last the one at which an execution failed or stands."""
    steps = [
        _Step(
            checkpoint.step,
            [(w.node, w.variant) for w in checkpoint.writers],
            _writers([checkpoint]),
            visible_state(checkpoint.state),
            [w.node_run for w in checkpoint.writers],
        )
        for checkpoint in trace.line[start:]
    ]
    if trace.unfinished and trace.head:
        runs = [(run.node, run.variant) for run in trace.unfinished]
        labels = [f"{run.node}={run.variant} ({run.status})" for run in trace.unfinished]
        steps.append(_Step(trace.head.step + 1, runs, labels, {}, [run.id for run in trace.unfinished]))
    return steps


def _divergence(database: Database, a: Trace, b: Trace, shared: int) -> documents.DivergenceDocument | None:
    """The first step that differs, and in what: input, path, variant, code, result, or end if only one continues."""
    for step_a, step_b in zip_longest(_steps(a, shared), _steps(b, shared)):
        # From the coarsest difference to the finest: another path explains other variants, and these another state.
        if step_a is None or step_b is None:
            why = "end"
        elif [node for node, _ in step_a.runs] != [node for node, _ in step_b.runs]:
            why = "path"
        elif step_a.runs != step_b.runs:
            why = "variant"
        elif step_a.state != step_b.state or step_a.labels != step_b.labels:
            why = _cause(database, step_a, step_b) if step_a.runs else "input"
        else:
            continue
        step = (step_a or step_b).number
        return {"step": step, "why": why, "a": step_a.labels if step_a else [], "b": step_b.labels if step_b else []}
    return None


def _cause(database: Database, step_a: _Step, step_b: _Step) -> str:
    """Return why the same variants had other results: `code` if their code was changed, else `result`."""
    codes = [
        {run.node: run.fingerprint for run in queries.node_runs_by_id(database, step.node_runs)}
        for step in (step_a, step_b)
    ]
    # `wtb admin gc` removes node runs of superseded lines, so some may be missing.
    common_nodes = codes[0].keys() & codes[1].keys()
    return "code" if any(codes[0][node] != codes[1][node] for node in common_nodes) else "result"


def checkpoint_details(
    database: Database, checkpoint: Checkpoint, sweep_id: str, files: FileStore
) -> documents.CheckpointDetails:
    """Return a checkpoint as `wtb show CHECKPOINT` prints it.

    Raises:
        StoreError: If its snapshot of files is missing or damaged.
    """
    sweep = queries.find_sweep(database, sweep_id)
    line = details.with_reasons(database, sweep_id, details.read_line(database, checkpoint.id))
    history = details.with_notes(database, sweep_id, line)
    inside = checkpoint.inside
    saved = {} if inside is None else inside.saved
    values = readable_values(database, {*visible_state(checkpoint.state).values(), *saved.values()})
    manifest = files.of_project(sweep.project).manifest(checkpoint.workspace)
    return {
        "sweep": {"id": sweep.id, "name": sweep.name, "status": sweep.status},
        "execution": details.execution_of(database, checkpoint.id),
        "checkpoint": history.checkpoint_document(checkpoint, values),
        "inside": None if inside is None else inside_document(checkpoint),
        "saved": {key: values[digest] for key, digest in saved.items()},
        "files": [
            {"path": path, "size": file.size, "mode": f"{file.mode & 0o777:04o}", "sha256": file.digest}
            for path, file in sorted(manifest.items())
        ],
    }
