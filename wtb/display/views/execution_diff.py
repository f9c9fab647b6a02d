"""Two executions or checkpoints side by side: where they part, and in what their heads differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, cast

from wtb.core.classes.frozen import frozen
from wtb.core.tree.checkpoints import Checkpoint, shown
from wtb.display.views.executions import Trace, state, totals_of
from wtb.store.database import Database
from wtb.store.files.manifest import compare
from wtb.store.files.store import FileStore
from wtb.store.read import queries

if TYPE_CHECKING:
    from wtb.core.documents.executions import CheckpointHeading, ExecutionHeading
    from wtb.core.documents.lineage import (
        CheckpointSide,
        DiffDocument,
        DivergenceDocument,
        ExecutionSide,
        FileDifference,
    )


def diff_document(database: Database, a: Trace, b: Trace, files: FileStore | None = None) -> DiffDocument:
    """Where two executions or checkpoints part, and what is different at their heads.

    Args:
        database: Where both are.
        a: The trace of one.
        b: The trace of the other.
        files: Where their snapshots are; without it `files` of the document is None.

    Raises:
        StoreError: A snapshot is missing or damaged.
    """
    shared = 0
    for one, other in zip(a.line, b.line, strict=False):
        if one.id != other.id:
            break
        shared += 1
    before, after = state(database, a.head), state(database, b.head)
    digests = [shown(found.head.state) if found.head else {} for found in (a, b)]
    same = [key for key in before if digests[0][key] == digests[1].get(key)]
    return {
        "a": _side(a),
        "b": _side(b),
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


def _side(found: Trace) -> ExecutionSide | CheckpointSide:
    totals, path = totals_of(found.head), _writers(found.line)
    if found.about["status"] == "checkpoint":
        return {**cast("CheckpointHeading", found.about), "totals": totals, "path": path}
    return {**cast("ExecutionHeading", found.about), "totals": totals, "path": path}


def _files(files: FileStore, a: Trace, b: Trace) -> list[FileDifference]:
    """The files that only one of two heads has, or that differ: path, kind, and bytes in a and b."""
    before, after = (
        files.of_project(found.project).manifest(found.head.workspace if found.head else None) for found in (a, b)
    )
    return [{"path": one.path, "kind": one.kind, "a": one.before, "b": one.after} for one in compare(before, after)]


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
            one.step,
            [(w.node, w.variant) for w in one.writers],
            _writers([one]),
            shown(one.state),
            [w.node_run for w in one.writers],
        )
        for one in trace.line[start:]
    ]
    if trace.unfinished and trace.head:
        runs = [(run.node, run.variant) for run in trace.unfinished]
        labels = [f"{run.node}={run.variant} ({run.status})" for run in trace.unfinished]
        steps.append(_Step(trace.head.step + 1, runs, labels, {}, [run.id for run in trace.unfinished]))
    return steps


def _divergence(database: Database, a: Trace, b: Trace, shared: int) -> DivergenceDocument | None:
    """The first step that differs, and in what: input, path, variant, code, result, or end where only one goes on."""
    for one, other in zip_longest(_steps(a, shared), _steps(b, shared)):
        if one is None or other is None:
            why = "end"
        elif [node for node, _ in one.runs] != [node for node, _ in other.runs]:
            why = "path"
        elif one.runs != other.runs:
            why = "variant"
        elif one.state != other.state or one.labels != other.labels:
            why = _cause(database, one, other) if one.runs else "input"
        else:
            continue
        step = (one or other).number
        return {"step": step, "why": why, "a": one.labels if one else [], "b": other.labels if other else []}
    return None


def _cause(database: Database, one: _Step, other: _Step) -> str:
    """Why the same variants came to something else: their code was changed, or the result differs."""
    codes = [
        {run.node: run.fingerprint for run in queries.node_runs_by_id(database, step.node_runs)}
        for step in (one, other)
    ]
    known = codes[0].keys() & codes[1].keys()  # `wtb gc` removes node runs of superseded lines
    return "code" if any(codes[0][node] != codes[1][node] for node in known) else "result"
