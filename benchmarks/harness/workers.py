"""The measured stack: workers and a scheduler as processes, on a fresh database and a broker.

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
from wtb.store.read.activity import worker_rows
from wtb.store.runs.publishing import cluster_of, publish
from wtb.store.tables.sweeps import SweepRow
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
        """Start workers with slots, and a scheduler; return once all slots are registered."""
        for _ in range(count):
            self.start("wtb", "worker", "--concurrency", str(slots))
        self.start("wtb", "scheduler")
        self.until(lambda: sum(row.slots for row in worker_rows(self.database)) == count * slots, "the workers")

    def until(self, condition: Callable[[], bool], what: str, every_s: float = 0.05) -> None:
        """Wait for a condition. Raise RuntimeError with the output of the processes if it does not become true."""
        ends = time.monotonic() + PATIENCE_S
        while not condition():
            dead = [process.args for process in self._processes if process.poll() is not None]
            if dead or time.monotonic() > ends:
                output = "\n".join(log.read_text() for log in sorted(self.folder.glob("*.log")))
                raise RuntimeError(f"{self.name}: waited for {what}; processes that ended: {dead}; they said: {output}")
            time.sleep(every_s)

    def run(
        self, workflow: str, inputs: Sequence[dict[str, Any]], vary: Sequence[str] = (), *, pool: str = "process"
    ) -> tuple[str, float]:
        """Run a sweep of a workflow of `benchmarks.workloads.importable` to its end. pool: as `run.pool` of the sweep.

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
        """Submit a sweep of a workflow below `benchmarks.workloads`, and publish its tasks. Return its id."""
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
        """Wait until the sweep has completed and return its row. Raise RuntimeError if it ends in another way."""
        self.until(lambda: self._status(sweep_id) not in ("pending", "running"), f"sweep {sweep_id}")
        row = queries.find_sweep(self.database, sweep_id)
        if row.status != "completed":
            raise RuntimeError(f"{self.name}: sweep {sweep_id} is {row.status}: {row.reason}")
        return row

    def _status(self, sweep_id: str) -> str:
        return str(queries.find_sweep(self.database, sweep_id).status)

    def memory(self) -> dict[str, float]:
        """Return the MB that each kind of process holds now with its descendants; of several processes the largest."""
        peaks: dict[str, float] = {}
        for process in self._processes:
            kind = str(process.args[3]) if isinstance(process.args, list) else ""
            peaks[kind] = max(peaks.get(kind, 0.0), tree_memory(process.pid))
        return peaks

    def last_log(self) -> str:
        """Return the stderr of the process that was started last."""
        return (self.folder / f"{self._started}.log").read_text()

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        """Forget a process that has ended."""
        self._processes.remove(process)

    def publish(self) -> None:
        """Publish pending executions as tasks."""
        send(self._app, cluster_of(self.database), publish(self.database))

    def cpu_s(self) -> float:
        """Return the seconds of CPU of its processes so far, with their descendants."""
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
    """Return the process of PostgreSQL."""
    ((backend,),) = database.tuples(sa.text("SELECT pg_backend_pid()"))
    return psutil.Process(backend).ppid()


def tree_cpu_s(pid: int) -> float:
    """Return the seconds of CPU of a process and its current descendants."""
    spent = 0.0
    root = psutil.Process(pid)
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent += sum(times[:4])  # its own, and of those below it that have ended
    return spent


def tree_memory(pid: int) -> float:
    """Return the MB of unshared memory of a process and its descendants."""
    megabytes = 0
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                megabytes += process.memory_full_info().uss
    return megabytes / 1e6


@contextmanager
def worker_stack(environment: Environment, count: int, slots: int) -> Iterator[WorkerStack]:
    """Start workers with slots, and a scheduler, on their own database and broker."""
    with empty_stack(environment, f"{count} x {slots}") as stack:
        stack.start_workers(count, slots)
        yield stack


@contextmanager
def empty_stack(environment: Environment, name: str) -> Iterator[WorkerStack]:
    """Prepare a database and a broker for workers that are started later. name: for people."""
    folder = environment.folder / f"workers-{token_hex(6)}"
    folder.mkdir()
    with ExitStack() as cleanup:
        server = cleanup.enter_context(ValkeyServer(environment.folder / f"valkey-{token_hex(6)}"))
        database = Database(environment.fresh("postgresql"))
        cleanup.callback(database.close)
        database.prepare()
        stack = WorkerStack(name, folder, database, server.url)
        cleanup.callback(stack.close)
        yield stack
