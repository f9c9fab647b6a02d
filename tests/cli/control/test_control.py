"""Pause, cancel, resume and retry of sweeps under way, wherever they run: one final state, and nothing runs twice."""

from __future__ import annotations

import getpass
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest
import sqlalchemy as sa

from benchmarks.distributed.query_plans import claim_next
from tests.support.cluster import Cluster
from tests.support.crew import processes, ran, status_of, submitted, write_sweep
from tests.support.project import Project
from tests.support.prose import sentence
from wtb.core.errors import ConflictError
from wtb.core.values import Value
from wtb.store.control import sweeps as control
from wtb.store.database import Database
from wtb.store.process_identity import WorkerIdentity
from wtb.store.runs import leases, maintenance
from wtb.store.runs.batch import Batch
from wtb.store.runs.flush import flush
from wtb.store.runs.queue import Slot
from wtb.store.runs.submission import NewCase, NewSweep
from wtb.store.runs.submit import submit
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import cells, events, executions, sweeps

SOON_S = 5.0  # 2 s, on a machine that does other things too
RACES = 25


def wait_for_nodes(cluster: Cluster, name: str) -> None:
    cluster.until(lambda: ran(cluster.project, f"held {name}-"), f"a node of {name} to run")


def wait_until_released(cluster: Cluster, sweep: str) -> None:
    query = "SELECT count(*) FROM executions WHERE sweep_id = :sweep AND status = 'running'"
    cluster.until(lambda: cluster.scalar(query, sweep=sweep) == 0, "workers to let go of it")


def reason_of(cluster: Cluster, sweep: str) -> Any:
    return cluster.scalar("SELECT reason FROM sweeps WHERE id = :sweep", sweep=sweep)


def ended_within(pids: list[int], seconds: float) -> None:
    Project.until(lambda: not any(psutil.pid_exists(pid) for pid in pids), "node processes to end", seconds)


class TestAPausedSweep:
    def test_begins_nothing_more_says_who_paused_it_and_continues_where_it_was(self, crew: Cluster) -> None:
        sweep = submitted(crew, "rests", gate="rests-on", cases=3)
        wait_for_nodes(crew, "rests")
        done = crew.wtb("pause", sweep, "--reason", "the model is down", check=0)
        assert sentence("continue with: wtb resume {}", sweep) in done.output
        who = f"{getpass.getuser()}@{socket.gethostname()}"
        assert reason_of(crew, sweep) == f"by {who}: the model is down"
        assert crew.events("sweep.paused", sweep) == [{"reason": f"by {who}: the model is down", "by": who}]
        assert crew.wtb("pause", sweep, check=0).output.endswith(f"is paused already (by {who}: the model is down)")
        crew.project.write({"rests-on": ""})  # nodes that run may finish
        wait_until_released(crew, sweep)
        assert crew.cells(sweep)["succeeded"] < 6

        back = crew.wtb("resume", sweep, check=0)
        assert back.stdout.strip() == sweep
        crew.wait_completed(sweep)
        assert crew.cells(sweep) == {"succeeded": 6}
        assert [ran(crew.project, f"first rests-{n}") for n in range(3)] == [1, 1, 1]
        assert reason_of(crew, sweep) is None

    def test_may_be_one_that_nobody_has_begun(self, crew: Cluster) -> None:
        for_nobody = submitted(crew, "unbegun", "--anyway", workflow="flow:remote")
        crew.wtb("pause", for_nobody, check=0)
        assert status_of(crew, for_nobody) == "paused"

    def test_takes_other_limits_when_it_continues_and_keeps_them(self, crew: Cluster) -> None:
        file = write_sweep(crew.project, "limited", cases=2)
        with (crew.project.folder / file).open("a") as text:
            text.write("limits: {node_runs: 2}\n")
        sweep = crew.wtb("submit", file, check=0).stdout.strip()
        crew.until(lambda: status_of(crew, sweep) == "paused", "the limit to be reached")
        assert "node_runs" in reason_of(crew, sweep)
        wait_until_released(crew, sweep)
        done = crew.wtb("resume", sweep, "--limits", "node_runs=100", "--wait", "-q", check=0)
        assert "limited (completed)" in done.stdout
        assert (
            crew.scalar("SELECT spec -> 'limits' ->> 'node_runs' FROM sweeps WHERE id = :sweep", sweep=sweep) == "100"
        )
        assert crew.scalar("SELECT spent FROM budgets WHERE key = :sweep", sweep=sweep) == 6

    def test_of_changed_code_continues_only_where_that_is_allowed(self, crew: Cluster) -> None:
        project = crew.project
        write_sweep(project, "changing", cases=1)  # writes flow.py
        original = (project.folder / "flow.py").read_text("utf-8")
        project.write({"other.py": original})
        file = write_sweep(project, "changing", cases=1, workflow="other:remote")
        sweep = crew.wtb("submit", file, "--anyway", check=0).stdout.strip()
        crew.until(lambda: waits_for_gpu(crew, sweep), "its next node to wait for a queue that nobody serves")
        crew.wtb("pause", sweep, check=0)
        project.write({"other.py": original.replace('{"f": 1}', '{"f": 2}')})
        refused = crew.wtb("resume", sweep, check=2)
        assert sentence("the code of {}={} has changed", "far", "default") in refused.output
        assert status_of(crew, sweep) == "paused"
        crew.wtb("resume", sweep, "--allow-code-change", check=0)
        assert status_of(crew, sweep) == "running"
        crew.wtb("cancel", sweep, "--yes", check=0)


