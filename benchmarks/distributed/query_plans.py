"""Claim, heartbeat, finish and the scheduler among 1,000,000 executions that have ended, against the same among 1,000.

Half of them are of other sweeps, half of the one that is worked on; each has a cell. Both databases are on one server
and are asked in turns. How PostgreSQL goes about it is shown by EXPLAIN of every statement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
import sqlalchemy as sa

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from wtb.execution.rows import ended
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.process_identity import WorkerIdentity, identity
from wtb.store.runs import leases, maintenance, publishing, queue
from wtb.store.runs.batch import Batch
from wtb.store.runs.flush import flush
from wtb.store.runs.queue import DEFAULT_QUEUE, Slot
from wtb.store.runs.slots import LEASE_S
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.results import Outcome
from wtb.store.tables.schema import executions

FEW, MANY = 1_000, 1_000_000
PENDING = 2_000
ENDED_SWEEPS = 99  # sweeps that have ended
CALLS = 40  # of each kind in a round
LARGE = ("executions", "cells")


Call = Callable[[], Any]


@dataclass(frozen=True)
class Filled:
    """A database with executions that have ended, and a sweep that has pending ones."""

    database: Database
    sweep_id: str
    slot: Slot

    def calls(self) -> dict[str, Callable[[], Call]]:
        """Functions by name: each prepares a call and returns it."""
        database, runner_id = self.database, self.slot.runner_id
        return {
            "publish": lambda: self._free(partial(publishing.publish, database)),
            "publish_again": lambda: self._published(partial(publishing.publish_again, database, 0.0)),
            "claim_tasks": self._claiming,
            "renew": lambda: self._holding(partial(leases.renew, database, runner_id, LEASE_S)),
            "flush of an execution that ends": self._ending,
            "reclaim": lambda: self._expired(partial(maintenance.reclaim, database)),
            "demand": lambda: self._holding(partial(queue.demand, database)),
            "next_published": lambda: self._published(partial(publishing.next_published, database, self.slot.queues)),
            "finish": lambda: self._holding(partial(maintenance.finish, database, self.sweep_id)),
            "open_sweeps": lambda: self._holding(partial(maintenance.open_sweeps, database)),
        }

    def _free(self, call: Call) -> Call:
        """Free the slot, and release and unpublish everything."""
        leases.release_all(self.database, self.slot.runner_id)
        queue.mark_free(self.database, self.slot)
        with self.database.write() as connection:
            queue.withdraw(connection, executions.c.sweep_id == self.sweep_id)
        return call

    def _published(self, call: Call) -> Call:
        """Prepare the same, with a window of published tasks."""
        self._free(call)
        publishing.publish(self.database)
        return call

    def _holding(self, call: Call) -> Call:
        """Let the slot hold some executions."""
        self._free(call)
        claim_next(self.database, self.slot)
        return call

    def _expired(self, call: Call) -> Call:
        """Let the slot hold some executions whose leases have expired."""
        self._holding(call)
        with self.database.write() as connection:
            mine = executions.c.owner_id == self.slot.runner_id
            connection.execute(executions.update().where(mine).values(lease_until=0.0))
        return call

    def _claiming(self) -> Call:
        self._published(lambda: None)
        task_id = publishing.next_published(self.database, self.slot.queues)
        return partial(queue.claim_tasks, self.database, {self.slot: str(task_id)}, LEASE_S)

    def _ending(self) -> Call:
        row = self._free(partial(claim_next, self.database, self.slot))()[0]
        batch = Batch()
        outcome: Outcome = {
            "sweep_id": self.sweep_id,
            "case_number": row.case_number,
            "repeat": 0,
            "combination": 0,
            "status": "succeeded",
            "execution_id": row.id,
            "elapsed_s": 0.0,
            "usd": 0.0,
            "tokens_in": 0,
            "tokens_out": 0,
            "node_runs": 0,
            "failure": None,
            "edited": False,
        }
        batch.add(row.id, row.token, change=ended("completed"), outcomes=[outcome])
        return partial(flush, self.database, batch, LEASE_S)


def claim_next(database: Database, slot: Slot) -> list[ExecutionRow]:
    """Publish what is pending, and claim the next task for a slot. Return its executions; none if there is no task."""
    publishing.publish(database)
    while (task_id := publishing.next_published(database, slot.queues)) is not None:
        if rows := queue.claim_tasks(database, {slot: task_id}, LEASE_S)[slot].rows:
            return rows
    return []


def fill(database: Database, folder: Path, finished: int, pending: int = PENDING) -> Filled:
    """Fill an empty database with executions that have ended, and a sweep with pending ones."""
    database.prepare()
    cases = [{"id": str(number), "input": {"at": 0.0}} for number in range(pending)]
    prepared = prepare(
        parse_spec({"workflow": "benchmarks.workloads.importable:clocked", "cases": cases, "vary": {"look": "all"}})
    )
    sweep_id = prepared.submit(database, workspaces_of(database, folder), queued=True)
    runner = WorkerIdentity(**asdict(identity()), worker="bench", queues=[DEFAULT_QUEUE], slots=2, version="")
    leases.register(database, runner)
    with database.write(long=True) as connection:
        for statement in _FILLING:
            connection.execute(sa.text(statement), {"sweep": sweep_id, "finished": finished, "others": ENDED_SWEEPS})
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("SET statement_timeout = 0"))
        connection.execute(sa.text("ANALYZE"))
        connection.invalidate()  # with its setting
    return Filled(database, sweep_id, Slot(runner.id, 0, (DEFAULT_QUEUE,)))


_OWN = "n % 2 = 0"
_SWEEP = f"CASE WHEN {_OWN} THEN :sweep ELSE 'other' || 1 + n % :others END"
_FILLING = (
    """
    INSERT INTO sweeps
    SELECT (jsonb_populate_record(s, jsonb_build_object('id', 'other' || n, 'status', 'completed', 'finished_at', 1))).*
    FROM sweeps s, generate_series(1, :others) n WHERE s.id = :sweep
    """,
    # The numbers of cases go on where those of the pending ones end.
    f"""
    INSERT INTO executions
        (id, session_id, sweep_id, origin, case_number, repeat, combinations, status, token, created_at, finished_at)
    SELECT lpad(n::text, 22, '0'), s.session_id, {_SWEEP}, 'root', 1000000 + n, 0, '[0]', 'completed', 1, 1, 1
    FROM generate_series(1, :finished) n, sweeps s WHERE s.id = :sweep
    """,
    f"""
    INSERT INTO cells (sweep_id, case_number, repeat, combination, status, execution_id, finished_at)
    SELECT {_SWEEP}, 1000000 + n, 0, 0, 'succeeded', lpad(n::text, 22, '0'), 1 FROM generate_series(1, :finished) n
    """,
)


class _Explained(psycopg.Cursor[Any]):
    """A cursor that explains each statement before it executes it."""

    scans: list[tuple[str, str]]

    def execute(self, query: Any, params: Any = None, **options: Any) -> _Explained:
        words = query.split(maxsplit=1)[0].upper() if isinstance(query, str) else ""
        if words in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH"):
            with psycopg.Cursor(self.connection) as other:
                ((plan,),) = other.execute(f"EXPLAIN (FORMAT JSON) {query}", params).fetchall()
            self.scans += [(table, query) for table in _read_whole(plan[0]["Plan"])]
        super().execute(query, params, **options)
        return self


def _read_whole(plan: dict[str, Any]) -> Iterator[str]:
    if plan["Node Type"] == "Seq Scan":
        yield plan["Relation Name"]
    for part in plan.get("Plans", ()):
        yield from _read_whole(part)


@contextmanager
def read_whole(database: Database) -> Iterator[list[tuple[str, str]]]:
    """Yield (table, statement) of statements in the block for which PostgreSQL plans to read a whole large table."""
    scans: list[tuple[str, str]] = []
    cursor_class = type("Explained", (_Explained,), {"scans": scans})

    def explain(connection: Any, *_: Any) -> None:
        connection.cursor_factory = cursor_class

    def leave(connection: Any, *_: Any) -> None:
        connection.cursor_factory = psycopg.Cursor

    listeners = (("checkout", explain), ("checkin", leave))
    for name, listener in listeners:
        sa.event.listen(database.engine, name, listener)
    try:
        yield scans
    finally:
        for name, listener in listeners:
            sa.event.remove(database.engine, name, listener)
        scans[:] = [(table, statement) for table, statement in scans if table in LARGE]


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    few, many = (
        fill(Database(environment.fresh("postgresql")), environment.folder / "plans", finished)
        for finished in (FEW, MANY)
    )
    whole: dict[str, int] = {}
    for name, prepared in many.calls().items():
        call = prepared()
        with read_whole(many.database) as scans:
            call()
        whole[name] = len(scans)
    ratios: dict[str, list[float]] = {}
    times: dict[str, list[float]] = {}
    for _ in range(runs):
        for name in few.calls():
            seconds: dict[int, list[float]] = {0: [], 1: []}
            for _ in range(CALLS):
                for place, filled in enumerate((few, many)):
                    call = filled.calls()[name]()
                    start = time.perf_counter()
                    call()
                    seconds[place].append(time.perf_counter() - start)
            ratios.setdefault(name, []).append(median(seconds[1]) / median(seconds[0]))
            times.setdefault(name, []).append(1000 * median(seconds[1]))
    for name in ratios:
        yield of_rounds(f"{name}, {MANY:,} executions ended: time", times[name], "ms")
        yield of_rounds(f"{name}: time / that among {FEW:,}", ratios[name], "x", 1.3)
        yield Figure(f"{name}: statements that read a large table whole", whole[name], "", 0)
    for filled in (few, many):
        filled.database.close()
