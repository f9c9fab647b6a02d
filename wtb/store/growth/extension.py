"""Adding cells to a sweep that is there: combinations, cases and repeats. The one place where that happens.

All of it is one transaction, so that nobody sees a part of it, and whoever is killed in between leaves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError, StoreError
from wtb.core.fault_points import point
from wtb.core.ids import new_ids
from wtb.core.status import OPEN_EXECUTIONS
from wtb.core.tree.extensions import EXTENSIONS, first_cases
from wtb.core.tree.run_order import case_order
from wtb.core.tree.stored_spec import StoredExtension, StoredSpec
from wtb.core.values import Json
from wtb.store.bulk import insert_rows, insert_values, parts, update_rows
from wtb.store.database import Database
from wtb.store.database_errors import was_deadlock
from wtb.store.events import add_event, of_sweep
from wtb.store.growth.fork_points import ForkPoints, NewRow, Pair, Start
from wtb.store.growth.row_cells import Begun, QueueFor, RowCells
from wtb.store.housekeeping.files import add_files
from wtb.store.housekeeping.looks import extend_look, has_scores, look_keys
from wtb.store.limits.sessions import session_to_submit_to
from wtb.store.runs.leases import try_move
from wtb.store.runs.submission import Batch, NewCase, Roots, cells_of
from wtb.store.tables.schema import cases, cells, combinations, executions, is_kept, sweeps
from wtb.store.tables.sweeps import SweepRow
from wtb.store.transactions import clock

STOPPED = "its combination was stopped"  # why a new cell of it is skipped

CHUNK = 1_000  # cells whose lines are read at once


@frozen
class Extension:
    """What is added to a sweep, checked against it as it was read.

    Attributes:
        spec: The stored spec of the sweep from now on, without the record of the extension.
        fingerprints: Those of the sweep from now on.
        queue_for: The queue that a step with these nodes asks for; with None, that the first step asks for.
        queues: Node -> its queue, of nodes that name one.
        event: The data of the event, but for the number of cells.
        by: Who adds it.
        rows: Combinations; their cells begin where they differ from others.
        defaults: Variants of nodes that were not varied before, which all other rows have.
        repeats: How many repeats it has from now on; None for as many as it had.
        cases: Cases; their cells begin with them.
        clusters: By the number of a case that is there, the cluster that it gets, since a new one has its input.
        record: What the sweep records of it; None if its spec has it already.
        strict: See `ForkPoints`.
        publish: Has a copy that is extended be there, in the same transaction.
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
    """Add cells to a sweep, in one transaction: whole, or not at all.

    A cell of a new combination goes on from the checkpoint at which the same case of another one first came to a node
    that differs. Where it never did, since its way led elsewhere, it goes on from its end, and nothing runs; where it
    had failed before, the new cell has failed alike, and `wtb retry` tries both again. Where a runner has yet to come
    there, the new cell is deferred, and `begin_deferred` begins it. Cells of new cases and repeats begin with their
    case, and share what their combinations have in common.

    Args:
        database: Where the sweep is.
        sweep: Its row, as the extension was checked against it.
        new: The extension.

    Returns:
        What has begun.

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
        if new.rows:
            _lock_open(connection, sweep.id)
        status = _locked(connection, sweep)
        begun = _insert(connection, sweep, new)
        _finish(connection, sweep, new, begun)
        if sweep.queued and status in ("completed", "failed") and begun.pending:
            reason = "a row was added" if new.record is None else "it was extended"
            try_move(connection, sweep.id, "running", reason=reason, by=new.by)
        point("submit.written")
    return begun


def _lock_open(connection: sa.Connection, sweep_id: str) -> None:
    """Lock the executions that cells may join, before their sweep, as claims and flushes do."""
    query = sa.select(executions.c.id).where(
        executions.c.sweep_id == sweep_id, executions.c.status.in_(OPEN_EXECUTIONS)
    )
    connection.execute(query.order_by(executions.c.id).with_for_update())


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


def _insert(connection: sa.Connection, sweep: SweepRow, new: Extension) -> Begun:
    """Write all rows but that of the sweep."""
    begun = Begun()
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
        _add_rows(connection, sweep, new, len(rows), begun)
    stopped = [row.number for row in rows if row.stopped is not None]
    active = [number for number in range(len(rows) + len(added)) if number not in stopped]
    _add_roots(connection, sweep, new, _Numbers(active, stopped), begun)
    return begun


def _finish(connection: sa.Connection, sweep: SweepRow, new: Extension, begun: Begun) -> None:
    """Write the sweep, its look and the event."""
    seen = has_scores(connection, sweep.id)
    spec = new.spec.copy()
    if new.record is not None:
        first = _next_case(connection, sweep.id) - len(new.cases)
        record: StoredExtension = {**new.record, "cells": begun.cells, "seen": seen, "at": clock(connection)}
        record["first_case"] = first
        spec[EXTENSIONS] = [*spec.get(EXTENSIONS, ()), record]
    query = sa.select(combinations.c.choices).where(combinations.c.sweep_id == sweep.id)
    choices = list(connection.scalars(query.order_by(combinations.c.number)))
    is_look = new.record is not None and seen
    extend_look(connection, sweep.id, look_keys(choices, spec, new.fingerprints), seen=is_look)
    grown = sweeps.update().values(spec=spec, fingerprints=dict(new.fingerprints), cells=sweeps.c.cells + begun.cells)
    connection.execute(grown.where(sweeps.c.id == sweep.id))
    kind = "sweep.row_added" if new.record is None else "sweep.extended"
    add_event(connection, of_sweep(sweep), kind, {**new.event, "cells": begun.cells})


def _add_rows(connection: sa.Connection, sweep: SweepRow, new: Extension, first: int, begun: Begun) -> None:
    """Add the cells of new combinations for the cases and repeats that are there."""
    numbers = [first + place for place in range(len(new.rows))]
    share = sweep.spec["run"]["share"] or new.strict
    points = ForkPoints(connection, sweep, new.rows, strict=new.strict)
    for part in parts(_in_order(connection, sweep, points.pairs()), max(1, CHUNK // len(numbers))):
        starts = points.starts(part) if share else [[Start()] * len(numbers)] * len(part)
        builder = RowCells(connection, sweep, new.queue_for, begun, share=share, queues=new.queues)
        for pair, of_pair in zip(part, starts, strict=True):
            builder.add(pair, numbers, of_pair)
        builder.write()


def _in_order(connection: sa.Connection, sweep: SweepRow, pairs: Iterable[Pair]) -> list[Pair]:
    """Cases and repeats in the order in which the cases of the sweep begin, which is that of the ids of what runs."""
    query = sa.select(cases.c.number, cases.c.cluster).where(cases.c.sweep_id == sweep.id, is_kept)
    rows = connection.execute(query.order_by(cases.c.number)).all()
    firsts = [sum(row.number < first for row in rows) for first in first_cases(sweep.spec)]
    order = case_order([row.cluster for row in rows], sweep.spec.get("seed", 0), firsts)
    places = {rows[index].number: place for place, index in enumerate(order)}
    return sorted((pair for pair in pairs if pair[0] in places), key=lambda pair: (places[pair[0]], pair[1]))


@frozen
class _Numbers:
    """The numbers of combinations that new cases and repeats run, and of those that were stopped."""

    active: Sequence[int]
    stopped: Sequence[int]


def _add_roots(connection: sa.Connection, sweep: SweepRow, new: Extension, numbers: _Numbers, begun: Begun) -> None:
    """Add the cells of new repeats of the cases that are there, and of new cases."""
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
                    row |= {"status": "cancelled", "reason": STOPPED, "finished_at": at}
                    more = [{**cell, "finished_at": at} for cell in more]
                else:
                    begun.pending.append(root["id"])
                    row |= {"finished_at": None}
                    more = [{**cell, "finished_at": None} for cell in more]
                batch.executions.append(row)  # type: ignore[arg-type]
                batch.cells += more
                begun.cells += len(more)
        if batch.is_full:
            _write(connection, sweep, batch)
            batch = Batch()
    _write(connection, sweep, batch)
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
    """Yield each case that begins, as (number, the case or the id of one that is there, repeats), in their order."""
    if added:
        query = sa.select(cases.c.number, cases.c.id).where(cases.c.sweep_id == sweep.id, is_kept)
        names = {row.number: row.id for row in connection.execute(query)}
        for number, _ in _in_order(connection, sweep, [(number, 0) for number in names]):
            yield number, names[number], added
    order = case_order([case.cluster for case in new.cases], sweep.spec.get("seed", 0))
    for place in order:
        yield first + place, new.cases[place], every


def _write(connection: sa.Connection, sweep: SweepRow, batch: Batch) -> None:
    insert_values(connection, sorted(batch.values.items()))
    add_files(connection, sweep.session_id, batch.files)
    insert_rows(connection, cases, batch.cases)
    insert_rows(connection, executions, batch.executions)
    insert_rows(connection, cells, batch.cells)


def _add_defaults(
    connection: sa.Connection, sweep_id: str, defaults: Mapping[str, str], numbers: Sequence[int]
) -> None:
    """Have rows name their variant of the nodes that new ones are the first to vary."""
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
