"""Fault 5, a worker that comes back after its lease; fault 6, one whose heartbeat ends."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from tests.faults.workers.reclaiming import (
    HOLD,
    RECLAIM_S,
    at_work,
    held_by,
    start_held,
    trail_ends_well,
    wait_for_claims,
    wait_for_nodes,
)
from tests.support.attempts import ATTEMPTS
from tests.support.cluster import Cluster, Worker
from tests.support.invariants import CELLS, committed, expected_trails, lives, noted, write_trail
from wtb.store.runs.maintenance import SILENT_S

SLOW = pytest.mark.slow
IN_HEARTBEAT = "while another one is at work, and stopped in the middle of a heartbeat"


@pytest.mark.parametrize(
    "moment",
    [
        "while another one is at work",
        pytest.param(IN_HEARTBEAT, marks=SLOW),
        pytest.param("when all is done", marks=SLOW),
    ],
)
def test_a_worker_that_comes_back_has_every_write_refused_and_is_of_use_again(cluster: Cluster, moment: str) -> None:
    zombie = start_held(cluster)
    (sweep,) = cluster.sweeps()
    ((runner, process),) = zombie.runners().items()
    tokens = held_by(cluster, [runner])

    if moment == IN_HEARTBEAT:
        suspend_in_heartbeat(cluster, zombie, runner)
    else:
        zombie.suspend()
    other = cluster.start_worker()
    wait_for_claims(cluster, tokens, time.monotonic())
    wait_for_nodes(cluster, 2)  # the same one twice
    assert len({note.trail for note in at_work(cluster)}) == 1
    cluster.until(lambda: cluster.scalar("SELECT max(attempts) FROM node_runs") == 2, "the second attempt to be known")
    if moment == "when all is done":
        finish_with(cluster, other)
    recorded = rows_of(cluster, sweep)
    zombie.wake()
    wait_until_seen(cluster, zombie)
    assert rows_of(cluster, sweep) == recorded
    if moment != "when all is done":
        finish_with(cluster, other)
        recorded = rows_of(cluster, sweep)
    zombies_node = noted(cluster.project, "begun")[0].pid
    cluster.until(
        lambda: not lives(zombies_node) or any(note.pid == zombies_node for note in noted(cluster.project, "ended")),
        "its node to end",
    )

    cluster.submit()  # only the zombie is left to do it, with the slot that was in that node
    cluster.wait_completed()
    assert rows_of(cluster, sweep) == recorded
    assert list(zombie.runners().values()) == [process]
    if moment == IN_HEARTBEAT:
        assert runner not in zombie.runners()
    cluster.ends_well({"succeeded": 2 * CELLS})
    assert committed(cluster.project) == Counter(2 * sorted(expected_trails(1)))


def finish_with(cluster: Cluster, worker: Worker) -> None:
    """Let the nodes end, and the sweep by this worker, which is not needed after that."""
    cluster.project.write({"gate": ""})
    cluster.wait_completed()
    worker.stop()


def suspend_in_heartbeat(cluster: Cluster, worker: Worker, runner: str) -> None:
    """Stop a worker process while it renews its leases; the scheduler ends such a transaction after SILENT_S."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with psycopg.connect(cluster.libpq_url) as locking:
        locking.execute("SELECT id FROM runners WHERE id = %s FOR UPDATE", [runner])
        ((backend,),) = cluster.until(lambda: cluster.query(waiting), "a heartbeat to wait for the lock")
        worker.suspend()
    alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = :pid"
    cluster.until(lambda: not cluster.scalar(alive, pid=backend), "its transaction to be ended", SILENT_S + RECLAIM_S)


def wait_until_seen(cluster: Cluster, worker: Worker) -> None:
    """Wait for two heartbeats of a worker from now on, under whatever identity.

    A transaction that was open when its process was stopped is ended by the database. On waking, the process finds it
    lost, and its leases expired: then it ends its session and starts another one, as another runner.
    """
    seen = "SELECT max(seen_at) FROM runners WHERE worker = :worker AND ended_at IS NULL"
    for _ in range(2):
        last = cluster.scalar("SELECT max(seen_at) FROM runners WHERE worker = :worker", worker=worker.name)
        cluster.until(lambda last=last: (cluster.scalar(seen, worker=worker.name) or 0.0) > last, "a heartbeat")


