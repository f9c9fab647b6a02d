"""Faults 12, 13 and 18: PostgreSQL crashes, connections break at any moment, a worker's clock is wrong."""

from __future__ import annotations

import random
import time

import psycopg
import pytest
from sqlalchemy import make_url

from tests.faults.workers.cutting_proxy import CuttingProxy
from tests.faults.workers.reclaiming import trail_ends_well
from tests.support.cluster import Cluster, MakeCluster
from tests.support.invariants import CELLS, files_are_whole, write_trail
from tests.support.prose import sentence

RECOVERY_S = 30.0  # the start of a worker included, on a machine that does other things too; `make chaos` measures it
PATIENCE_S = 240.0  # for a sweep whose workers lose their work again and again
# Else PostgreSQL itself forgets what it said it had committed.
COMMITS_LAST = {"synchronous_commit": "on"}


def further_along(cluster: Cluster, lines: int) -> None:
    """Wait until nodes have said so much more, or the sweep has ended."""
    enough = len(cluster.project.log()) + lines
    cluster.until(
        lambda: len(cluster.project.log()) >= enough or "completed" in cluster.sweeps().values(), "progress", PATIENCE_S
    )


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["20ms", "sync"])
def test_a_sweep_completes_while_its_database_crashes_again_and_again(
    make_cluster: MakeCluster, durability: str
) -> None:
    dice = random.Random(12)
    cluster = make_cluster(postgres=COMMITS_LAST)
    assert cluster.postgres is not None
    write_trail(cluster.project, 8, params="{seconds: 0.05}", durability=durability)
    cluster.start_two()
    cluster.submit()
    for crash in range(5):
        further_along(cluster, dice.randint(4, 16))
        if crash % 2:
            cluster.postgres.kill()
        else:
            cluster.postgres.stop(immediate=True)
        cluster.postgres.start()
    cluster.wait_completed(patience=PATIENCE_S)
    trail_ends_well(cluster, 8)
    files_are_whole(cluster.project)


@pytest.mark.slow
def test_parts_that_start_while_the_servers_are_away_wait_and_continue_when_they_are_back(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(postgres=COMMITS_LAST)
    assert cluster.postgres is not None
    write_trail(cluster.project, 6, params="{seconds: 0.05}")
    first = [cluster.start_scheduler(), cluster.start_worker(concurrency=2)]
    cluster.submit()
    further_along(cluster, 4)
    cluster.postgres.kill()
    cluster.valkey.kill()
    for member in first:
        member.end()
    scheduler, worker = cluster.start_scheduler(), cluster.start_worker(concurrency=2, ready=False)
    for member in (scheduler, worker):
        cluster.until(lambda member=member: "waiting for a server: database" in member.log, "it to wait")
    scheduler.end()
    scheduler = cluster.start_scheduler()
    cluster.until(lambda: "waiting for a server: database" in scheduler.log, "it to wait")
    cluster.postgres.start()
    cluster.until(lambda: "waiting for a server: broker" in worker.log, "it to wait for the broker")
    cluster.until(lambda: "the servers are there" in scheduler.log, "the scheduler to go on")
    assert (scheduler.lives, worker.lives) == (True, True)
    cluster.valkey.start()
    back = time.monotonic()
    cluster.wait_ready(worker)
    further_along(cluster, 1)
    assert time.monotonic() - back < RECOVERY_S, worker.log
    cluster.wait_completed(patience=PATIENCE_S)
    for member in (scheduler, worker):
        assert len(member.log.splitlines()) < 20, member.log
    trail_ends_well(cluster, 6)


def test_a_part_that_is_not_let_in_ends_at_once_and_says_why(cluster: Cluster) -> None:
    wrong = make_url(cluster.project.url or "").set(password="wrong").render_as_string(hide_password=False)
    for command in ("worker", "scheduler"):
        refused = cluster.wtb(command, env={"WTB_DATABASE_URL": wrong}, check=4)
        assert "password authentication failed" in refused.output
        assert "wrong" not in refused.output
    refused = cluster.wtb(
        "worker", env={"WTB_BROKER_URL": cluster.valkey.url.replace("redis://:", "redis://:not")}, check=4
    )
    assert sentence("rejected the password") in refused.output


@pytest.mark.slow
def test_a_sweep_completes_while_connections_are_terminated_at_random_moments(cluster: Cluster) -> None:
    dice = random.Random(13)
    write_trail(cluster.project, 6, params="{seconds: 0.01}")
    cluster.start_scheduler()
    cluster.start_worker(concurrency=2)
    cluster.submit()
    ended = 0
    with psycopg.connect(cluster.libpq_url, autocommit=True) as admin:
        for _ in range(10):
            further_along(cluster, 2)
            time.sleep(dice.random() * 0.05)  # any moment
            victims = "pid <> pg_backend_pid() AND datname = current_database() AND usename = current_user"
            cluster.project.close()  # the connections of this test, which asks anew
            ended += len(
                admin.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {victims}").fetchall()
            )
    assert ended >= 10
    cluster.wait_completed(patience=PATIENCE_S)
    trail_ends_well(cluster, 6)


@pytest.mark.parametrize("durability", ["20ms", pytest.param("sync", marks=pytest.mark.slow)])
def test_a_sweep_completes_although_the_outcome_of_commits_stays_unknown(cluster: Cluster, durability: str) -> None:
    write_trail(cluster.project, 6, params="{seconds: 0.01}", durability=durability)
    url = make_url(cluster.project.url or "")
    assert url.host
    assert url.port
    with CuttingProxy((url.host, url.port), seed=13, every=12, max_cuts=8) as proxy:
        env = {"WTB_DATABASE_URL": url.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)}
        cluster.start_scheduler(env=env)
        cluster.start_worker(concurrency=2, env=env)
        cluster.submit()
        cluster.wait_completed(patience=PATIENCE_S)
        trail_ends_well(cluster, 6)
        assert proxy.cut["committed"]
        assert proxy.cut["not committed"]


# As libfaketime would have it, for the one clock that tells the time of day.
LATE_CLOCK = """
import time

_time = time.time
time.time = lambda: _time() + {seconds}
"""


@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.slow
def test_a_worker_whose_clock_is_an_hour_off_keeps_its_leases_and_takes_no_others(cluster: Cluster, hours: int) -> None:
    write_trail(cluster.project, 4, params="{seconds: 0.3}")  # a lease is three of them
    cluster.project.write({"clock/sitecustomize.py": LATE_CLOCK.format(seconds=3600 * hours)})
    off = {"PYTHONPATH": str(cluster.project.folder / "clock")}
    cluster.start_scheduler(env=off)
    right = cluster.start_worker(ready=False)
    wrong = cluster.start_worker(ready=False, env=off)
    cluster.wait_ready()
    cluster.submit()
    cluster.wait_completed()
    ahead = dict(cluster.query("SELECT worker, clock_s FROM runners WHERE worker IS NOT NULL"))
    assert ahead[wrong.name] == pytest.approx(3600 * hours, abs=60)
    assert ahead[right.name] == pytest.approx(0, abs=60)
    assert cluster.events("execution.taken_back") == []
    cluster.ends_well({"succeeded": 4 * CELLS})