def waits_for_gpu(cluster: Cluster, sweep: str) -> bool:
    query = "SELECT count(*) FROM executions WHERE sweep_id = :sweep AND status = 'pending' AND queue = 'gpu'"
    return bool(cluster.scalar(query, sweep=sweep) == 1)


class TestResume:
    def test_of_a_sweep_that_workers_run_has_nothing_to_do(self, crew: Cluster) -> None:
        sweep = submitted(crew, "busy", gate="busy-on", cases=1)
        wait_for_nodes(crew, "busy")
        done = crew.wtb("resume", sweep, check=0)
        assert "nothing to do" in done.output
        assert "pause" in crew.wtb("resume", sweep, "--limits", "usd=5", check=2).output
        assert sentence("workers still run") in crew.wtb("retry", sweep, check=2).output
        crew.project.write({"busy-on": ""})
        crew.wait_completed(sweep)
        assert ran(crew.project, "first busy-0") == 1


class TestRetry:
    def test_gives_failed_cells_to_the_workers_and_spares_what_succeeded(self, crew: Cluster) -> None:
        sweep = submitted(crew, "repaired", breaks="repaired-by", cases=2)
        crew.wait_completed(sweep)
        assert crew.cells(sweep) == {"failed": 4}
        crew.project.write({"repaired-by": ""})
        document = crew.wtb("retry", sweep, "--wait", "--format", "json", "-q", check=0).json
        assert document["cells"]["succeeded"] == 4
        assert [ran(crew.project, f"first repaired-{n}") for n in range(2)] == [1, 1]

    def test_goes_to_the_queue_that_the_failed_node_names(self, crew: Cluster) -> None:
        crew.start_worker(queues="gpu")
        sweep = submitted(crew, "far", workflow="flow:remote", breaks="far-on", cases=1)
        crew.wait_completed(sweep)
        crew.workers.pop().stop()
        crew.project.write({"far-on": ""})
        crew.wtb("retry", sweep, check=0)
        waiting = "SELECT queue FROM executions WHERE sweep_id = :sweep AND status = 'pending'"
        assert crew.query(waiting, sweep=sweep) == [("gpu",)]
        crew.start_worker(queues="gpu")
        crew.wait_completed(sweep)
        assert crew.cells(sweep) == {"succeeded": 1}
        crew.workers.pop().stop()


