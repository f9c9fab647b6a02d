"""Fault 28: workers are stopped and replaced while a sweep runs; cancel, pause and resume meet its work."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from contextlib import suppress

import pytest

from tests.faults.workers.reclaiming import (
    at_work,
    held_by,
    runners_of,
    start_held,
    trail_ends_well,
    wait_for_claims,
)
from tests.support.amounts import examples
from tests.support.cluster import STARTING_S, Cluster
from tests.support.invariants import (
    A_CASE,
    CELLS,
    Before,
    files_are_whole,
    nothing_committed_ran_again,
    nothing_is_left,
    write_trail,
)
from wtb.core.errors import ConflictError
from wtb.store.control import sweeps as control
from wtb.store.database import Database
from wtb.store.read.queries import event_rows

QUICK_S = 2.0  # which a second signal takes at most on a quiet machine
BUSY_S = 10.0


@pytest.mark.slow
def test_workers_that_are_replaced_one_after_the_other_lose_and_double_nothing(cluster: Cluster) -> None:
    write_trail(cluster.project, 12, params="{seconds: 0.5}")
    cluster.take_time()  # what is not given back waits for longer than this test does
    cluster.start_scheduler()
    workers = [cluster.start_worker(concurrency=2, ready=False) for _ in range(4)]
    cluster.wait_ready()
    cluster.submit()
    for old in workers[:2]:
        cluster.until(lambda old=old: held_by(cluster, runners_of(old)), "it to have work")
        old.stop()
        assert runners_of(old) == set()
    before = Before.of(cluster.project)
    trail_ends_well(cluster, 12)
    nothing_committed_ran_again(cluster.project, before)
    assert cluster.events("execution.taken_back") == []
    files_are_whole(cluster.project)


def test_a_node_that_outlasts_its_grace_is_released_at_once(cluster: Cluster) -> None:
    cluster.take_time()
    first = start_held(cluster, "grace: 0.5s")
    second = cluster.start_worker()
    tokens = held_by(cluster, runners_of(first))
    told_at = time.monotonic()
    first.signal(signal.SIGTERM)
    wait_for_claims(cluster, tokens, told_at)
    cluster.project.write({"gate": ""})
    first.running.wait(check=0)
    assert second.lives
    trail_ends_well(cluster, 1)
    assert cluster.events("execution.taken_back") == []


@pytest.mark.parametrize(
    "signals",
    [
        *(
            pytest.param(signals, marks=pytest.mark.slow)
            for signals in (2 * (signal.SIGTERM,), 2 * (signal.SIGINT,), (signal.SIGTERM, signal.SIGQUIT))
        ),
        (signal.SIGQUIT,),
    ],
    ids=lambda signals: "-".join(sig.name for sig in signals),
)
def test_a_second_signal_or_sigquit_is_quick_whatever_grace_nodes_have(
    cluster: Cluster, signals: tuple[signal.Signals, ...]
) -> None:
    cluster.take_time()
    first = start_held(cluster, "grace: 600s")
    tokens = held_by(cluster, runners_of(first))
    *gentle, last = signals
    for number in gentle:
        first.signal(number)
        with pytest.raises(subprocess.TimeoutExpired):  # the node has its grace
            first.running.wait(timeout=QUICK_S)
    told_at = time.monotonic()
    first.signal(last)
    code = 1 if signal.SIGINT in signals else 0  # as Celery has it
    first.running.wait(check=code, timeout=BUSY_S)
    cluster.start_worker()
    wait_for_claims(cluster, tokens, told_at, STARTING_S)
    cluster.project.write({"gate": ""})
    trail_ends_well(cluster, 1)
    assert cluster.events("execution.taken_back") == []


@pytest.mark.slow
def test_a_sweep_that_is_paused_in_the_middle_continues_where_it_was(cluster: Cluster) -> None:
    write_trail(cluster.project, 6, params="{seconds: 0.6}")
    cluster.take_time()
    cluster.start_scheduler()
    worker = cluster.start_worker(concurrency=2)
    sweep = cluster.submit()
    cluster.until(lambda: len(at_work(cluster)) == 2, "work")
    cluster.wtb("pause", sweep, check=0)
    cluster.until(lambda: not cluster.executions("running"), "all to be given back", 20)
    before = Before.of(cluster.project)
    assert cluster.sweeps() == {sweep: "paused"}
    assert 0 < before.committed.total() < 6 * A_CASE
    for _ in range(2):
        cluster.scheduler_once()  # in which nothing may happen
    assert Before.of(cluster.project) == before
    cluster.wtb("resume", sweep, "--quiet", check=0)
    assert worker.lives
    trail_ends_well(cluster, 6)
    nothing_committed_ran_again(cluster.project, before)


@pytest.mark.slow
def test_a_sweep_that_is_cancelled_as_it_ends_has_one_end(cluster: Cluster) -> None:
    """The later it is cancelled the more of it is there; what has an outcome keeps it."""
    dice = random.Random(28)
    write_trail(cluster.project, 1, params="{seconds: 0}")
    cluster.take_time()
    cluster.start_scheduler()
    worker = cluster.start_worker(concurrency=2)
    database = Database(cluster.project.url or "")
    sweeps = []
    for _ in range(examples(8)):
        sweep = cluster.submit()
        enough = dice.randint(1, 4)
        cluster.until(lambda s=sweep, e=enough: cluster.cells(s)["succeeded"] >= e, "cells")
        with suppress(ConflictError):
            control.cancel(database, sweep, reason="a race", by="the test")
        sweeps.append(sweep)
    assert worker.lives
    cluster.until(lambda: not cluster.executions("running", "pending"), "all to end", 20)
    cluster.until(lambda: set(cluster.sweeps().values()) <= {"cancelled", "completed"}, "sweeps to end")
    cluster.stop()
    for sweep in sweeps:
        has_one_end(cluster, database, sweep)
    database.close()
    nothing_is_left(cluster.project)


def has_one_end(cluster: Cluster, database: Database, sweep: str) -> None:
    """Its cells, its events and its status say the same."""
    status = cluster.sweeps()[sweep]
    ends = [kind for kind in ("completed", "cancelled") for _ in cluster.events(f"sweep.{kind}", sweep)]
    assert ends == [status]
    cells = cluster.cells(sweep)
    assert cells.total() == CELLS
    assert set(cells) <= ({"succeeded"} if status == "completed" else {"succeeded", "cancelled"})
    rows = event_rows(database, sweep, kinds=["cell.succeeded"])
    reported = [(row["data"]["case"], row["data"]["combination"]) for row in rows]
    assert len(reported) == len(set(reported)) == cells["succeeded"]
    scored = "SELECT count(*) FROM scores WHERE sweep_id = :id"
    assert cluster.scalar(scored, id=sweep) == cells["succeeded"]
