"""A whole stack for a test: PostgreSQL, Valkey, workers and schedulers as processes, and what must hold at its end.

    def test_something(cluster: Cluster) -> None:
        write_trail(cluster.project, 2)
        cluster.start_scheduler()
        worker = cluster.start_worker(concurrency=2)
        cluster.submit()
        ...
        cluster.ends_well({"succeeded": 8})

Nothing that a cluster starts outlives it.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Protocol

import psutil
import pytest
import redis
from celery import Celery
from sqlalchemy import make_url

from tests.support.databases import QUICK
from tests.support.invariants import directories_left, invariants_hold, lives
from tests.support.project import Outcome, Project, Running
from wtb.config.broker import queue_key
from wtb.core.errors import StoreError
from wtb.execution.sandbox.launch.process_tags import kill_tagged, tagged
from wtb.hosting.servers.postgres import PostgresServer
from wtb.hosting.servers.valkey import ValkeyServer
from wtb.store.database import Database
from wtb.store.runs.publishing import cluster_of
from wtb_workers.app import make_app
from wtb_workers.task_messages import EXECUTE

LEASE_S = 1.0  # three heartbeats; less of it a busy machine does not keep up with
LONG_LEASE_S = 20.0
SCHEDULER_INTERVAL_S = 0.3
STARTING_S = 120.0  # of a worker, on a machine that does other things too
PATIENCE_S = 120.0
ENDING_S = 60.0
TAG = "TESTED_IN_CLUSTER"  # in the environment of all that a cluster starts
WORKER = "TESTED_WORKER"  # in that of a worker and its nodes: w0, w1, ...


class Member:
    """A process of a cluster: a worker or a scheduler."""

    def __init__(self, running: Running) -> None:
        self.running = running

    @property
    def pid(self) -> int:
        return self.running.pid

    @property
    def log(self) -> str:
        """Its log so far."""
        return self.running.stderr

    @property
    def lives(self) -> bool:
        return self.running.process.poll() is None

    def family(self) -> list[int]:
        """It, and everything below it: children, keepers, node processes."""
        pids = [self.pid]
        with suppress(psutil.NoSuchProcess):
            pids += [child.pid for child in psutil.Process(self.pid).children(recursive=True)]
        return pids

    def signal(self, number: signal.Signals) -> None:
        """To its parent process alone."""
        self.running.signal(number)

    def kill(self) -> None:
        """SIGKILL its parent process alone, and wait for its end."""
        self.running.process.kill()
        self.running.process.wait(ENDING_S)

    def suspend(self) -> None:
        """SIGSTOP it; its node processes go on."""
        os.kill(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self, check: int | None = 0, patience: float = ENDING_S) -> Outcome:
        """SIGTERM, and wait for its end."""
        if self.lives:
            self.signal(signal.SIGTERM)
        return self.running.wait(check, patience)

    def end(self) -> None:
        """SIGKILL it and everything below it."""
        family = self.family()
        self.suspend()  # or it might start another process meanwhile
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.running.process.wait(ENDING_S)


class Worker(Member):
    """A worker. name: as the database has it."""

    def __init__(self, running: Running, project: Project, name: str) -> None:
        super().__init__(running)
        self._project = project
        self.name = name

    def runners(self) -> dict[str, int]:
        """Runner -> process of those of its runners that have not ended, and whose process lives."""
        query = "SELECT id, pid FROM runners WHERE worker = :name AND ended_at IS NULL"
        return {id: pid for id, pid in self._project.query(query, name=self.name) if lives(pid)}

    @property
    def ready(self) -> bool:
        return self.pid in self.runners().values()


def server_settings() -> list[dict[str, str]]:
    """Return the environments of cluster members that are read at import: see forkserver.py."""
    interval = {"WTB_SCHEDULER_INTERVAL_S": f"{SCHEDULER_INTERVAL_S:g}"}
    return [{"WTB_LEASE_S": f"{lease_s:g}", **interval} for lease_s in (LEASE_S, LONG_LEASE_S)]


class Cluster:
    """The stack of one project. Its servers are its own, but for a database on the session's PostgreSQL.

    postgres: the server, where it is the cluster's own. Members get short leases and a short interval of the scheduler.
    """

    def __init__(self, project: Project, valkey: ValkeyServer, postgres: PostgresServer | None = None) -> None:
        self.project = project
        self.valkey = valkey
        self.postgres = postgres
        self._tag = secrets.token_hex(8)
        self.env = {TAG: self._tag, "WTB_LEASE_S": f"{LEASE_S:g}", "WTB_BROKER_URL": valkey.url}
        self.env["WTB_SCHEDULER_INTERVAL_S"] = f"{SCHEDULER_INTERVAL_S:g}"
        self.workers: list[Worker] = []
        self.schedulers: list[Member] = []
        self._hands = ExitStack()

    @property
    def libpq_url(self) -> str:
        """Its database, as psycopg reads it."""
        return make_url(self.project.url or "").set(drivername="postgresql").render_as_string(hide_password=False)

    def take_time(self) -> None:
        """Give what is started from now on leases that do not run out, for a test that is not about that."""
        self.env["WTB_LEASE_S"] = f"{LONG_LEASE_S:g}"

    # What runs.

    def start_worker(
        self,
        *,
        concurrency: int = 1,
        queues: str = "default",
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        ready: bool = True,
        options: Sequence[str] = (),
        name: str | None = None,
        own: bool = False,
    ) -> Worker:
        """Start a worker, in the project's folder or another one. ready: wait until it takes work. own: as users do.

        Its nodes find its name (w0, w1, ...) in their environment, under TESTED_WORKER.
        """
        name = name or f"w{len(self.workers)}"
        arguments = ["--concurrency", str(concurrency), "--queues", queues, "--name", name, *options]
        running = self._start(folder, {WORKER: name, **(env or {})}, "worker", *arguments, own=own)
        worker = Worker(running, self.project, f"{name}@{socket.gethostname()}")
        self.workers.append(worker)
        if ready:
            self.wait_ready(worker)
        return worker

    def wait_ready(self, *workers: Worker) -> None:
        """Wait until these workers, or all, take work: those that were started with ready=False, side by side."""
        for worker in workers or self.workers:
            self.until(lambda worker=worker: worker.ready or not worker.lives, f"{worker.name} to be ready", STARTING_S)
            assert worker.lives, worker.log

    def start_scheduler(
        self, every: float = SCHEDULER_INTERVAL_S, env: Mapping[str, str] | None = None, options: Sequence[str] = ()
    ) -> Member:
        scheduler = Member(self._start(None, env, "scheduler", "--interval", f"{every:g}", *options))
        self.schedulers.append(scheduler)
        return scheduler

    def start_two(self, every: float = SCHEDULER_INTERVAL_S) -> Member:
        """Start two workers with two slots each and a scheduler, side by side, and return the scheduler."""
        for _ in range(2):
            self.start_worker(concurrency=2, ready=False)
        scheduler = self.start_scheduler(every)
        self.wait_ready()
        return scheduler

    def _start(self, folder: Path | None, env: Mapping[str, str] | None, *args: str, own: bool = False) -> Running:
        place = folder or self.project.folder
        command = self.project if folder is None else Project(place)
        command.url = self.project.url
        return command.start(*args, env={**self.env, **(env or {})}, own=own)

    def scheduler_once(self, check: int | None = 0, env: Mapping[str, str] | None = None) -> Outcome:
        """In a process of its own: it works with the leases of the cluster, which are read when it starts."""
        return self.project.wtb("scheduler", "--once", check=check, env={**self.env, **(env or {})})

    def wtb(self, *args: str | Path, check: int | None = None, env: Mapping[str, str] | None = None) -> Outcome:
        """Run a command in the project's folder, in this process: another one would mostly import."""
        return self.project.inside(*args, check=check, env={**self.env, **(env or {})}, timeout=PATIENCE_S)

    def let_nodes_run_in_workers(self) -> None:
        """Drop what tells that the database lets in workers by a role of their own: it then takes `pool: thread`."""
        self.wtb("list", check=0)
        self.project.change("DROP POLICY worker ON sweeps")

    def submit(self, file: str = "sweep.yaml", *args: str, check: int = 0) -> str:
        """Submit a sweep; its id."""
        before = set(self.sweeps())
        self.wtb("submit", file, *args, check=check)
        (new,) = set(self.sweeps()) - before
        return new

    def submitted_without_broker(self, file: str = "sweep.yaml", *args: str) -> str:
        """Submit a sweep while the broker takes no message: it is accepted, and said to wait. Its id."""
        before = set(self.sweeps())
        done = self.wtb("submit", file, *args, check=0)
        assert "starts when the broker is back" in done.output
        (new,) = set(self.sweeps()) - before
        return new

    # What is sent.

    def redis(self, *, patience: float = 5.0) -> redis.Redis:
        """A client of the cluster's Valkey. patience: seconds for an answer."""
        client = redis.Redis.from_url(self.valkey.url, socket_timeout=patience, socket_connect_timeout=patience)
        self._hands.callback(client.close)
        return client

    def send(self, *tasks: str, queue: str | None = None) -> None:
        """Send a message for each of these tasks, which need not be there."""
        app = self.app()
        with app.producer_or_acquire() as producer:
            for task in tasks:
                app.send_task(EXECUTE, task_id=task, queue=self.key(queue), producer=producer)

    def key(self, queue: str | None = None) -> str:
        """The list in the broker that holds the messages of a queue."""
        with closing(Database(str(self.project.url))) as database:
            return queue_key(queue, cluster_of(database))

    def app(self) -> Celery:
        """The Celery application of its workers."""
        if not hasattr(self, "_made_app"):
            self._made_app = make_app(self.valkey.url)
            self._hands.callback(self._made_app.close)
        return self._made_app

    def messages(self, queue: str | None = None) -> int:
        """Return the number of messages in a queue."""
        return int(self.redis().llen(self.key(queue)))

    # What is there.

    def query(self, sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self.project.query(sql, **parameters)

    def scalar(self, sql: str, **parameters: Any) -> Any:
        """The only value of the only row."""
        ((value,),) = self.query(sql, **parameters)
        return value

    def until(self, condition: Callable[[], Any], what: str, patience: float = PATIENCE_S) -> Any:
        """Poll until a condition holds, and return what it gave; where it does not, say how things stand."""
        try:
            return self.project.until(condition, what, patience)
        except AssertionError as error:
            try:
                stands = self.report()
            except StoreError as unknown:  # its server is what the test has stopped
                stands = str(unknown)
            raise AssertionError(f"{error}\n{stands}") from None

    def sweeps(self) -> dict[str, str]:
        """Sweep -> its status."""
        return dict(self.query("SELECT id, status FROM sweeps"))

    def cells(self, sweep: str | None = None) -> Counter[str]:
        """Return the number of cells by status."""
        of = "" if sweep is None else "WHERE sweep_id = :sweep"
        query = f"SELECT status, count(*) FROM cells {of} GROUP BY status"
        return Counter(dict(self.query(query, **_named(sweep=sweep))))

    def executions(self, *statuses: str) -> list[str]:
        """Executions that have one of these statuses, or all."""
        rows = self.query("SELECT id, status FROM executions ORDER BY id")
        return [id for id, status in rows if not statuses or status in statuses]

    def tasks(self, *statuses: str) -> list[str]:
        """Tasks of executions that have one of these statuses, or of all."""
        rows = self.query("SELECT DISTINCT task_id, status FROM executions WHERE task_id IS NOT NULL ORDER BY 1")
        return list(dict.fromkeys(id for id, status in rows if not statuses or status in statuses))

    def events(self, kind: str, sweep: str | None = None) -> list[dict[str, Any]]:
        """Return the data of all events of a kind, in their order."""
        of = "" if sweep is None else "AND sweep_id = :sweep"
        query = f"SELECT data FROM events WHERE kind = :kind {of} ORDER BY id"
        return [data for (data,) in self.query(query, kind=kind, **_named(sweep=sweep))]

    def cpu_s(self) -> float:
        """Processor time that its members have used so far, their children included, in seconds."""
        total = 0.0
        for pid in tagged(TAG).get(self._tag, ()):
            with suppress(psutil.Error):
                times = psutil.Process(pid).cpu_times()
                total += times.user + times.system
        return total

    def wait_completed(self, *sweeps: str, patience: float = PATIENCE_S) -> None:
        """Wait until these sweeps, or all, are completed."""

        def done() -> bool:
            present = self.sweeps()
            return bool(present) and all(present[sweep] == "completed" for sweep in sweeps or present)

        self.until(done, "sweeps to be completed", patience)

    def report(self) -> str:
        """Return the logs and tables that a person would look at when something does not continue."""
        lines = [f"sweeps {self.sweeps()}", f"cells {dict(self.cells())}"]
        query = "SELECT id, status, owner_id, token, queue, losses, reason FROM executions"
        query += " WHERE status IN ('pending', 'running')"
        lines += [str(row) for row in self.query(query)[:20]]
        lines += [f"working {row}" for row in self.query("SELECT * FROM working")]
        lines += [f"runner {row}" for row in self.query("SELECT id, worker, pid, ended_at FROM runners")]
        for member in (*self.workers, *self.schedulers):
            lines.append(f"--- {getattr(member, 'name', 'scheduler')} ({'lives' if member.lives else 'ended'}):")
            lines += member.log.splitlines()[-40:]
        return "\n".join(lines)

    # How it ends.

    def stop(self) -> None:
        """SIGTERM all workers and schedulers that still run. Each must end well, and by itself."""
        members = [member for member in (*self.workers, *self.schedulers) if member.lives]
        for scheduler in self.schedulers:  # before, it does not know what to do with a signal
            ready = lambda it=scheduler: "scheduler: every" in it.log or not it.lives  # noqa: E731
            self.until(ready, "the scheduler to start")
        for member in members:
            member.signal(signal.SIGTERM)
        for member in members:
            member.running.wait(check=0, timeout=ENDING_S)

    def ends_well(self, cells: Mapping[str, int], *, patience: float = PATIENCE_S) -> None:
        """Wait for all sweeps, stop the workers, and look at what is left."""
        self.wait_completed(patience=patience)
        self.stop()
        self.invariants(cells)

    def invariants(self, cells: Mapping[str, int], *, rewound: bool = False) -> None:
        """Assert the rules that hold when all sweeps are completed and all workers have ended, however they did.

        Each cell has one outcome and all together these; nothing is recorded twice, each sweep was completed once;
        no execution, lease, slot or permit is held; no process and no directory is left.
        """
        invariants_hold(self.project, cells, rewound=rewound)
        assert self.query("SELECT id, status FROM executions WHERE status IN ('pending', 'running', 'waiting')") == []
        completed = "SELECT sweep_id FROM events WHERE kind = 'sweep.completed' ORDER BY 1"
        assert self.query(completed) == self.query("SELECT id FROM sweeps ORDER BY 1"), "completed once each"
        self.no_slot_is_busy()
        with suppress(AssertionError):
            self.until(lambda: not self.processes_left(), "processes to end", 10)
        assert self.processes_left() == []
        assert directories_left(self.project) == []

    def no_slot_is_busy(self) -> None:
        """Neither a busy slot nor a permit of a runner that counts as live is left in the database."""
        fresh = "r.ended_at IS NULL AND r.seen_at > extract(epoch FROM clock_timestamp()) - 1"
        working = f"SELECT w.* FROM working w JOIN runners r ON r.id = w.runner_id WHERE {fresh}"
        assert self.query(working) == []
        query = f"SELECT p.* FROM permits p JOIN runners r ON r.id = p.runner_id WHERE p.held > 0 AND {fresh}"
        assert self.query(query) == []

    def processes(self) -> list[int]:
        """Everything that its members started, and they themselves: children, keepers, node processes."""
        return list(tagged(TAG).get(self._tag, ()))

    def processes_left(self) -> list[str]:
        """The same of those that still live, in words."""
        processes = []
        for pid in self.processes():
            if lives(pid):
                with suppress(psutil.Error):
                    processes.append(f"{pid}: {' '.join(psutil.Process(pid).cmdline())[:80]}")
        return processes

    def close(self) -> None:
        """End whatever still runs, in whatever state."""
        for member in (*self.workers, *self.schedulers):  # whose environment only root can read
            if member.lives:
                member.end()
        kill_tagged(TAG, self._tag)
        self._hands.close()


def _named(**parameters: Any) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}


