"""Rows that people add to a sweep: a combination whose cells go on where those of another one came to what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import sqlalchemy as sa

from wtb.core.errors import ConflictError, StoreError
from wtb.core.failures import StoredFailure
from wtb.core.fault_points import point
from wtb.core.ids import new_ids
from wtb.core.status import FINAL_CELLS
from wtb.core.tree.added_rows import KEY, Addition
from wtb.core.tree.run_order import case_order
from wtb.core.tree.stored_spec import StoredSpec
from wtb.core.values import Json
from wtb.store.bulk import fetch_records, insert_rows, parts, update_rows
from wtb.store.database import Database, clock
from wtb.store.events import add_event, of_sweep
from wtb.store.housekeeping.looks import change_keys, look_keys
from wtb.store.limits.sessions import session_to_submit_to
from wtb.store.read.lineage import edits, line, marks
from wtb.store.rows.executions import Mark
from wtb.store.rows.sweeps import SweepRow
from wtb.store.runs.leases import try_move
from wtb.store.runs.records import CellChange, NewCell, NewExecution
from wtb.store.tables.schema import cases, cells, combinations, executions, is_kept, sweeps

CHUNK = 1_000  # cells whose lines are read at once
_ENDED = {
    "failed": "failed",
    "set_aside": "failed",
    "cancelled": "cancelled",
    "skipped": "cancelled",
}  # cell: execution


@dataclass(frozen=True, slots=True)
class _BaseCell:
    """A cell of the combination that a row is made from, with the head of the execution of its outcome."""

    case_number: int
    repeat: int
    status: str
    failure: StoredFailure | None
    elapsed_s: float | None
    usd: float | None
    tokens_in: int | None
    tokens_out: int | None
    node_runs: int | None
    head_id: str | None
    edited: bool | None


class _Continued(NamedTuple):
    """What a cell of a row begins as, with its execution."""

    execution: NewExecution
    cell: CellChange


@dataclass(frozen=True)
class NewRow:
    """A row to add, checked against a sweep as it was read.

    Attributes:
        addition: What is recorded of it.
        choices: Its variants, of every varied node.
        spec: The stored spec of the sweep from now on, without the addition.
        fingerprints: Those of the sweep from now on.
        defaults: Variants of nodes that were not varied before, which all other rows have.
        queue_for: The queue that a step with these nodes asks for.
    """

    addition: Addition
    choices: Mapping[str, str]
    spec: StoredSpec
    fingerprints: Mapping[str, Mapping[str, str]]
    defaults: Mapping[str, str]
    queue_for: Callable[[Sequence[str]], str | None]


@dataclass
class Begun:
    """The cells of a row that was added.

    Attributes:
        pending: Ids of the executions that run.
        failed: How many cells have the failure of the other row's, which never came to what differs.
        node_runs: How many node runs the cells of the other row took from there on.
    """

    pending: list[str] = field(default_factory=list)
    failed: int = 0
    node_runs: int = 0


def insert_added_row(database: Database, sweep: SweepRow, new: NewRow) -> Begun:
    """Add a row to a sweep with its cells, in one transaction: whole, or not at all.

    A cell goes on from the checkpoint at which the same case of the base first came to a node that differs. Where it
    never did, since its way led elsewhere, it goes on from its end, and nothing runs; where it had failed before, the
    new cell has failed alike, and `wtb retry` tries both again.

    Args:
        database: Where the sweep is.
        sweep: Its row, as the new row was checked against it.
        new: The row.

    Returns:
        What has begun.

    Raises:
        ConflictError: If the sweep is cancelled, changed meanwhile or has open cells in the base, or its session is
            archived.
    """
    addition = new.addition
    with database.write(long=True) as connection:
        session_to_submit_to(connection, sweep.session)
        status = _locked(connection, sweep)
        begun = Begun()
        insert_rows(
            connection,
            combinations,
            [{"sweep_id": sweep.id, "number": addition.combination, "choices": dict(new.choices)}],
        )
        for part in parts(_in_order(connection, sweep, _base_cells(connection, sweep, addition.base)), CHUNK):
            _add_cells(connection, sweep, new, part, begun)
        _add_defaults(connection, sweep.id, new.defaults)
        _change_look(connection, sweep.id, new)
        count = len(begun.pending) + begun.failed
        spec = {**new.spec, KEY: [*sweep.spec.get(KEY, ()), addition.document()]}
        grown = sweeps.update().values(spec=spec, fingerprints=dict(new.fingerprints), cells=sweeps.c.cells + count)
        connection.execute(grown.where(sweeps.c.id == sweep.id))
        data: dict[str, Json] = {
            "combination": {**new.choices},
            "cells": count,
            "from": addition.execution,
            "case": addition.case,
            "by": addition.by,
            "reason": addition.reason,
        }
        add_event(connection, of_sweep(sweep), "sweep.row_added", data)
        if sweep.queued and status in ("completed", "failed"):
            try_move(connection, sweep.id, "running", reason="a row was added", by=addition.by)
        point("submit.written")
    return begun


def _locked(connection: sa.Connection, sweep: SweepRow) -> str:
    """The status of a sweep, locked, if it is as it was read."""
    query = sa.select(sweeps.c.status, sweeps.c.spec, sweeps.c.cells).where(sweeps.c.id == sweep.id)
    row = connection.execute(query.with_for_update()).one_or_none()
    if row is None:
        raise StoreError(f"sweep {sweep.id} is gone: it was deleted")
    if row.status == "cancelled":
        raise ConflictError(f"sweep {sweep.name} ({sweep.id}) is cancelled for good: nothing of it runs any more")
    if (row.spec, row.cells) != (sweep.spec, sweep.cells):
        raise ConflictError(f"sweep {sweep.id} was changed by somebody else just now: try again")
    return str(row.status)


def _base_cells(connection: sa.Connection, sweep: SweepRow, base: int) -> list[_BaseCell]:
    """The cells of the combination that a row is made from, each with the execution of its outcome."""
    query = (
        sa.select(
            *(cells.c[name] for name in ("case_number", "repeat", "status", "failure")),
            *(cells.c[name] for name in ("elapsed_s", "usd", "tokens_in", "tokens_out", "node_runs")),
            executions.c.head_id,
            executions.c.edited,
        )
        .outerjoin(executions, executions.c.id == cells.c.execution_id)
        .where(cells.c.sweep_id == sweep.id, cells.c.combination == base)
    )
    found = fetch_records(connection, _BaseCell, query)
    if still := sum(row.status not in FINAL_CELLS for row in found):
        many = "1 cell" if still == 1 else f"{still:,} cells"
        raise ConflictError(
            f"{many} of the combination that the row is made from {'has' if still == 1 else 'have'} no outcome yet, so "
            f"nobody knows where the row would begin: wait for the end of sweep {sweep.id}, or `wtb resume` it"
        )
    return found


def _in_order(connection: sa.Connection, sweep: SweepRow, found: list[_BaseCell]) -> list[_BaseCell]:
    """Cells in the order in which the cases of the sweep begin, which is that of the ids of what runs."""
    query = (
        sa.select(cases.c.number, cases.c.cluster).where(cases.c.sweep_id == sweep.id, is_kept).order_by(cases.c.number)
    )
    rows = connection.execute(query).all()
    order = case_order([row.cluster for row in rows], sweep.spec.get("seed", 0))
    places = {rows[index].number: place for place, index in enumerate(order)}
    return sorted(found, key=lambda row: (places[row.case_number], row.repeat))


def _add_cells(
    connection: sa.Connection, sweep: SweepRow, new: NewRow, part: Sequence[_BaseCell], begun: Begun
) -> None:
    ids, at = new_ids(len(part)), clock(connection)
    lines = marks(connection, (row.head_id for row in part))
    by_people = edits(connection, lines.values())
    number, changed = new.addition.combination, frozenset(new.addition.changed)
    rows: list[NewExecution] = []
    of_cells: list[NewCell] = []
    for place, base in enumerate(part):
        way = line(lines, base.head_id)
        _check_whole(way, base, sweep)
        start = next((index for index, mark in enumerate(way) if changed.intersection(mark.position["next"])), None)
        if start is None and base.status != "succeeded":
            ended = _failed_alike(base, at)
            begun.failed += 1
        else:
            # From its end where its way led elsewhere: what a person changed further on was typed for the other row.
            before, after = (way, []) if start is None else (way[: start + 1], way[start + 1 :])
            ended = _pending(before, new, edited=any(mark.id in by_people for mark in before))
            begun.pending.append(ids[place])
            begun.node_runs += _count_node_runs(after, changed)
        rows.append(
            {
                "id": ids[place],
                "session_id": sweep.session_id,
                "sweep_id": sweep.id,
                "origin": "fork",
                "case_number": base.case_number,
                "repeat": base.repeat,
                "combinations": [number],
                "created_at": at,
                **ended.execution,
            }
        )
        of_cells.append(
            {
                "sweep_id": sweep.id,
                "case_number": base.case_number,
                "repeat": base.repeat,
                "combination": number,
                "execution_id": ids[place],
                **ended.cell,
            }
        )
    insert_rows(connection, executions, rows)
    insert_rows(connection, cells, of_cells)


def _failed_alike(base: _BaseCell, at: float) -> _Continued:
    """An execution and a cell that ended as those of the base did, before they came to what differs."""
    return _Continued(
        {
            "status": _ENDED[base.status],
            "head_id": base.head_id,
            "queue": None,
            "edited": bool(base.edited),
            "failure": base.failure,
            "finished_at": at,
        },
        {
            "status": base.status,
            "elapsed_s": base.elapsed_s,
            "usd": base.usd,
            "tokens_in": base.tokens_in,
            "tokens_out": base.tokens_out,
            "node_runs": base.node_runs,
            "failure": base.failure,
            "edited": bool(base.edited),
            "finished_at": at,
        },
    )


def _pending(before: Sequence[Mark], new: NewRow, *, edited: bool) -> _Continued:
    """An execution and a cell that go on from the end of a line."""
    head = before[-1]
    return _Continued(
        {
            "status": "pending",
            "head_id": head.id,
            "queue": new.queue_for(head.position["next"]),
            "edited": edited,
            "failure": None,
            "finished_at": None,
        },
        {
            "status": "pending",
            "elapsed_s": None,
            "usd": None,
            "tokens_in": None,
            "tokens_out": None,
            "node_runs": None,
            "failure": None,
            "edited": edited,
            "finished_at": None,
        },
    )


def _check_whole(way: Sequence[Mark], base: _BaseCell, sweep: SweepRow) -> None:
    """Refuse a line whose beginning was collected: where it came to what differs is not known any more."""
    if base.head_id is not None and (not way or way[0].parent_id is not None):
        raise ConflictError(f"checkpoints of sweep {sweep.id} are gone, where the row would begin: run it again")


def _count_node_runs(way: Sequence[Mark], changed: frozenset[str]) -> int:
    """The node runs on a line, but for those beside what differs in its first step: they are shared."""
    steps = [mark.writers for mark in way if mark.writers]
    first = [writer for writer in steps[0] if writer[0] in changed] if steps else []
    return len(first) + sum(map(len, steps[1:]))


def _change_look(connection: sa.Connection, sweep_id: str, new: NewRow) -> None:
    query = sa.select(combinations.c.choices).where(combinations.c.sweep_id == sweep_id)
    choices = list(connection.scalars(query.order_by(combinations.c.number)))
    change_keys(connection, sweep_id, look_keys(choices, new.spec, new.fingerprints))


def _add_defaults(connection: sa.Connection, sweep_id: str, defaults: Mapping[str, str]) -> None:
    """Have every row name its variant of the nodes that the new one is the first to vary."""
    if not defaults:
        return
    query = sa.select(combinations.c.number, combinations.c.choices).where(combinations.c.sweep_id == sweep_id)
    rows = [
        {"sweep_id": sweep_id, "number": number, "choices": {**defaults, **choices}}
        for number, choices in connection.execute(query)
    ]
    update_rows(connection, combinations, rows, ("sweep_id", "number"))
