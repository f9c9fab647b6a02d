"""Fault 22: a cell that kills its worker every time is set aside with its reason, and the sweep ends."""

from __future__ import annotations

import pytest

from tests.support.cluster import Cluster
from tests.support.prose import sentence
from wtb.store.runs.maintenance import SET_ASIDE_LOSSES

# The node of case c1 kills: itself, or the process that is so many generations above it.
DEADLY = """
import os
import signal

from wtb import END, Workflow

wf = Workflow("deadly")
HERE = os.path.dirname(os.path.abspath(__file__)) + "/"


def parent_of(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


@wf.node
def work(state, ctx, *, by: int = 0):
    log = os.open(HERE + "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, f"{os.getpid()} {ctx.case.id}\\n".encode())
    os.close(log)
    if ctx.case.id == "c1" and by == 0:
        victim = os.getpid()
        for _ in range(ctx.params["generations"]):
            victim = parent_of(victim)
        if victim == os.getpid():
            os.abort()
        os.kill(victim, signal.SIGKILL)
        signal.pause()
    return {"done": by}


work.variant("one", by=1)
wf.entry(work)
wf.edge(work, END)
"""
CASES = 3
OUTCOME = {"succeeded": 2 * CASES - 1, "set_aside": 1}


def write_deadly(cluster: Cluster, generations: int, pool: str) -> None:
    spec = {"params": {"generations": generations}, "run": {"pool": pool}}
    cluster.project.write_sweep("deadly", DEADLY, CASES, vary={"work": "all"}, **spec)


def test_a_node_that_aborts_its_worker_is_run_apart_from_the_next_one_and_set_aside(cluster: Cluster) -> None:
    write_deadly(cluster, 0, "thread")
    cluster.let_nodes_run_in_workers()
    cluster.start_scheduler()
    first = cluster.start_worker(ready=False)
    second = cluster.start_worker(ready=False)
    cluster.wait_ready()
    cluster.submit()
    cluster.wait_completed()
    dead = [worker for worker in (first, second) if not worker.lives]
    assert len(dead) == 1, "the second time it is a process of the node's own that dies"
    cluster.ends_well(OUTCOME)
    (failure,) = cluster.query("SELECT failure FROM cells WHERE status = 'set_aside'")[0]
    assert failure["kind"] == "killed"
    assert "SIGABRT" in failure["message"]


@pytest.mark.slow
def test_a_node_that_kills_its_worker_every_time_is_set_aside(cluster: Cluster) -> None:
    write_deadly(cluster, 2, "process")  # its keeper, the worker
    cluster.start_scheduler()
    for _ in range(SET_ASIDE_LOSSES + 2):
        cluster.start_worker(ready=False)
    cluster.wait_ready()
    cluster.submit()
    cluster.wait_completed(patience=120)
    # The first one may have died before anybody knew in which node it was.
    assert sum(not worker.lives for worker in cluster.workers) in (SET_ASIDE_LOSSES, SET_ASIDE_LOSSES + 1)
    cluster.ends_well(OUTCOME)
    (failure,) = cluster.query("SELECT failure FROM cells WHERE status = 'set_aside'")[0]
    assert failure["message"] == sentence("its worker died {} times while it was in a node", SET_ASIDE_LOSSES)
    ((cell,),) = [(details,) for details in cluster.events("cell.set_aside")]
    assert (cell["case"], cell["error"]) == ("c1", failure["message"])
    status = cluster.wtb("status", "deadly", check=0)
    assert "set aside" in status.stdout + status.output