class MakeCluster(Protocol):
    def __call__(
        self, *, postgres: Mapping[str, str] | None = None, valkey: Mapping[str, str] | None = None
    ) -> Cluster: ...


@pytest.fixture
def make_cluster(
    tmp_path: Path, servers_folder: Path, prepared_postgres_url: str, request: pytest.FixtureRequest
) -> Iterator[MakeCluster]:
    """Makes the cluster of a test. postgres, valkey: settings of its servers; None: the session's PostgreSQL."""
    word = re.sub(r"\W+", "-", request.node.name)[-40:] + f"-{os.getpid()}-{id(request):x}"
    with ExitStack() as hands:

        def make(*, postgres: Mapping[str, str] | None = None, valkey: Mapping[str, str] | None = None) -> Cluster:
            project = Project(tmp_path / "project")
            hands.callback(project.close)
            broker = hands.enter_context(ValkeyServer(servers_folder / f"valkey-{word}", settings=valkey))
            own = None
            if postgres is None:
                project.url = prepared_postgres_url
            else:
                settings = {**QUICK, **postgres}
                server = PostgresServer(servers_folder / f"postgres-{word}", settings=settings)
                own = hands.enter_context(server)
                project.url = own.url
            cluster = Cluster(project, broker, own)
            hands.callback(cluster.close)
            return cluster

        yield make


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> Cluster:
    """An empty folder, a database of its own on the session's PostgreSQL, and a Valkey of its own."""
    return make_cluster()
