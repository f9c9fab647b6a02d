"""Adds combinations, cases and repeats to a sweep. All extensions go through this module.

An extension is one transaction, so that nobody sees a part of it, and a killed process leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

import sqlalchemy as sa

from wtb.core.errors import ConflictError, StoreError
from wtb.core.fault_points import point
from wtb.core.frozen import frozen
from wtb.core.ids import new_ids
from wtb.core.status import OPEN_EXECUTIONS
from wtb.core.tree.run_order import case_order
from wtb.core.tree.stored_spec import EXTENSIONS, StoredExtension, StoredSpec, first_cases
from wtb.core.values import Json
from wtb.store.access.sessions import session_to_submit_to
from wtb.store.bulk import insert_rows, parts, update_rows
from wtb.store.control.fork_points import ForkPoints, NewRow, Pair, Start
from wtb.store.control.row_cells import Begun, QueueFor, RowCells
from wtb.store.database import Database
from wtb.store.database_url import was_deadlock
from wtb.store.housekeeping.retention import extend_look, has_scores, look_keys
from wtb.store.log import add_event, of_sweep
from wtb.store.runs.leases import try_move
from wtb.store.runs.submission import Batch, NewCase, Roots, cells_of
from wtb.store.runs.submit import insert_batch
from wtb.store.tables.schema import cases, combinations, executions, is_kept, sweeps
from wtb.store.tables.sweeps import SweepRow
from wtb.store.transactions import clock

STOPPED = "its combination was stopped"  # the reason for which a new cell of it is skipped

CHUNK = 1_000  # cells whose lines of checkpoints are in memory at once


@frozen
class Extension:
    """An extension of a sweep, checked against the sweep as it was read.

    Attributes:
        spec: The stored spec of the sweep from now on, without the record of the extension.
        fingerprints: Those of the sweep from now on.
        queue_for: Returns the queue of a step with these nodes; with None, that of the first step.
        queues: The queues of nodes that name one, by node.
        event: The data of the event, except the number of cells.
        by: The person who adds it.
        rows: Combinations; their cells begin where they differ from others.
        defaults: Variants of nodes that were not varied before, which all other rows have.
        repeats: The number of repeats from now on; None to leave it.
        cases: Cases; their cells begin with them.
        clusters: The new clusters of existing cases, by the number of the case, if a new case has the same input.
        record: The record of the extension in the sweep; None if its spec has it already.
        strict: See `ForkPoints`.
        publish: Makes a copy that is extended visible, in the same transaction.
    """

    spec: StoredSpec
    fingerprints: Mapping[str, Mapping[str, str]]
    queue_for: QueueFor
    event: Mapping[str, Json]
    by: str
    rows: Sequence[NewRow] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    repeats: int | None = None
    cases: Sequence[NewCase] = ()
    clusters: Mapping[int, str] = field(default_factory=dict)
    record: StoredExtension | None = None
    strict: bool = False
    queues: Mapping[str, str] = field(default_factory=dict)
    publish: Callable[[sa.Connection], None] | None = None


def insert_extension(database: Database, sweep: SweepRow, new: Extension) -> Begun:
    """Add cells to a sweep, in one transaction.

    A cell of a new combination continues from the checkpoint at which the same case of another combination first
    reached a node that differs. If that case never reached one, because its way led elsewhere, the new cell continues
    from its end, and nothing runs. If it had failed before, the new cell has failed alike, and `wtb retry` tries both
    again. If a runner has yet to come there, the new cell is deferred, and `begin_deferred` begins it. Cells of new
    cases and repeats begin with their case, and share what their combinations have in common.

    Args:
        database: The database of the sweep.
        sweep: Its row, as the extension was checked against it.
        new: The extension.

    Returns:
        The cells and executions that have begun.

    Raises:
        ConflictError: If the sweep is cancelled, changed meanwhile or has open cells in the way, or its session is
            archived.
    """
    try:
        return _insert_all(database, sweep, new)
    except StoreError as error:
        if not was_deadlock(error):
            raise
    return _insert_all(database, sweep, new)  # runners have gone on meanwhile


def _insert_all(database: Database, sweep: SweepRow, new: Extension) -> Begun:
    with database.write(long=True) as connection:
        session_to_submit_to(connection, sweep.session)
        if new.publish is not None:
            new.publish(connection)
        # Only new combinations join running executions. Cases and repeats bring executions of their own.
        if new.rows:
            _lock_open(connection, sweep.id)
        status = _locked(connection, sweep)
        counts = _insert(connection, sweep, new)
        _finish(connection, sweep, new, counts)
        if sweep.queued and status in ("completed", "failed") and counts.pending:
            reason = "a row was added" if new.record is None else "it was extended"
            try_move(connection, sweep.id, "running", reason=reason, by=new.by)
        point("submit.written")
    return counts


def _lock_open(connection: sa.Connection, sweep_id: str) -> None:
    """Lock the executions that cells may join, before their sweep, as claims and flushes do."""
    query = sa.select(executions.c.id).where(
        executions.c.sweep_id == sweep_id, executions.c.status.in_(OPEN_EXECUTIONS)
    )
    connection.execute(query.order_by(executions.c.id).with_for_update())


def _locked(connection: sa.Connection, sweep: SweepRow) -> str:
    """Return the status of a sweep and lock it. Raises an error if it is not as it was read."""
    query = sa.select(sweeps.c.status, sweeps.c.spec, sweeps.c.cells).where(sweeps.c.id == sweep.id)
    row = connection.execute(query.with_for_update()).one_or_none()
    if row is None:
        raise StoreError(f"sweep {sweep.id} was deleted")
    if row.status == "cancelled":
        raise ConflictError(f"sweep {sweep.name} ({sweep.id}) is cancelled: none of its cells runs again")
    # The extension was planned from that spec and number of cells, so after another extension it may be wrong.
    if (row.spec, row.cells) != (sweep.spec, sweep.cells):
        raise ConflictError(f"sweep {sweep.id} was changed by another process just now; try again")
    return str(row.status)


def _insert(connection: sa.Connection, sweep: SweepRow, new: Extension) -> Begun:
    """Write all rows except that of the sweep."""
    counts = Begun()
    rows = connection.execute(
        sa.select(combinations.c.number, combinations.c.stopped)
        .where(combinations.c.sweep_id == sweep.id)
        .order_by(combinations.c.number)
    ).all()
    added = [
        {"sweep_id": sweep.id, "number": len(rows) + place, "choices": dict(row.choices)}
        for place, row in enumerate(new.rows)
    ]
    insert_rows(connection, combinations, added)
    _add_defaults(connection, sweep.id, new.defaults, [row.number for row in rows])
    if new.rows:
        _add_rows(connection, sweep, new, len(rows), counts)
    # Numbers follow the existing ones without gaps, because a stopped combination keeps its row.
    stopped = [row.number for row in rows if row.stopped is not None]
    active = [number for number in range(len(rows) + len(added)) if number not in stopped]
    _add_roots(connection, sweep, new, _Numbers(active, stopped), counts)
    return counts


def _finish(connection: sa.Connection, sweep: SweepRow, new: Extension, counts: Begun) -> None:
    """Write the sweep, its look and the event."""
    seen = has_scores(connection, sweep.id)
    spec = new.spec.copy()
    if new.record is not None:
        first = _next_case(connection, sweep.id) - len(new.cases)
        record: StoredExtension = {**new.record, "cells": counts.cells, "seen": seen, "at": clock(connection)}
        record["first_case"] = first
        spec[EXTENSIONS] = [*spec.get(EXTENSIONS, ()), record]
    # Read after the rows are written: the look has the combinations of the extended sweep.
    query = sa.select(combinations.c.choices).where(combinations.c.sweep_id == sweep.id)
    choices = list(connection.scalars(query.order_by(combinations.c.number)))
    is_look = new.record is not None and seen
    extend_look(connection, sweep.id, look_keys(choices, spec, new.fingerprints), seen=is_look)
    grown = sweeps.update().values(spec=spec, fingerprints=dict(new.fingerprints), cells=sweeps.c.cells + counts.cells)
    connection.execute(grown.where(sweeps.c.id == sweep.id))
    kind = "sweep.row_added" if new.record is None else "sweep.extended"
    add_event(connection, of_sweep(sweep), kind, {**new.event, "cells": counts.cells})


def _add_rows(connection: sa.Connection, sweep: SweepRow, new: Extension, first: int, counts: Begun) -> None:
    """Add the cells of new combinations for the existing cases and repeats."""
    numbers = [first + place for place in range(len(new.rows))]
    share = sweep.spec["run"]["share"] or new.strict
    points = ForkPoints(connection, sweep, new.rows, strict=new.strict)
    for part in parts(_in_order(connection, sweep, points.pairs()), max(1, CHUNK // len(numbers))):
        # Without sharing each cell begins with its case, whatever others have done.
        starts = points.starts(part) if share else [[Start()] * len(numbers)] * len(part)
        builder = RowCells(connection, sweep, new.queue_for, counts, share=share, queues=new.queues)
        for pair, of_pair in zip(part, starts, strict=True):
            builder.add(pair, numbers, of_pair)
        builder.write()


def _in_order(connection: sa.Connection, sweep: SweepRow, pairs: Iterable[Pair]) -> list[Pair]:
    """Return cases and repeats in the order in which the cases of the sweep begin, which is that of their
    executions' ids.
    """
    query = sa.select(cases.c.number, cases.c.cluster).where(cases.c.sweep_id == sweep.id, is_kept)
    rows = connection.execute(query.order_by(cases.c.number)).all()
    firsts = [sum(row.number < first for row in rows) for first in first_cases(sweep.spec)]
    order = case_order([row.cluster for row in rows], sweep.spec.get("seed", 0), firsts)
    places = {rows[index].number: place for place, index in enumerate(order)}
    return sorted((pair for pair in pairs if pair[0] in places), key=lambda pair: (places[pair[0]], pair[1]))


@frozen
class _Numbers:
    """The numbers of combinations that new cases and repeats run, and of stopped combinations."""

    active: Sequence[int]
    stopped: Sequence[int]


def _add_roots(connection: sa.Connection, sweep: SweepRow, new: Extension, numbers: _Numbers, counts: Begun) -> None:
    """Add the cells of new repeats of existing cases, and of new cases."""
    before, after = sweep.spec["repeats"], new.repeats or sweep.spec["repeats"]
    if after == before and not new.cases:
        return
    seed, share = sweep.spec.get("seed", 0), sweep.spec["run"]["share"]
    queue = new.queue_for(None)
    running = Roots(sweep.id, sweep.session_id, numbers.active, share, seed, queue)
    skipped = Roots(sweep.id, sweep.session_id, numbers.stopped, share, seed, queue)
    first = _next_case(connection, sweep.id)
    at, batch = clock(connection), Batch()
    for number, case, repeats in _begin(connection, sweep, new, first, range(before, after), range(after)):
        if isinstance(case, NewCase):
            batch.add_case(sweep.id, number, case)
        name = case.id if isinstance(case, NewCase) else case
        for roots, status in ((running, "pending"), (skipped, "skipped")):
            if not roots.combinations:
                continue
            ids = iter(new_ids(len(repeats) * (1 if share else len(roots.combinations))))
            for root in roots.of_case(number, name, repeats, ids):
                row, more = dict(root), list(cells_of(root, status))
                if status == "skipped":
                    # New cells of a stopped combination exist as skipped, so that the
                    # matrix has no holes and a restart finds them.
                    row |= {"status": "cancelled", "reason": STOPPED, "finished_at": at}
                    more = [{**cell, "finished_at": at} for cell in more]
                else:
                    counts.pending.append(root["id"])
                    row |= {"finished_at": None}
                    more = [{**cell, "finished_at": None} for cell in more]
                batch.executions.append(row)  # type: ignore[arg-type]
                batch.cells += more
                counts.cells += len(more)
        if batch.is_full:
            insert_batch(connection, sweep.session_id, batch)
            batch = Batch()
    insert_batch(connection, sweep.session_id, batch)
    for number, cluster in new.clusters.items():
        this = (cases.c.sweep_id == sweep.id, cases.c.number == number)
        connection.execute(cases.update().where(*this).values(cluster=cluster))


def _next_case(connection: sa.Connection, sweep_id: str) -> int:
    """Return the number of the next case of a sweep."""
    last = connection.scalar(sa.select(sa.func.max(cases.c.number)).where(cases.c.sweep_id == sweep_id))
    return 0 if last is None else int(last) + 1


def _begin(
    connection: sa.Connection, sweep: SweepRow, new: Extension, first: int, added: Sequence[int], every: Sequence[int]
) -> Iterator[tuple[int, NewCase | str, Sequence[int]]]:
    """Yield each case that begins, as (number, the case or the id of an existing one, repeats), in the order of
    their start.
    """
    if added:
        query = sa.select(cases.c.number, cases.c.id).where(cases.c.sweep_id == sweep.id, is_kept)
        names = {row.number: row.id for row in connection.execute(query)}
        for number, _ in _in_order(connection, sweep, [(number, 0) for number in names]):
            yield number, names[number], added
    order = case_order([case.cluster for case in new.cases], sweep.spec.get("seed", 0))
    for place in order:
        yield first + place, new.cases[place], every


def _add_defaults(
    connection: sa.Connection, sweep_id: str, defaults: Mapping[str, str], numbers: Sequence[int]
) -> None:
    """Write the default variant of newly varied nodes into existing rows."""
    if not defaults:
        return
    query = sa.select(combinations.c.number, combinations.c.choices).where(
        combinations.c.sweep_id == sweep_id, combinations.c.number.in_(list(numbers))
    )
    rows = [
        {"sweep_id": sweep_id, "number": number, "choices": {**defaults, **choices}}
        for number, choices in connection.execute(query)
    ]
    update_rows(connection, combinations, rows, ("sweep_id", "number"))
