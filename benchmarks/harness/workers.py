"""The stack that is measured: workers and a scheduler as processes of their own, on a fresh database and a broker.

They start in an empty folder and import the workflows of `benchmarks.workloads.importable`. Nothing of it stays at
the end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import psutil
import sqlalchemy as sa

from benchmarks.harness.environment import Environment
from wtb.hosting.servers.valkey import ValkeyServer
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.read import queries
from wtb.store.runs.publishing import cluster_of, publish
from wtb.store.tables.sweeps import SweepRow
from wtb.store.telemetry.workers import worker_rows
from wtb_workers.app import make_app
from wtb_workers.task_messages import send

ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 120.0


class WorkerStack:
    """Workers and a scheduler. name: for people."""

    def __init__(self, name: str, folder: Path, database: Database, broker_url: str) -> None:
        self.name = name
        self.folder = folder
        self.database = database
        self.broker_url = broker_url
        self.env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "WTB_DATABASE_URL": database.url.render_as_string(hide_password=False),
            "WTB_BROKER_URL": broker_url,
        }
        self._app = make_app(broker_url)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._started = 0

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a module of Python with its arguments; its output goes to a file of the folder."""
        self._started += 1
        with (self.folder / f"{self._started}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, stderr=log
            )
        self._processes.append(process)
        return process

    def start_workers(self, count: int, slots: int) -> None:
        """So many workers of so many slots each, and a scheduler; returns once all slots are there."""
        for _ in range(count):
            self.start("wtb", "worker", "--concurrency", str(slots))
        self.start("wtb", "scheduler")
        self.until(lambda: sum(row.slots for row in worker_rows(self.database)) == count * slots, "the workers")

    def until(self, condition: Callable[[], bool], what: str, every_s: float = 0.05) -> None:
        """Wait for something. Raises RuntimeError with what the processes said, where it does not come about."""
        ends = time.monotonic() + PATIENCE_S
        while not condition():
            dead = [process.args for process in self._processes if process.poll() is not None]
            if dead or time.monotonic() > ends:
                said = "\n".join(log.read_text() for log in sorted(self.folder.glob("*.log")))
                raise RuntimeError(f"{self.name}: waited for {what}; processes that ended: {dead}; they said: {said}")
            time.sleep(every_s)

    def run(
        self, workflow: str, inputs: Sequence[dict[str, Any]], vary: Sequence[str] = (), *, pool: str = "process"
    ) -> tuple[str, float]:
        """A sweep of a workflow of `benchmarks.workloads.importable`, to its end. pool: as `run.pool` of the sweep.

        Returns its id, and the seconds from the commit of the submission to the last outcome, both as the database
        has them.
        """
        sweep_id = self.queue(f"importable:{workflow}", inputs, vary, pool=pool)
        row = self.wait_completed(sweep_id)
        assert row.started_at is not None, "it has ended"
        assert row.finished_at is not None, "it has ended"
        return sweep_id, row.finished_at - row.started_at

    def queue(
        self, workflow: str, inputs: Sequence[dict[str, Any]], vary: Sequence[str] = (), *, pool: str = "process"
    ) -> str:
        """Submit a sweep of a workflow below `benchmarks.workloads`, and publish its tasks. Returns its id."""
        spec = parse_spec(
            {
                "workflow": f"benchmarks.workloads.{workflow}",
                "cases": [{"id": str(number), "input": state} for number, state in enumerate(inputs)],
                "vary": dict.fromkeys(vary, "all"),
                "run": {"pool": pool},
            }
        )
        prepared, workspaces = prepare(spec), workspaces_of(self.database, self.folder / ".wtb")
        sweep_id = prepared.submit(self.database, workspaces, queued=True)
        self.publish()
        return sweep_id

    def wait_completed(self, sweep_id: str) -> SweepRow:
        """The sweep as it is in the database at its end. Raises RuntimeError where it ends in another way."""
        self.until(lambda: self._status(sweep_id) not in ("pending", "running"), f"sweep {sweep_id}")
        row = queries.find_sweep(self.database, sweep_id)
        if row.status != "completed":
            raise RuntimeError(f"{self.name}: sweep {sweep_id} is {row.status}: {row.reason}")
        return row

    def _status(self, sweep_id: str) -> str:
        return str(queries.find_sweep(self.database, sweep_id).status)

    def memory(self) -> dict[str, float]:
        """The MB that each kind of process holds now, with all that is below it: of several the one that holds most."""
        found: dict[str, float] = {}
        for process in self._processes:
            kind = str(process.args[3]) if isinstance(process.args, list) else ""
            found[kind] = max(found.get(kind, 0.0), tree_memory(process.pid))
        return found

    def last_log(self) -> str:
        """What the process that was started last has written to stderr."""
        return (self.folder / f"{self._started}.log").read_text()

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        """Have a process that has ended be none of this."""
        self._processes.remove(process)

    def publish(self) -> None:
        """Publish what is pending as tasks."""
        send(self._app, cluster_of(self.database), publish(self.database))

    def cpu_s(self) -> float:
        """Seconds of CPU that its processes have taken so far, with all that is below them."""
        spent = 0.0
        for process in self._processes:
            spent += tree_cpu_s(process.pid)
        return spent

    def close(self) -> None:
        self._app.close()
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            process.wait(60)


def server_of(database: Database) -> int:
    """The process of PostgreSQL."""
    ((backend,),) = database.tuples(sa.text("SELECT pg_backend_pid()"))
    return psutil.Process(backend).ppid()


def tree_cpu_s(pid: int) -> float:
    """Seconds of CPU of a process and of all that is below it now."""
    spent = 0.0
    root = psutil.Process(pid)
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent += sum(times[:4])  # its own, and of those below it that have ended
    return spent


def tree_memory(pid: int) -> float:
    """MB of memory that a process and all that is below it hold now, by themselves."""
    held = 0
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                held += process.memory_full_info().uss
    return held / 1e6


@contextmanager
def worker_stack(environment: Environment, count: int, slots: int) -> Iterator[WorkerStack]:
    """So many workers of so many slots each, and a scheduler, on a database and a broker of their own."""
    with empty_stack(environment, f"{count} x {slots}") as made:
        made.start_workers(count, slots)
        yield made


@contextmanager
def empty_stack(environment: Environment, name: str) -> Iterator[WorkerStack]:
    """A database and a broker for workers that are yet to be started. name: for people."""
    folder = environment.folder / f"workers-{token_hex(6)}"
    folder.mkdir()
    with ExitStack() as stack:
        server = stack.enter_context(ValkeyServer(environment.folder / f"valkey-{token_hex(6)}"))
        database = Database(environment.fresh("postgresql"))
        stack.callback(database.close)
        database.prepare()
        made = WorkerStack(name, folder, database, server.url)
        stack.callback(made.close)
        yield made
