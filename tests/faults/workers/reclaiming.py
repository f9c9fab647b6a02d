"""Executions that one worker loses and another one continues, and how long they wait."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from tests.support.cluster import LEASE_S, SCHEDULER_INTERVAL_S, Cluster, Worker
from tests.support.invariants import CELLS, Noted, committed, expected_trails, lives, noted, write_trail

# Lease and round are what it takes; the rest is for a machine that does other things too.
RECLAIM_S = LEASE_S + SCHEDULER_INTERVAL_S + 5.0
HOLD = "{hold: [b c0, c c0]}"


def start_held(cluster: Cluster, run: str = "") -> Worker:
    """A sweep of one case on one worker, at its nodes that wait for the gate."""
    write_trail(cluster.project, 1, params=HOLD, run=run)
    cluster.start_scheduler()
    worker = cluster.start_worker()
    cluster.submit()
    wait_for_nodes(cluster, 1)
    return worker


def lose_claims(cluster: Cluster, slots: int, passing: int) -> int:
    """Have a worker killed with what it has claimed. Returns how many executions that are."""
    worker = cluster.start_worker(concurrency=slots, env={"WTB_FAULT": f"claim.committed:{passing}"}, ready=False)
    cluster.until(lambda: not worker.lives, "it to be killed with what it has claimed")
    lost = cluster.scalar("SELECT count(*) FROM executions WHERE status = 'running'")
    assert lost > 1
    return int(lost)


def held_by(cluster: Cluster, runners: Iterable[str]) -> dict[str, int]:
    """Executions that these runners have claimed -> the token."""
    owners = set(runners)
    rows = cluster.query("SELECT id, token, owner_id FROM executions WHERE status = 'running'")
    return {id: token for id, token, owner in rows if owner in owners}


def wait_for_claims(cluster: Cluster, tokens: dict[str, int], since: float, patience: float = RECLAIM_S) -> float:
    """Wait until all of these were claimed by somebody else. Returns the seconds from `since` (monotonic) to then."""

    def are_claimed() -> bool:
        rows = cluster.query("SELECT id, token, status FROM executions")
        return all(token > tokens[id] and status != "pending" for id, token, status in rows if id in tokens)

    cluster.until(are_claimed, f"{len(tokens)} executions to be claimed by somebody else", patience)
    return time.monotonic() - since


def at_work(cluster: Cluster, since: str = "begun") -> list[Noted]:
    """Nodes that have begun (or, since="held", are held), have not ended, and whose process lives."""
    lines = noted(cluster.project)
    ended = Counter((note.pid, note.trail) for note in lines if note.word == "ended")
    starts = Counter((note.pid, note.trail) for note in lines if note.word == since)
    open_ones = starts - ended
    return [note for note in lines if note.word == since and (note.pid, note.trail) in open_ones and lives(note.pid)]


def wait_for_nodes(cluster: Cluster, count: int) -> None:
    """Wait until so many nodes are held at their work, and the database knows of them."""
    project = cluster.project
    cluster.until(lambda: len(at_work(cluster, "held")) == count, f"{count} nodes to be held")
    query = "SELECT count(*) FROM node_runs"
    cluster.until(lambda: cluster.scalar(query) == len({note.trail for note in noted(project, "begun")}), "to be known")


def trail_ends_well(cluster: Cluster, cases: int) -> None:
    """The whole trail sweep is there, each node run recorded once, and nothing is left."""
    cluster.ends_well({"succeeded": CELLS * cases})
    assert committed(cluster.project) == Counter(expected_trails(cases))


def runners_of(*workers: Worker) -> set[str]:
    return {runner for worker in workers for runner in worker.runners()}
