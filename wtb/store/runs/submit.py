"""Putting a sweep into the database: whole, or not at all."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from wtb.core.fault_points import point
from wtb.core.ids import new_id, new_ids, short_id
from wtb.core.tree.added_rows import KEY
from wtb.core.tree.run_order import case_order, mixed
from wtb.core.tree.stored_spec import StoredSpec
from wtb.core.values import Values
from wtb.store.bulk import fetch_records, insert_missing, insert_rows, insert_values, parts
from wtb.store.control.edits import make_root
from wtb.store.database import Database
from wtb.store.events import add_event, add_execution_event, subject
from wtb.store.housekeeping.files import add_files
from wtb.store.limits.sessions import session_to_submit_to
from wtb.store.read import queries
from wtb.store.rows import ExecutionRow, SweepRow
from wtb.store.tables.schema import cases, cells, combinations, executions, metrics, now, sweeps, workflows

if TYPE_CHECKING:
    from wtb.config.webhooks import Target
    from wtb.core.documents.plan import WorkflowDocument

Also = Callable[[sa.Connection, str], None]

CHUNK = 1_000
LONGEST = 190  # of a sweep's name, so that its repeat's is one, too


@dataclass(frozen=True)
class NewSweep:
    """What is known of a sweep when it is submitted.

    queued: workers run it, those of the highest priority first. queue: of the nodes that come first. starts_at: of a
    single execution, the node that comes first where it is not the workflow's entry. clusters: that of each case, where
    any has one.
    """

    id: str
    name: str
    session: str
    project: str | None
    spec: StoredSpec
    graph_id: str
    graph: WorkflowDocument
    fingerprints: Mapping[str, Mapping[str, str]]
    choices: Sequence[Mapping[str, str]]
    repeats: int
    share: bool
    cells: int
    metrics: Sequence[tuple[str, str]] = ()
    queued: bool = False
    priority: int = 0
    queue: str | None = None
    notify: Sequence[Target] | None = None
    kind: str = "sweep"
    breakpoints: Sequence[str] = ()
    starts_at: str | None = None
    clusters: Sequence[str | None] = ()


@dataclass(frozen=True)
class NewCase:
    """A case ready to be stored: its input encoded by key, its files in a workspace snapshot.

    files: (digest, bytes) of what the snapshot holds.
    """

    id: str
    input: Values
    expected: bytes | None
    tags: Sequence[str] = ()
    workspace: str | None = None
    files: Sequence[tuple[str, int]] = ()
    cluster: str | None = None


@dataclass
class _Chunk:
    cases: list[dict[str, Any]] = field(default_factory=list)
    cells: list[dict[str, Any]] = field(default_factory=list)
    executions: list[dict[str, Any]] = field(default_factory=list)
    values: dict[str, bytes] = field(default_factory=dict)
    files: list[tuple[str, int]] = field(default_factory=list)


def submit(database: Database, sweep: NewSweep, given: Iterable[NewCase], also: Also | None = None) -> None:
    """Insert a sweep with its cases, combinations, cells and root executions, in one transaction.

    Args:
        database: The database.
        sweep: The sweep.
        given: Its cases. They are read as they are written, in chunks, so memory does not grow with them.
        also: Writes more in the same transaction, given the sweep's id. If it raises, nothing is written.

    Raises:
        InputError: For an unknown session.
        ConflictError: For an archived session.
    """
    _keep_graph(database, sweep)
    with database.write() as connection:
        session = session_to_submit_to(connection, sweep.session)
        _insert_sweep(connection, sweep, session)
        numbers = list(range(len(sweep.choices)))
        for rows in _chunks(sweep, session, given, numbers):
            insert_values(connection, sorted(rows.values.items()))
            add_files(connection, session, rows.files)
            insert_rows(connection, cases, rows.cases)
            insert_rows(connection, executions, rows.executions)
            insert_rows(connection, cells, rows.cells)
        data = {"name": sweep.name, "cells": sweep.cells, "combinations": len(numbers)}
        add_event(connection, subject(session, sweep.id), "sweep.submitted", data)
        if sweep.starts_at is not None:
            _start_at(connection, sweep.id, sweep.starts_at)
        if also is not None:
            also(connection, sweep.id)
        # The last statement before the commit, so that it is the time of the commit.
        connection.execute(sweeps.update().where(sweeps.c.id == sweep.id).values(started_at=now()))
        point("submit.written")
    point("submit.committed")


def _keep_graph(database: Database, sweep: NewSweep) -> None:
    """Store a workflow's graph, once for all its sweeps; by itself, so that nobody waits for a long submission."""
    with database.write() as connection:
        row = {"id": sweep.graph_id, "name": sweep.graph["name"], "version": sweep.graph["version"]}
        insert_missing(connection, workflows, [{**row, "graph": sweep.graph}])


