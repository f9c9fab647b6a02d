"""Submission of a sweep: all of it is written, or nothing is visible.

A sweep becomes visible with the last of its batches. If the submitting process is killed before that, its rows stay
invisible, and `remove_hidden` removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import sqlalchemy as sa

from wtb.core.errors import ConflictError, StoreError
from wtb.core.fault_points import point
from wtb.core.ids import new_id, short_id
from wtb.core.tree.looks import CaseSketch, case_digest
from wtb.core.tree.stored_spec import EXTENSIONS, KEY
from wtb.core.values import Json
from wtb.store.access.projects import choose_project, project_to_submit_to, scope_of
from wtb.store.access.sessions import session_of_submission, session_to_submit_to
from wtb.store.bulk import fetch_records, insert_missing, insert_rows, insert_values, parts
from wtb.store.control.edits import make_root
from wtb.store.database import Database
from wtb.store.housekeeping.contents import add_files
from wtb.store.housekeeping.deletion import discard_submission
from wtb.store.housekeeping.retention import insert_look, look_keys
from wtb.store.log import add_event, add_execution_event, subject
from wtb.store.read import queries
from wtb.store.runs.submission import Batch, NewCase, NewSweep, batches
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import cases, cells, combinations, executions, is_kept, metrics, now, sweeps, workflows
from wtb.store.tables.sweeps import CaseRow, SessionRow, SweepRow

Also = Callable[[sa.Connection, str], None]

LONGEST = 190  # of a sweep's name, so that its repeat's is one, too


def submit(database: Database, sweep: NewSweep, new_cases: Iterable[NewCase], also: Also | None = None) -> None:
    """Insert a sweep with its cases, combinations, cells and root executions.

    It is written in batches, each a transaction of its own, so that nobody waits for a large one: readers of the log
    wait for all transactions that are running. Nobody sees anything of it before the last one.

    Args:
        database: The database.
        sweep: The sweep.
        new_cases: Its cases. They are read between two batches, so memory does not grow with them.
        also: Writes more in the transaction of the last batch, given the sweep's id. If it raises, nothing is left.

    Raises:
        InputError: For an unknown session.
        ConflictError: For an archived session, or if it was taken for given up: nothing was written for ten minutes.
    """
    owner = _prepare(database, sweep)
    session = owner.id
    has_begun, sketch = False, CaseSketch()
    try:
        for batch, is_last in batches(sweep, session, new_cases):
            for case in batch.cases:
                sketch.add(case_digest(case["input"], case["expected"], case["workspace"]))
            with database.write() as connection:
                if has_begun:
                    _renew(connection, sweep)
                else:
                    _insert_sweep(connection, sweep, session)
                insert_batch(connection, session, batch)
                if is_last:
                    _add_look(connection, sweep, owner, sketch)
                    _publish(connection, sweep, session, also)
            has_begun = True
            if not is_last:
                point("submit.batch")
    except BaseException:
        if has_begun:
            with suppress(StoreError):  # what is out of reach now, the scheduler or a garbage collection removes
                discard_submission(database, sweep.id)
        raise
    point("submit.committed")


def project_of_submission(database: Database, session: str, project: str | None) -> str:
    """Return the project that a sweep would belong to.

    Args:
        database: The database of the sweep.
        session: The name of its session.
        project: The project that it names, if any.

    Raises:
        InputError: As `submit` does, for its session and project.
        ConflictError: If its session takes no sweeps.
    """
    with database.read() as connection:
        return choose_project(project, session_to_submit_to(connection, session, project).project)


def _prepare(database: Database, sweep: NewSweep) -> SessionRow:
    """Store the graph of a workflow, once for all its sweeps, in a transaction of its own, so that nobody waits for a
    batch.

    Returns the session. Raises as `submit` does.
    """
    with database.write() as connection:
        session = session_to_submit_to(connection, sweep.session, sweep.project)
        row = {"id": sweep.graph_id, "name": sweep.graph["name"], "version": sweep.graph["version"]}
        insert_missing(connection, workflows, [{**row, "graph": sweep.graph}])
        return session


def _insert_sweep(connection: sa.Connection, sweep: NewSweep, session: str) -> None:
    owner = session_of_submission(connection, session)
    same = ("id", "name", "cells", "queued", "priority", "kind")
    row = {name: getattr(sweep, name) for name in same}
    row |= {"project": project_to_submit_to(connection, sweep.project, owner.project)}
    row |= {"token": scope_of(connection).token}
    row |= {"session_id": owner.id, "workflow_id": sweep.graph_id, "status": "submitting", "spec": dict(sweep.spec)}
    row |= {"fingerprints": dict(sweep.fingerprints), "breakpoints": list(sweep.breakpoints) or None}
    row |= {"notify": None if sweep.notify is None else list(sweep.notify)}
    insert_rows(connection, sweeps, [row])
    rows = [
        {"sweep_id": sweep.id, "name": name, "number": number, "better": better}
        for number, (name, better) in enumerate(sweep.metrics)
    ]
    insert_rows(connection, metrics, rows)


def insert_batch(connection: sa.Connection, session: str, batch: Batch) -> None:
    """Write the rows of a batch for a session, by its id."""
    insert_rows(connection, combinations, batch.combinations)
    # Sorted, so that two submissions or flushes of the same values never wait for each other in a circle.
    insert_values(connection, sorted(batch.values.items()))
    add_files(connection, session, batch.files)
    insert_rows(connection, cases, batch.cases)
    insert_rows(connection, executions, batch.executions)
    insert_rows(connection, cells, batch.cells)


def _renew(connection: sa.Connection, sweep: NewSweep) -> None:
    """Mark a submission as alive. Raises ConflictError if the sweep was removed because nothing was written for too
    long.
    """
    _change(connection, sweep, created_at=now())


def _publish(connection: sa.Connection, sweep: NewSweep, session: str, also: Also | None) -> None:
    """Make a sweep visible whose rows are all written."""
    session_of_submission(connection, session)
    details: dict[str, Json] = {"name": sweep.name, "cells": sweep.cells, "combinations": len(sweep.choices)}
    add_event(connection, subject(session, sweep.id), "sweep.submitted", details)
    if sweep.starts_at is not None:
        _start_at(connection, sweep.id, sweep.starts_at)
    if also is not None:
        also(connection, sweep.id)
    # The last statement before the commit, so that it is the time of the commit.
    _change(connection, sweep, status="pending", created_at=now(), started_at=now())
    point("submit.written")


def _add_look(connection: sa.Connection, sweep: NewSweep, session: SessionRow, sketch: CaseSketch) -> None:
    """Record a sweep as a look at its cases, which still counts after it is deleted."""
    if sweep.kind != "sweep":
        return
    keys = look_keys(sweep.choices, sweep.spec, sweep.fingerprints)
    owner = {"sweep_id": sweep.id, "session_id": session.id, "workflow": sweep.graph["name"]}
    owner["project"] = project_to_submit_to(connection, sweep.project, session.project)
    insert_look(connection, owner, sweep.spec, keys, sketch)


def _change(connection: sa.Connection, sweep: NewSweep, **changed: Any) -> None:
    query = sweeps.update().where(sweeps.c.id == sweep.id, sweeps.c.status == "submitting").values(changed)
    if not connection.execute(query).rowcount:
        raise ConflictError(
            f"sweep {sweep.name!r}: nothing of it was written for so long that its submission was discarded, or its "
            f"session was deleted meanwhile; nothing was submitted"
        )


def _start_at(connection: sa.Connection, sweep_id: str, node: str) -> None:
    """Start a single execution at a node, with the input as its state."""
    (row,) = fetch_records(connection, ExecutionRow, sa.select(executions).where(executions.c.sweep_id == sweep_id))
    head = make_root(connection, row, [node])
    connection.execute(executions.update().where(executions.c.id == row.id).values(head_id=head))
    add_execution_event(connection, row, "execution.started", case="input", repeat=0, **{"from": node})


def next_id(connection: sa.Connection, sweep_id: str) -> str:
    """Return the id of another execution of the same cells, within a transaction that has locked their sweep.

    The id of a single execution is extended by a number, so that people still recognise it.
    """
    if connection.scalar(sa.select(sweeps.c.kind).where(sweeps.c.id == sweep_id)) != "single":
        return new_id()
    before = sa.select(sa.func.count()).where(executions.c.sweep_id == sweep_id, executions.c.choices.is_(None))
    return f"{sweep_id}-{(connection.scalar(before) or 0) + 1}"


def submit_again(database: Database, sweep: SweepRow) -> str:
    """Submit the same cases, combinations and settings as a new sweep, which is called NAME-repeat.

    None of the results are taken over: they are shared within a sweep only.

    Args:
        database: The database.
        sweep: Its row, from `find_sweep`.

    Returns:
        The id of the new sweep.
    """
    choices = queries.choices(database, sweep.id)
    spec = sweep.spec.copy()
    spec.pop(EXTENSIONS, None)  # of a new sweep all of it is planned
    spec.pop("copied_from", None)
    if KEY in spec:  # rows that were added stay exploratory, and nothing of the new sweep has ended
        spec[KEY] = [{**added_row, "final": False} for added_row in spec[KEY]]
    query = sa.select(cases).where(cases.c.sweep_id == sweep.id, is_kept).order_by(cases.c.number)
    rows = database.records(CaseRow, query)
    clusters = [row.cluster for row in rows]
    new = NewSweep(
        id=short_id(),
        name=f"{sweep.name[:LONGEST]}-repeat",
        session=sweep.session,
        project=sweep.project,
        spec=spec,
        graph_id=sweep.workflow_id,
        graph=queries.workflow_graph(database, sweep.workflow_id),
        fingerprints=sweep.fingerprints,
        choices=choices,
        repeats=sweep.spec["repeats"],
        share=sweep.spec["run"]["share"],
        cells=sweep.cells,
        clusters=clusters if any(clusters) else (),
    )
    submit(database, new, _stored_cases(database, rows))
    return new.id


def _stored_cases(database: Database, rows: Sequence[CaseRow]) -> Iterator[NewCase]:
    # The inputs of a sweep may be larger than memory, so they are loaded in parts.
    for part in parts(rows, 500):  # so many inputs are in memory at once
        inputs = queries.load_values(database, (digest for row in part for digest in row.input.values()))
        for row in part:
            yield NewCase(
                row.id,
                {name: inputs[digest] for name, digest in row.input.items()},
                None if row.expected is None else row.expected.encode(),
                row.tags,
                row.workspace,
                cluster=row.cluster,
            )
