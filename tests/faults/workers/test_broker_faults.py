"""A broker that is emptied, killed, hanging or full: work goes on, or begins again by itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.faults.workers.test_queue_messages import each_ran
from tests.support.cluster import Cluster
from tests.support.invariants import CELLS, noted, trail_is_complete, write_trail
from tests.support.project import Project

CASES = 3
AGAIN_S = 60.0  # from a broker that is back to work that goes on
ANSWER_S = 30.0  # of a command, where the broker gives none: the start of a process included


def two_workers(cluster: Cluster) -> None:
    cluster.take_time()
    cluster.start_two()


def first_node_waits_alone(cluster: Cluster) -> None:
    """Wait until c0's first node is held and all else has ended: submissions ask the broker for free slots."""
    cluster.until(lambda: "c0/a=default" in {note.trail for note in noted(cluster.project)}, "a node to wait")
    cluster.until(lambda: cluster.cells()["succeeded"] == (CASES - 1) * CELLS, "the other cases to end")


def begun_count(project: Project) -> int:
    return len(noted(project, "begun"))


def open_gate(project: Project) -> None:
    project.write({"gate": ""})


def all_live(cluster: Cluster) -> None:
    """Assert that no process ended because of the broker."""
    for member in (*cluster.workers, *cluster.schedulers):
        assert member.lives, member.log


@contextmanager
def hanging(cluster: Cluster) -> Iterator[None]:
    """Have the broker answer nothing during the block."""
    server = cluster.valkey.pid
    assert server is not None
    os.kill(server, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server, signal.SIGCONT)


def gate_opens(cluster: Cluster) -> None:
    """Open the gate, and wait until what runs goes on."""
    before = begun_count(cluster.project)
    open_gate(cluster.project)
    cluster.until(lambda: begun_count(cluster.project) > before, "what runs to go on without a broker")


def timed(what: Callable[[], object]) -> float:
    began = time.monotonic()
    what()
    return time.monotonic() - began


@pytest.mark.slow
def test_a_sweep_survives_a_broker_that_is_emptied_again_and_again(cluster: Cluster) -> None:
    """Fault 8: before anybody could claim anything, between any two node runs, and with a queue that is gone."""
    write_trail(cluster.project, CASES)
    cluster.submit("sweep.yaml", "--anyway")
    cluster.redis().flushall()
    two_workers(cluster)
    seen = -1

    def flush() -> bool:
        nonlocal seen
        if begun_count(cluster.project) != seen:
            seen = begun_count(cluster.project)
            cluster.redis().flushall()
        return cluster.cells() == {"succeeded": CASES * CELLS}

    cluster.until(flush, "the sweep to end although the broker forgets everything")
    cluster.submit()
    cluster.redis().flushall()
    all_live(cluster)
    cluster.ends_well({"succeeded": 2 * CASES * CELLS})
    each_ran(cluster.project, 2, CASES)


def test_work_continues_by_itself_when_a_broker_that_was_killed_is_back(cluster: Cluster) -> None:
    """Fault 9: what runs runs on, what is submitted meanwhile is kept, and both sweeps end."""
    write_trail(cluster.project, CASES, params="{hold: [b c0, c c0, a c1]}")
    two_workers(cluster)
    first = cluster.submit()
    cluster.until(lambda: cluster.cells()["succeeded"] == CELLS, "all but the nodes that wait to end")
    cluster.valkey.kill()
    second = cluster.submitted_without_broker()
    cluster.valkey.start()
    back = time.monotonic()
    open_gate(cluster.project)
    cluster.wait_completed(first, second, patience=AGAIN_S)
    print(f"both sweeps ended {time.monotonic() - back:.1f} s after the broker was back")
    all_live(cluster)
    cluster.ends_well({"succeeded": 2 * CASES * CELLS})
    each_ran(cluster.project, 2, CASES)