def rows_of(cluster: Cluster, sweep: str) -> dict[str, list[tuple[Any, ...]]]:
    """All that is recorded about a sweep, but for leases."""
    columns_of = {
        "executions": "id, status, token, head_id, losses, kills, finished_at",
        "node_runs": "id, status, attempts, started_at, duration_s",
        "checkpoints": "id, created_at",
        "cells": "case_number, combination, status, execution_id, finished_at",
        "events": "id, kind, at",
    }
    rows = {
        table: cluster.query(f"SELECT {columns} FROM {table} WHERE sweep_id = :sweep ORDER BY 1, 2", sweep=sweep)
        for table, columns in columns_of.items()
    }
    attempts = (
        f"SELECT node_run_id, number, attempts.status, attempts.started_at FROM {ATTEMPTS} "
        "JOIN node_runs r ON r.id = node_run_id "
        "WHERE sweep_id = :sweep ORDER BY 1, 2"
    )
    return {**rows, "attempts": cluster.query(attempts, sweep=sweep)}


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["20ms", pytest.param("sync", marks=SLOW)])
def test_a_worker_whose_heartbeat_ends_lets_go_and_comes_back_under_another_identity(
    cluster: Cluster, durability: str
) -> None:
    write_trail(cluster.project, 1, params=HOLD)
    spec = (cluster.project.folder / "sweep.yaml").read_text()
    cluster.project.write({"sweep.yaml": spec.replace("20ms", durability)})
    cluster.take_time()  # the fault strikes after a third of a lease, and nobody waits for its end
    cluster.start_scheduler()
    cluster.submit("sweep.yaml", "--anyway")
    worker = cluster.start_worker(env={"WTB_FAULT": "heartbeat:1:raise"})
    cluster.until(lambda: at_work(cluster, "held"), "a node to be held")
    nodes = {note.pid for note in at_work(cluster)}
    ((runner, process),) = worker.runners().items()
    tokens = held_by(cluster, [runner])
    assert tokens, "its heartbeat ended too early"

    query = "SELECT ended_at IS NOT NULL FROM runners WHERE id = :id"
    cluster.until(lambda: cluster.scalar(query, id=runner), "its first identity to end")
    ended_at = time.monotonic()
    cluster.until(lambda: not any(map(lives, nodes)), "its node to be ended", 1)
    wait_for_claims(cluster, tokens, ended_at)  # it released its executions: the lease is longer than we wait
    ((second, same),) = worker.runners().items()
    assert (second != runner, same) == (True, process)
    cluster.project.write({"gate": ""})
    trail_ends_well(cluster, 1)


@pytest.mark.slow
def test_a_process_stopped_in_the_middle_of_a_commit_keeps_no_lock_for_long(cluster: Cluster) -> None:
    """No timeout of PostgreSQL's ends a session that is silent within a pipeline."""
    start_held(cluster)
    with (
        psycopg.connect(cluster.libpq_url) as stopped,
        suppress(psycopg.OperationalError),
        stopped.pipeline() as pipeline,
    ):
        stopped.execute("SELECT id FROM sweeps FOR UPDATE")
        stopped.pgconn.send_flush_request()
        stopped.pgconn.flush()
        locks = "SELECT count(*) FROM pg_locks WHERE mode = 'RowShareLock' AND pid = :pid"
        pid = stopped.pgconn.backend_pid
        cluster.until(lambda: cluster.scalar(locks, pid=pid), "the lock to be held", 5)
        cluster.until(lambda: not cluster.scalar(locks, pid=pid), "the lock to be gone", SILENT_S + RECLAIM_S)
        pipeline.sync()
        pytest.fail("the session goes on")
    cluster.project.write({"gate": ""})
    trail_ends_well(cluster, 1)
