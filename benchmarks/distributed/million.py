"""A million cells: 1,000 combinations of a chain of three nodes over so many cases, by two workers, on PostgreSQL.

Everything is measured at 10,000 cells first and then at `--cells`, and figures that should not grow are ratios of the
two. What a busy machine cannot change is counted: seconds of CPU, transactions, rows, bytes. While the sweep is
submitted, runs and is deleted, somebody else writes to another sweep and follows its log: how long that takes at most
is what others are held up. Half way the workers are killed, and others continue.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import sqlalchemy as sa

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure
from benchmarks.harness.workers import WorkerStack, empty_stack, server_of, tree_cpu_s
from benchmarks.workloads.chain import STEPS
from benchmarks.workloads.importable import MANY
from wtb.core.serialization.codec import digest, encode
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.bulk import insert_values
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.log import START, LogPosition, add_event, subject
from wtb.store.read import queries
from wtb.store.tables.schema import node_runs

SMALL = 10_000  # cells of what the others are held against
COMBINATIONS = MANY ** len(STEPS)
A_CASE = MANY + MANY**2 + MANY**3  # node runs
WORKERS, SLOTS = 2, 8
SAMPLE_S, PROBE_S, LOOK_S = 1.0, 0.1, 0.01
STALLED_S = 600.0  # without a further node run: it will not end
MOST_CELLS = 10_000_000
# What should not grow with the cells: its name, the attribute of Measured, and how it is shown.
EACH = (
    ("workers' CPU", "workers_s", 1e3, "ms"),
    ("server's CPU", "server_s", 1e3, "ms"),
    ("time", "wall_s", 1e3, "ms"),
    ("transactions", "commits", 1, ""),
    ("rows read", "rows_read", 1, ""),
    ("WAL", "wal_bytes", 1, "B"),
)


@dataclass
class Measured:
    """The measurements of one size. Seconds are of CPU unless noted; memory is the peak in MB."""

    cells: int
    node_runs: int = 0
    submission_s: float = 0.0
    wall_s: float = 0.0
    workers_s: float = 0.0
    server_s: float = 0.0
    commits: int = 0
    rows_read: int = 0
    wal_bytes: int = 0
    stored_bytes: int = 0
    resumed_after_s: float = 0.0
    deleted_s: float = 0.0
    collected_s: float = 0.0
    memory: dict[str, float] = field(default_factory=dict)
    # For a while workers have node processes for what was lost besides those for the rest. A small sweep ends before.
    memory_after_kill: dict[str, float] = field(default_factory=dict)
    waited_s: dict[str, tuple[float, float]] = field(default_factory=dict)
    commands: dict[str, tuple[float, float, float]] = field(default_factory=dict)  # wall, CPU, MB


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    small = _measured(environment, SMALL)
    yield from _alone(small)
    large = _measured(environment, environment.cells)
    yield from _alone(large)
    yield from _beside(large, small)


def _alone(measured: Measured) -> Iterator[Figure]:
    of = f"{measured.cells:,} cells"
    yield Figure(f"{of}: node runs", measured.node_runs, "")
    yield Figure(f"{of}: submission, CPU a cell", 1e6 * measured.submission_s / measured.cells, "us")
    yield Figure(f"{of}: time from its first batch to its end", measured.wall_s, "s")
    yield Figure(f"{of}: database a node run", measured.stored_bytes / measured.node_runs, "B", 3_000)
    for name, attribute, scale, unit in EACH:
        yield Figure(f"{of}: {name} a node run", scale * getattr(measured, attribute) / measured.node_runs, unit)
    for kind, (locked_s, followed_s) in measured.waited_s.items():
        removing = kind in ("its deletion", "garbage collection")
        yield Figure(f"{of}: another writer waited at most, {kind}", 1e3 * locked_s, "ms", 100 if removing else 1_000)
        yield Figure(f"{of}: and then its follower, {kind}", 1e3 * followed_s, "ms", 1_000)
    yield Figure(f"{of}: from kill -9 of the workers to the next node run", measured.resumed_after_s, "s", 10.0)
    for name, (wall_s, cpu_s, megabytes) in measured.commands.items():
        target = 5.0 if "matrix" in name else None
        yield Figure(f"{of}: {name}", wall_s, "s", target)
        yield Figure(f"{of}: {name}, CPU", cpu_s, "s")
        yield Figure(f"{of}: {name}, memory", megabytes, "MB")
    for when, memory in (("", measured.memory), (" after the kill", measured.memory_after_kill)):
        for kind, megabytes in memory.items():
            yield Figure(f"{of}: memory of {kind}, with all below it{when}", megabytes, "MB")
    yield Figure(f"{of}: wtb delete", measured.deleted_s, "s", 5.0)
    yield Figure(f"{of}: wtb admin gc after it", measured.collected_s, "s")


def _beside(large: Measured, small: Measured) -> Iterator[Figure]:
    of = f"{large.cells:,} / {small.cells:,} cells"
    for name, attribute, _, _ in EACH:
        large_share, small_share = (getattr(size, attribute) / size.node_runs for size in (large, small))
        yield Figure(f"{of}: {name} a node run", large_share / small_share, "x", 1.2)
    for kind, megabytes in large.memory.items():
        yield Figure(f"{of}: memory of {kind}", megabytes / small.memory[kind], "x", 1.3)


def _measured(environment: Environment, cells: int) -> Measured:
    measured = Measured(cells)
    with ExitStack() as context:
        stack = context.enter_context(empty_stack(environment, f"{cells:,} cells"))
        probe = context.enter_context(_Probe(stack.database, _submit(stack, "other", 1)).probing())
        start = time.process_time()
        with probe.during(measured, "its submission"):
            sweep_id = _submit(stack, "large", cells // COMBINATIONS, queued=True)
        measured.submission_s = time.process_time() - start
        with probe.during(measured, "its run"):
            _run(stack, measured, sweep_id)
        _look(stack, measured, "at its end")
        with probe.during(measured, "its deletion"):
            measured.deleted_s = _command(stack, "delete", "large", "--yes")[0]
        with probe.during(measured, "garbage collection"):
            measured.collected_s = _command(stack, "admin", "gc")[0]
    return measured


def _submit(stack: WorkerStack, name: str, cases: int, *, queued: bool = False) -> str:
    spec = parse_spec(
        {
            "sweep": name,
            "workflow": "benchmarks.workloads.importable:many",
            "cases": [{"id": str(x), "input": {"x": x}, "expected": {"c": f"{x * 10}-0"}} for x in range(cases)],
            "vary": dict.fromkeys(STEPS, "all"),
            "evaluate": [{"exact_match": {"field": "c"}}],
        }
    )
    workspaces = workspaces_of(stack.database, stack.folder / ".wtb")
    return prepare(spec, max_cells=MOST_CELLS).submit(stack.database, workspaces, queued=queued)


def _run(stack: WorkerStack, measured: Measured, sweep_id: str) -> None:
    """Run it to its end. Look at it after a third, and kill the workers half way."""
    database, server = stack.database, server_of(stack.database)
    stack.start("wtb", "scheduler")
    workers = [stack.start("wtb", "worker", "--concurrency", str(SLOTS)) for _ in range(WORKERS)]
    before, server_s, start = _counters(database), tree_cpu_s(server), time.monotonic()
    stack.publish()
    expected = measured.cells // COMBINATIONS * A_CASE
    looked = killed = False
    grown = time.monotonic()
    while (row := queries.find_sweep(database, sweep_id)).status in ("pending", "running"):
        _sample(stack, measured.memory_after_kill if killed else measured.memory)
        done = _node_runs(database, sweep_id)
        if done > measured.node_runs:
            measured.node_runs, grown = done, time.monotonic()
        elif time.monotonic() > grown + STALLED_S:
            raise RuntimeError(f"no node run for {STALLED_S:g} s; {done:,} of {expected:,} have ended")
        if done > expected / 3 and not looked:
            looked = True
            _look(stack, measured, "while it runs")
        if done > expected / 2 and not killed:
            killed = True
            measured.workers_s += sum(tree_cpu_s(worker.pid) for worker in workers)
            workers = _killed(stack, measured, workers, sweep_id)
        time.sleep(SAMPLE_S)
    if row.status != "completed":
        raise RuntimeError(f"the sweep is {row.status}: {row.reason}")
    measured.node_runs = _node_runs(database, sweep_id)
    measured.workers_s += sum(tree_cpu_s(worker.pid) for worker in workers)
    measured.wall_s, measured.server_s = time.monotonic() - start, tree_cpu_s(server) - server_s
    after = _counters(database)
    measured.commits, measured.rows_read, measured.wal_bytes, measured.stored_bytes = (
        now - then for now, then in zip(after, before, strict=True)
    )


def _killed(
    stack: WorkerStack, measured: Measured, workers: list[subprocess.Popen[bytes]], sweep_id: str
) -> list[subprocess.Popen[bytes]]:
    for worker in workers:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        stack.forget(worker)
    before, start = _last_begun(stack.database, sweep_id), time.monotonic()
    started = [stack.start("wtb", "worker", "--concurrency", str(SLOTS)) for _ in range(WORKERS)]
    while _last_begun(stack.database, sweep_id) == before:
        time.sleep(PROBE_S)
    measured.resumed_after_s = time.monotonic() - start
    return started


def _look(stack: WorkerStack, measured: Measured, when: str) -> None:
    pages = stack.folder / "report.html"
    for name, command in (
        (f"wtb list {when}", ("list",)),
        # With edited cells it is made anew; the one that is kept is read in no time.
        (f"wtb matrix {when}", ("matrix", "large", "--edited", "--format", "json", "--output", str(pages))),
        (f"wtb report {when}", ("report", "large", "--output", str(pages))),
    ):
        measured.commands[name] = _command(stack, *command)


def _command(stack: WorkerStack, *arguments: str) -> tuple[float, float, float]:
    """Run a command. Return seconds, seconds of CPU and MB of memory."""
    start = time.monotonic()
    process = stack.start("wtb", *arguments)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    stack.forget(process)
    if process.returncode:
        raise RuntimeError(f"wtb {' '.join(arguments)} ended with {process.returncode}: {stack.last_log()}")
    return time.monotonic() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def _node_runs(database: Database, sweep_id: str) -> int:
    """Estimate the accepted node runs from PostgreSQL statistics, because counting a million rows is slow."""
    query = "SELECT n_tup_ins FROM pg_stat_user_tables WHERE relname = 'node_runs'"
    ((count,),) = database.tuples(sa.text(query))
    return int(count)


def _last_begun(database: Database, sweep_id: str) -> float | None:
    """Return the start of the node run that succeeded last."""
    succeeded = (node_runs.c.sweep_id == sweep_id, node_runs.c.ended_event.is_not(None))
    query = sa.select(node_runs.c.started_at).where(*succeeded)
    last = query.order_by(node_runs.c.ended_transaction.desc(), node_runs.c.ended_event.desc())
    return database.scalar(last.limit(1))


def _counters(database: Database) -> tuple[int, int, int, int]:
    query = (
        "SELECT xact_commit, tup_returned + tup_fetched, (pg_current_wal_lsn() - '0/0')::bigint, "
        "pg_database_size(current_database()) FROM pg_stat_database WHERE datname = current_database()"
    )
    ((commits, rows, wal, size),) = database.tuples(sa.text(query))
    return commits, rows, wal, size


def _sample(stack: WorkerStack, peaks: dict[str, float]) -> None:
    for kind, megabytes in stack.memory().items():
        peaks[kind] = max(peaks.get(kind, 0.0), megabytes)


class _Probe:
    """Repeatedly writes a value and an event of another sweep, and waits until it can be read."""

    def __init__(self, database: Database, sweep_id: str) -> None:
        self._database, self._sweep = Database(database.url.render_as_string(hide_password=False)), sweep_id
        self._ending = threading.Event()
        self._locked_s = self._followed_s = 0.0

    @contextmanager
    def probing(self) -> Iterator[_Probe]:
        thread = threading.Thread(target=self._probe)
        thread.start()
        try:
            yield self
        finally:
            self._ending.set()
            thread.join()
            self._database.close()

    @contextmanager
    def during(self, measured: Measured, what: str) -> Iterator[None]:
        self._locked_s = self._followed_s = 0.0
        yield
        measured.waited_s[what] = self._locked_s, self._followed_s

    def _probe(self) -> None:
        position: LogPosition = START
        while not self._ending.wait(PROBE_S):
            start = time.monotonic()
            json_bytes = encode(start)
            with self._database.write() as connection:
                insert_values(connection, [(digest(json_bytes), json_bytes)])
                add_event(connection, subject("default", self._sweep), "probe", {})
            written = time.monotonic()
            while not (rows := queries.event_rows(self._database, self._sweep, after=position)):
                time.sleep(LOOK_S)
            position = rows[-1]["transaction"], rows[-1]["id"]
            self._locked_s = max(self._locked_s, written - start)
            self._followed_s = max(self._followed_s, time.monotonic() - written)