@pytest.mark.slow
def test_idle_workers_take_up_work_within_a_minute_of_the_broker_being_back(cluster: Cluster) -> None:
    """Fault 9, with nothing to do meanwhile: nobody may be asleep for good."""
    write_trail(cluster.project, 1)
    two_workers(cluster)
    cluster.valkey.kill()
    sweep = cluster.submitted_without_broker()
    for worker in cluster.workers:
        cluster.until(lambda worker=worker: "onnect" in worker.log, "the worker to say that the broker is gone")
    cluster.valkey.start()
    took = timed(lambda: cluster.wait_completed(sweep, patience=AGAIN_S))
    print(f"the sweep ended {took:.1f} s after the broker was back")
    all_live(cluster)
    cluster.ends_well({"succeeded": CELLS})


@pytest.mark.slow
def test_a_broker_that_hangs_delays_nobody_for_long(cluster: Cluster) -> None:
    """Fault 10: a submission is bounded, what runs goes on, and the rest follows when the broker answers again."""
    write_trail(cluster.project, CASES, params="{hold: [a c0]}")
    two_workers(cluster)
    first = cluster.submit()
    first_node_waits_alone(cluster)
    with hanging(cluster):
        took = timed(lambda: cluster.submitted_without_broker())
        gate_opens(cluster)
    assert took < ANSWER_S
    cluster.wait_completed(first, patience=AGAIN_S)
    all_live(cluster)
    cluster.ends_well({"succeeded": 2 * CASES * CELLS}, patience=AGAIN_S)
    each_ran(cluster.project, 2, CASES)


@pytest.mark.slow
def test_a_scheduler_that_rings_in_vain_takes_back_what_a_killed_worker_held(cluster: Cluster) -> None:
    """Fault 10: while the broker hangs, an answer of which would be waited for longer than this test has patience."""
    write_trail(cluster.project, CASES, params="{hold: [a c0]}")
    cluster.start_scheduler()
    cluster.start_worker(concurrency=2)
    cluster.submit()
    first_node_waits_alone(cluster)
    with hanging(cluster):
        cluster.submitted_without_broker()  # for its free slot the scheduler rings, and gets no answer
        cluster.workers[0].kill()
        cluster.until(lambda: cluster.events("execution.taken_back"), "the work to be taken back", patience=12)
    cluster.start_worker(concurrency=2)
    open_gate(cluster.project)
    cluster.ends_well({"succeeded": 2 * CASES * CELLS}, patience=AGAIN_S)


@pytest.mark.slow
def test_a_full_broker_keeps_no_submission_out(cluster: Cluster) -> None:
    """Fault 11: what runs goes on, what is submitted is kept and said to wait, and begins when there is room."""
    write_trail(cluster.project, CASES, params="{hold: [a c0]}")
    two_workers(cluster)
    first = cluster.submit()
    first_node_waits_alone(cluster)
    cluster.redis().config_set("maxmemory-policy", "noeviction")
    cluster.redis().config_set("maxmemory", "1mb")
    second = cluster.submitted_without_broker()
    gate_opens(cluster)
    cluster.redis().config_set("maxmemory", "0")
    cluster.wait_completed(first, second, patience=AGAIN_S)
    all_live(cluster)
    cluster.ends_well({"succeeded": 2 * CASES * CELLS})
    each_ran(cluster.project, 2, CASES)


@pytest.mark.slow
def test_a_sweep_without_workers_waits_as_tasks_that_an_autoscaler_sees(cluster: Cluster) -> None:
    write_trail(cluster.project, 1)
    cluster.submit("sweep.yaml", "--anyway")
    assert cluster.messages() == 1
    assert cluster.scheduler_once().json["published"] == 0, "it is published, and no slot is free for which to send it"
    assert cluster.messages() == 1
    cluster.start_scheduler()
    cluster.start_worker()
    all_live(cluster)
    cluster.ends_well({"succeeded": CELLS})
    trail_is_complete(cluster.project, 1)