def _insert_sweep(connection: sa.Connection, sweep: NewSweep, session: str) -> None:
    same = ("id", "name", "project", "cells", "queued", "priority", "kind")
    row = {name: getattr(sweep, name) for name in same}
    row |= {"session_id": session, "workflow_id": sweep.graph_id, "status": "pending", "spec": dict(sweep.spec)}
    row |= {"fingerprints": dict(sweep.fingerprints), "breakpoints": list(sweep.breakpoints) or None}
    row |= {"notify": None if sweep.notify is None else list(sweep.notify)}
    insert_rows(connection, sweeps, [row])
    for part in parts(list(enumerate(sweep.choices)), CHUNK):
        rows = [{"sweep_id": sweep.id, "number": number, "choices": dict(choices)} for number, choices in part]
        insert_rows(connection, combinations, rows)
    rows = [
        {"sweep_id": sweep.id, "name": name, "number": number, "better": better}
        for number, (name, better) in enumerate(sweep.metrics)
    ]
    insert_rows(connection, metrics, rows)


def _start_at(connection: sa.Connection, sweep_id: str, node: str) -> None:
    """Have a single execution begin at a node, with the input as its state."""
    (row,) = fetch_records(connection, ExecutionRow, sa.select(executions).where(executions.c.sweep_id == sweep_id))
    head = make_root(connection, row, [node])
    connection.execute(executions.update().where(executions.c.id == row.id).values(head_id=head))
    add_execution_event(connection, row, "execution.started", case="input", repeat=0, **{"from": node})


def _chunks(sweep: NewSweep, session: str, given: Iterable[NewCase], numbers: list[int]) -> Iterator[_Chunk]:
    chunk = _Chunk()
    seed = sweep.spec.get("seed", 0)
    turns = _Turns(sweep, len(numbers))
    for number, case in enumerate(given):
        _add_case(chunk, sweep.id, number, case)
        ids = turns.of(number)
        for repeat in range(sweep.repeats):
            # Where each has a root of its own, no combination is to be the first of every case.
            remaining = iter(numbers if sweep.share else mixed(numbers, seed, case.id, repeat))
            # A root stands for every combination, or for one where nothing is shared.
            while group := list(islice(remaining, None if sweep.share else 1)):
                root = _root(sweep, session, next(ids), number, repeat, group)
                chunk.executions.append(root)
                for combination in group:
                    chunk.cells.append(
                        {
                            "sweep_id": sweep.id,
                            "case_number": number,
                            "repeat": repeat,
                            "combination": combination,
                            "status": "pending",
                            "execution_id": root["id"],
                        }
                    )
                    if len(chunk.cells) >= CHUNK:
                        yield chunk
                        chunk = _Chunk()
    if chunk.cells or chunk.cases:
        yield chunk


class _Turns:
    """The ids of root executions, which are begun in the order of their ids: cases in a random order."""

    def __init__(self, sweep: NewSweep, combinations: int) -> None:
        self._each = sweep.repeats * (1 if sweep.share else combinations)
        expected = sweep.cells // max(1, combinations * sweep.repeats)
        self._place = array("L", bytes(array("L").itemsize * expected))
        order = case_order(sweep.clusters or [None] * expected, sweep.spec.get("seed", 0))
        for place, number in enumerate(order):
            self._place[number] = place
        self._ids = new_ids(expected * self._each)

    def of(self, number: int) -> Iterator[str]:
        """Those of the roots of a case."""
        if number >= len(self._place):  # its file has grown since it was checked
            return iter(new_id, None)
        first = self._place[number] * self._each
        return (self._ids[place] for place in range(first, first + self._each))


def _add_case(chunk: _Chunk, sweep_id: str, number: int, case: NewCase) -> None:
    for value in case.input.values():
        chunk.values[value.digest] = value.data
    chunk.files += case.files
    chunk.cases.append(
        {
            "sweep_id": sweep_id,
            "number": number,
            "id": case.id,
            "input": {name: value.digest for name, value in case.input.items()},
            "expected": None if case.expected is None else case.expected.decode(),
            "tags": list(case.tags),
            "workspace": case.workspace,
            "cluster": case.cluster,
        }
    )


def _root(sweep: NewSweep, session: str, id: str, number: int, repeat: int, group: list[int]) -> dict[str, Any]:
    return {
        "id": sweep.id if sweep.kind == "single" else id,  # people know a single one by one id
        "session_id": session,
        "sweep_id": sweep.id,
        "origin": "root",
        "case_number": number,
        "repeat": repeat,
        "combinations": group,
        "status": "pending",
        "queue": sweep.queue,
        "created_at": time.time(),
    }


def next_id(connection: sa.Connection, sweep_id: str) -> str:
    """The id of another execution of the same cells, within a transaction that has locked their sweep.

    That of a single one is its own with a number, so that people still recognise it.
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
    if KEY in spec:  # rows that were added stay exploratory, and nothing of the new sweep has ended
        spec[KEY] = [{**one, "final": False} for one in spec[KEY]]
    rows = database.rows(sa.select(cases).where(cases.c.sweep_id == sweep.id).order_by(cases.c.number))
    clusters = [row["cluster"] for row in rows]
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


def _stored_cases(database: Database, rows: Sequence[Mapping[str, Any]]) -> Iterator[NewCase]:
    for part in parts(rows, 500):  # so many inputs are in memory at once
        inputs = queries.load_values(database, (digest for row in part for digest in row["input"].values()))
        for row in part:
            yield NewCase(
                row["id"],
                {name: inputs[digest] for name, digest in row["input"].items()},
                None if row["expected"] is None else row["expected"].encode(),
                row["tags"],
                row["workspace"],
                cluster=row["cluster"],
            )
