"""Several submitters and schedulers at once, killed schedulers, and a database that takes no more connections."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import psycopg
import pytest

from tests.faults.workers.test_queue_messages import each_ran
from tests.support.cluster import Cluster, MakeCluster, Member
from tests.support.invariants import CELLS, noted, write_trail

CASES = 2
SUBMITTERS = 4
KILLS = 3  # of schedulers
MOST_CONNECTIONS = 14
TAKING_S = 15.0  # of a command that finds no connection, the start of a process included


@pytest.mark.slow
def test_submitters_and_schedulers_at_once_make_each_cell_and_each_end_once(cluster: Cluster) -> None:
    """Fault 15, with schedulers killed at any moment."""
    dice = random.Random(15)
    write_trail(cluster.project, CASES)
    cluster.take_time()
    cluster.start_two(every=0.05)
    with ExitStack() as hands:
        submitting = [
            hands.enter_context(cluster.project.start("submit", "sweep.yaml", env=cluster.env))
            for _ in range(SUBMITTERS)
        ]
        killed = 0

        def ended() -> bool:
            nonlocal killed
            living = [scheduler for scheduler in cluster.schedulers if scheduler.lives]
            if len(living) < 2 and killed < KILLS:
                cluster.start_scheduler(every=0.05)
            started = [scheduler for scheduler in living if "scheduler: every" in scheduler.log]
            if started and killed < KILLS and dice.random() < 0.1:
                started[0].kill()
                killed += 1
            for submission in submitting:
                if submission.process.poll() is not None:
                    submission.wait(check=0)
            completed = [status for status in cluster.sweeps().values() if status == "completed"]
            return len(completed) == SUBMITTERS

        cluster.until(ended, "all sweeps to end")
    assert killed
    cluster.ends_well({"succeeded": SUBMITTERS * CASES * CELLS})
    each_ran(cluster.project, SUBMITTERS, CASES)


def test_two_sweeps_submitted_without_a_scheduler_end_by_their_workers_alone(cluster: Cluster) -> None:
    """The scheduler repairs; without faults nothing waits for it."""
    write_trail(cluster.project, CASES)
    cluster.take_time()
    cluster.start_worker(concurrency=2, ready=False)
    cluster.start_worker(concurrency=2, ready=False)
    cluster.wait_ready()
    cluster.submit()
    cluster.submit()
    cluster.ends_well({"succeeded": 2 * CASES * CELLS})
    each_ran(cluster.project, 2, CASES)


@contextmanager
def no_connections(cluster: Cluster) -> Iterator[None]:
    """Take every connection of the database, those of the cluster's members included, until the end."""
    url = cluster.libpq_url
    name = "taker"
    with ExitStack() as hands:
        first = hands.enter_context(psycopg.connect(url, autocommit=True, application_name=name))
        query = (
            f"SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> '{name}'"
        )
        # One that is ending keeps its place a little longer: all are taken only when there was neither one of the
        # others nor a place left.
        some = True
        while some:
            some = False
            for (pid,) in first.execute(query).fetchall():
                some = True
                first.execute("SELECT pg_terminate_backend(%s)", [pid])
            with suppress(psycopg.OperationalError):
                while True:
                    hands.enter_context(psycopg.connect(url, autocommit=True, application_name=name))
                    some = True
            some = some or first.execute(query).fetchone() is not None
        yield


@pytest.mark.slow
def test_a_database_without_connections_is_said_by_all_and_the_sweep_ends_when_there_are_some(
    make_cluster: MakeCluster,
) -> None:
    """Fault 14."""
    cluster = make_cluster(postgres={"max_connections": str(MOST_CONNECTIONS), "superuser_reserved_connections": "0"})
    write_trail(cluster.project, CASES, params="{hold: [a c0]}")
    cluster.start_worker(concurrency=2, ready=False)
    cluster.start_worker(ready=False)
    scheduler = cluster.start_scheduler()
    cluster.wait_ready()
    sweep = cluster.submit()
    cluster.until(lambda: any(note.trail == "c0/a=default" for note in noted(cluster.project)), "a node to wait")
    cluster.project.close()
    with no_connections(cluster):
        began = time.monotonic()
        done = cluster.wtb("submit", "sweep.yaml")
        assert (done.code, done.stdout) == (4, ""), done.stderr
        assert "too many clients" in done.output or "connection slots" in done.output
        assert "Traceback" not in done.stderr
        assert time.monotonic() - began < TAKING_S
        cluster.until(lambda: says_so(scheduler), "the scheduler to say what is wrong")
        cluster.until(lambda: all(map(says_so, cluster.workers)), "the workers to say what is wrong")
        cluster.project.write({"gate": ""})
    cluster.wait_completed(sweep)
    cluster.ends_well({"succeeded": CASES * CELLS})
    for member in (*cluster.workers, scheduler):
        assert "Traceback" not in member.log


def says_so(member: Member) -> bool:
    return "too many clients" in member.log or "connection slots" in member.log


@pytest.mark.slow
def test_nothing_to_do_costs_next_to_nothing_and_rings_no_bell(cluster: Cluster) -> None:
    """At rest: no message, and less than a tenth of a core for two workers and a scheduler ten times as quick."""
    cluster.take_time()
    scheduler = cluster.start_two(every=0.5)
    cluster.until(lambda: "scheduler: every" in scheduler.log, "the scheduler to start")
    write_trail(cluster.project, 1)
    sweep = cluster.submit()
    cluster.wait_completed(sweep)
    cluster.until(lambda: cluster.query("SELECT * FROM working") == [], "all slots to be free")
    pushed = pushes(cluster)
    began, used = time.monotonic(), cluster.cpu_s()
    cluster.until(lambda: time.monotonic() - began > 5, "five seconds to pass")
    share = (cluster.cpu_s() - used) / (time.monotonic() - began)
    print(f"{100 * share:.1f}% of a core at rest")
    assert pushes(cluster) == pushed
    assert cluster.messages() == 0
    assert share < 0.1
    cluster.ends_well({"succeeded": CELLS})


def pushes(cluster: Cluster) -> int:
    """Return the number of messages that were ever sent."""
    stats = cluster.redis().info("commandstats")
    return int(stats.get("cmdstat_lpush", {"calls": 0})["calls"])
