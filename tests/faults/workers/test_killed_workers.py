"""Faults 1 to 4 with workers: kill -9 of a worker, and at every named fault point."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests.faults.workers.reclaiming import (
    held_by,
    lose_claims,
    runners_of,
    trail_ends_well,
    wait_for_claims,
    wait_for_nodes,
)
from tests.support.cluster import Cluster
from tests.support.invariants import (
    A_CASE,
    Before,
    files_are_whole,
    lives,
    nodes_have_ended,
    nothing_committed_ran_again,
    write_trail,
)
from wtb.core.fault_points import POINTS

SLOTS = 2
HOLD = "{hold: [b c0, c c0, b c1, c c1]}"
WIDE = """
from wtb import END, Workflow

wf = Workflow("wide")


@wf.node
def first(state, *, by: int = 0):
    return {"first": by}


@wf.node
def second(state, *, by: int = 0):
    return {"second": by}


@wf.node
def third(state, *, by: int = 0):
    return {"third": by}


for node in (first, second, third):
    for by in range(1, VARIANTS):
        node.variant(f"v{by}", by=by)
wf.entry(first)
wf.edge(first, second)
wf.edge(second, third)
wf.edge(third, END)
"""
VARIANTS, WIDE_CASES = 6, 8


def test_a_killed_worker_takes_its_nodes_along_and_another_one_continues(cluster: Cluster) -> None:
    write_trail(cluster.project, 2, params=HOLD)
    cluster.start_scheduler()
    first = cluster.start_worker(concurrency=SLOTS)
    cluster.submit()
    wait_for_nodes(cluster, SLOTS)
    # Slots that are left when what it runs has taken one for each of its parallel nodes. It starts now, since one claim
    # for all of them could leave the first worker nothing.
    cluster.start_worker(concurrency=3 * SLOTS)
    tokens, family = held_by(cluster, runners_of(first)), first.family()
    before = Before.of(cluster.project)

    killed_at = time.monotonic()
    first.kill()
    assert tokens
    wait_for_claims(cluster, tokens, killed_at)
    cluster.until(lambda: not any(map(lives, family)), "its processes to end", 5)
    cluster.project.write({"gate": ""})
    trail_ends_well(cluster, 2)
    nothing_committed_ran_again(cluster.project, before)
    files_are_whole(cluster.project)


def test_what_was_lost_with_a_worker_is_a_suspect_for_one_node_run_only(cluster: Cluster) -> None:
    """It would be, with all that forks from it, to the end of its case, and each step of it a commit of its own."""
    vary = dict.fromkeys(("first", "second", "third"), "all")
    code = WIDE.replace("VARIANTS", str(VARIANTS))
    cluster.project.write_sweep("wide", code, WIDE_CASES, vary=vary, run={"durability": "300ms"})
    cluster.start_scheduler()
    cluster.submit("sweep.yaml", "--anyway")
    lost = lose_claims(cluster, SLOTS, 2)
    cluster.start_worker(concurrency=SLOTS)
    cluster.wait_completed()
    assert cluster.scalar("SELECT count(*) FROM executions WHERE losses > 0") == lost
    commits = dict(cluster.query("SELECT node, count(DISTINCT started_transaction) FROM node_runs GROUP BY node"))
    assert commits["third"] < WIDE_CASES * VARIANTS**3 / 10


# Every point that a worker passes, at a passing that leaves something to do. A sweep goes through several of them, so
# each is met by what those before it have left; through all of them, its first execution would be set aside.
IN_TURN = (
    (
        ("claim.committed", 1),
        ("node.starting", 3),
        ("node.answered", 4),
        ("journal.writing", 3),
    ),
    (
        ("claim.committed", 2),
        ("journal.committed", 2),
        ("files.publishing", 2),
        ("heartbeat", 2),
        ("task.done", 1),
    ),
)
# Of `wtb submit`, `wtb run` and `wtb delete`.
ELSEWHERE = {
    "submit.batch",
    "submit.written",
    "submit.committed",
    "finish.released",
    "copy.batch",
    "delete.hidden",
    "delete.part",
    "scoring.part",
}


def test_every_named_fault_point_that_workers_pass_is_tested() -> None:
    assert {point for turns in IN_TURN for point, _ in turns} | ELSEWHERE == set(POINTS)


def test_every_fault_point_of_the_code_is_named() -> None:
    root = Path(__file__).parents[3]
    modules = (path for package in ("wtb", "workers", "scheduler") for path in (root / package).rglob("*.py"))
    assert {name for path in modules for name in re.findall(r'^\s+point\("(.+?)"\)', path.read_text(), re.M)} == set(
        POINTS
    )


@pytest.mark.parametrize("turns", IN_TURN, ids=["claims and nodes", "commits and heartbeats"])
@pytest.mark.slow
def test_a_sweep_whose_workers_are_killed_at_fault_points_in_turn_completes(
    cluster: Cluster, turns: tuple[tuple[str, int], ...]
) -> None:
    write_trail(cluster.project, 4, params="{seconds: 0.05}")
    cluster.start_scheduler()
    cluster.submit("sweep.yaml", "--anyway")
    done: list[Before] = []
    for point, passing in turns:
        fault = {"WTB_FAULT": f"{point}:{passing}"}
        worker = cluster.start_worker(concurrency=SLOTS, env=fault, ready=False)
        cluster.until(lambda worker=worker: not worker.lives, f"{point} to strike")
        nodes_have_ended(cluster.project)
        done.append(Before.of(cluster.project))
        for before in done:
            nothing_committed_ran_again(cluster.project, before)
    assert 0 < done[-1].committed.total() < A_CASE * 4

    cluster.start_worker(concurrency=SLOTS)
    trail_ends_well(cluster, 4)
    for before in done:
        nothing_committed_ran_again(cluster.project, before)
    files_are_whole(cluster.project)