class TestACancelledSweep:
    def test_ends_its_nodes_at_once_and_for_good(self, crew: Cluster) -> None:
        sweep = submitted(crew, "ends", gate="never", cases=3)
        wait_for_nodes(crew, "ends")
        nodes = processes(crew.project, "ends")
        assert nodes
        done = crew.wtb("cancel", sweep, "--yes", "--reason", "wrong prompt", check=0)
        assert "with 6 cells" in done.output
        ended_within(nodes, SOON_S)
        assert status_of(crew, sweep) == "cancelled"
        assert crew.cells(sweep) == {"cancelled": 6}
        assert not crew.query(
            "SELECT 1 FROM executions WHERE sweep_id = :sweep AND status IN ('pending', 'running')", sweep=sweep
        )
        assert not crew.query("SELECT 1 FROM node_runs WHERE sweep_id = :sweep AND status = 'running'", sweep=sweep)
        assert len(crew.events("sweep.cancelled", sweep)) == 1
        assert crew.wtb("cancel", sweep, check=0).output.endswith(": wrong prompt)")
        for command in ("resume", "retry"):
            assert sentence("start a new one with `wtb {}`", "submit") in crew.wtb(command, sweep, check=2).output
        crew.until(lambda: crew.query("SELECT 1 FROM working WHERE sweep_id = :s", s=sweep) == [], "slots to be free")

    def test_takes_nothing_that_a_worker_writes_late(self, crew: Cluster) -> None:
        sweep = submitted(crew, "late", gate="late-on", cases=1, run="{durability: sync}"[1:-1])
        wait_for_nodes(crew, "late")
        worker = crew.workers[0]
        worker.suspend()
        # It may hold locks of a transaction that it was in, until the scheduler ends that.
        crew.until(lambda: crew.wtb("cancel", sweep, "--yes").code == 0, "the sweep to be cancelled")
        crew.project.write({"late-on": ""})
        worker.wake()
        free = "SELECT 1 FROM working WHERE sweep_id = :sweep"
        crew.until(lambda: crew.query(free, sweep=sweep) == [], "the worker to let go of it")
        assert crew.cells(sweep) == {"cancelled": 2}
        assert not crew.query("SELECT 1 FROM scores WHERE sweep_id = :sweep", sweep=sweep)
        crew.wait_ready()

    def test_is_asked_for_first(self, crew: Cluster) -> None:
        sweep = submitted(crew, "asked", "--anyway", workflow="flow:remote")
        assert "give --yes" in crew.wtb("cancel", sweep, check=2).output
        assert crew.project.wtb("cancel", sweep, stdin="n\n", check=1, env=crew.env).output.endswith("was cancelled")
        assert status_of(crew, sweep) in ("pending", "running")
        crew.wtb("cancel", sweep, "--yes", check=0)

    def test_is_not_one_that_is_completed(self, crew: Cluster) -> None:
        sweep = crew.scalar("SELECT id FROM sweeps WHERE status = 'completed' LIMIT 1")
        assert sentence("is completed, so it cannot be cancelled") in crew.wtb("cancel", sweep, "--yes", check=2).output


@pytest.mark.parametrize("decision", ["pause", "cancel"])
def test_a_sweep_that_run_runs_is_told_too(empty_project: Project, decision: str) -> None:
    file = write_sweep(empty_project, "local", gate="local-on", cases=1)
    with empty_project.start("run", file, "--format", "json") as running:
        empty_project.until(lambda: ran(empty_project, "held local-0"), "the node to run")
        more = ["--yes"] if decision == "cancel" else []
        empty_project.wtb(decision, "local", *more, check=0)
        nodes = processes(empty_project, "local")
        if decision == "pause":
            empty_project.write({"local-on": ""})
        ended = running.wait(1)
    ended_within(nodes, SOON_S)
    ((status,),) = empty_project.query("SELECT status FROM sweeps")
    assert status == f"{decision.removesuffix('e')}{'led' if decision == 'cancel' else 'ed'}"
    assert ended.json["sweep"]["status"] == status


def test_a_broker_and_workers_are_nothing_to_a_sweep_that_run_made(crew: Cluster) -> None:
    file = write_sweep(crew.project, "alone", gate="alone-on", cases=1)
    with crew.project.start("run", file, env=crew.env) as running:
        crew.until(lambda: ran(crew.project, "held alone-"), "the node to run")
        running.signal(signal.SIGKILL)
    crew.project.write({"alone-on": ""})
    done = crew.wtb("resume", "alone", "-q", check=0)
    assert "alone (completed)" in done.stdout
    assert crew.query("SELECT queued FROM sweeps WHERE name = 'alone'") == [(False,)]


# Races, in the database alone.

RUNNER = WorkerIdentity("one", "here", "b", 1, 0.0, worker="w", queues=[""], slots=1, version="")


@pytest.fixture
def database(prepared_postgres_url: str) -> Any:
    database = Database(prepared_postgres_url)
    leases.register(database, RUNNER)
    yield database
    database.close()


def put_sweep(database: Database, id: str, cases: int) -> None:
    common = {"project": None, "spec": {}, "graph_id": "g" * 64, "graph": {"name": "w", "version": ""}}
    sweep = NewSweep(
        id=id, name="s", session="default", choices=[{"a": "v"}], repeats=1, share=True, cells=cases,
        fingerprints={}, queued=True, **common,
    )  # fmt: skip
    submit(database, sweep, [NewCase(str(n), {"x": Value.of(n)}, None) for n in range(cases)])


def at_once(*jobs: Callable[[], object]) -> list[Exception | None]:
    """Run jobs side by side and return the exception of each, if any."""
    raised: list[Exception | None] = [None] * len(jobs)
    start = threading.Barrier(len(jobs))

    def run(number: int) -> None:
        start.wait()
        try:
            jobs[number]()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            raised[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_a_sweep_that_ends_while_it_is_cancelled_has_one_end(database: Database) -> None:
    ends = []
    for number in range(RACES):
        sweep = f"sweep{number}"
        put_sweep(database, sweep, 1)
        leases.move_sweep(database, sweep, "running")
        with database.write() as connection:
            of = executions.c.sweep_id == sweep
            connection.execute(executions.update().where(of).values(status="completed"))
            connection.execute(cells.update().where(cells.c.sweep_id == sweep).values(status="succeeded"))
        completed, cancelled = at_once(
            lambda sweep=sweep: maintenance.finish(database, sweep),
            lambda sweep=sweep: control.cancel(database, sweep, reason="r", by="me"),
        )
        assert completed is None
        assert cancelled is None or isinstance(cancelled, ConflictError), cancelled
        with database.read() as connection:
            status = connection.scalar(sa.select(sweeps.c.status).where(sweeps.c.id == sweep))
            kinds = sa.select(events.c.kind).where(events.c.sweep_id == sweep)
            final = [kind for kind in connection.scalars(kinds) if kind in ("sweep.completed", "sweep.cancelled")]
        assert final == [f"sweep.{status}"]
        assert (status == "completed") == (cancelled is not None)
        ends.append(status)
    assert len(ends) == RACES


def test_what_forks_and_what_is_claimed_while_a_sweep_is_cancelled_is_cancelled_too(database: Database) -> None:
    slot = Slot("one", 0, ("",))
    for number in range(RACES):
        sweep = f"sweep{number}"
        put_sweep(database, sweep, 4)
        parent, *_ = claim_next(database, slot)

        def fork(parent: ExecutionRow = parent, sweep: str = sweep, number: int = number) -> None:
            batch = Batch()
            child = {
                key: getattr(parent, key) for key in ("session_id", "sweep_id", "case_number", "repeat", "combinations")
            }
            child |= {"id": f"child{number}", "parent_id": parent.id, "origin": "fork", "status": "running"}
            child |= {"owner_id": "one", "token": 1, "lease_until": None, "kills": 0, "created_at": time.time()}
            change = {"status": "forked", "owner_id": None, "lease_until": None}
            batch.add(parent.id, parent.token, born=[child], change=change)
            flush(database, batch, 30.0)

        raised = at_once(
            fork,
            lambda: claim_next(database, slot),
            lambda sweep=sweep: control.cancel(database, sweep, reason="r", by="me"),
        )
        assert raised == [None, None, None]
        with database.read() as connection:
            of = sa.select(executions.c.status).where(executions.c.sweep_id == sweep)
            assert set(connection.scalars(of)) <= {"cancelled", "forked"}
            of = sa.select(cells.c.status).where(cells.c.sweep_id == sweep)
            assert set(connection.scalars(of)) == {"cancelled"}
        assert claim_next(database, slot) == []


def test_a_pause_at_the_first_claim_of_a_sweep_holds(database: Database) -> None:
    slot = Slot("one", 0, ("",))
    for number in range(RACES):
        sweep = f"sweep{number}"
        put_sweep(database, sweep, 4)
        raised = at_once(
            lambda: claim_next(database, slot), lambda sweep=sweep: control.pause(database, sweep, reason="r", by="me")
        )
        assert raised == [None, None]
        with database.read() as connection:
            assert connection.scalar(sa.select(sweeps.c.status).where(sweeps.c.id == sweep)) == "paused"


def test_what_has_begun_is_claimed_before_roots_that_have_not(database: Database) -> None:
    put_sweep(database, "sweep", 4)
    with database.write() as connection:
        *roots, started = connection.scalars(sa.select(executions.c.id).order_by(executions.c.id))
        connection.execute(executions.update().where(executions.c.id == started).values(head_id="checkpoint"))
    claimed = [row for number in range(4) for row in claim_next(database, Slot("one", number, ("",)))]
    assert [row.id for row in claimed] == [started, *roots][: len(claimed)]
