"""Sweeps that get variants, cases and repeats while workers run them, also while workers are killed: nothing twice."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.support.cluster import Cluster

SLOTS = 2
FLOW = """
import os
import time

from wtb import END, Workflow

wf = Workflow("steps")
HERE = os.path.dirname(os.path.abspath(__file__)) + "/"


def passes(name, state, ctx, by):
    with open(HERE + "log", "a") as log:
        log.write(f"{name} {ctx.case.id} {ctx.repeat} {by}\\n")
    while os.path.exists(HERE + f"{name}-waits"):
        time.sleep(0.01)
    return {"way": [*state.get("way", []), by]}


@wf.node
def a(state, ctx, *, by: int = 0):
    return passes("a", state, ctx, by)


@wf.node
def b(state, ctx, *, by: int = 0):
    return passes("b", state, ctx, by)


@wf.node
def c(state, ctx, *, by: int = 0):
    return passes("c", state, ctx, by)


b.variant("b1", by=1)
c.variant("c1", by=1)
wf.entry(a)
wf.edge(a, b)
wf.edge(b, c)
wf.edge(c, END)

"""
NEW = ("--vary", "b={name: b2, of: default, by: 2}", "--vary", "c=c1")


def lines(first: int, last: int) -> str:
    return "".join(json.dumps({"id": f"s{n}", "input": {"x": n}}) + "\n" for n in range(first, last))


def write(cluster: Cluster, cases: int, *waits: str) -> None:
    vary = {"b": ["default", "b1"]}
    cluster.project.write_sweep("steps", FLOW, vary=vary, equal_inputs="independent", run={"grace": 1})
    cluster.project.write({"cases.jsonl": lines(0, cases), **{f"{node}-waits": "" for node in waits}})


def release(cluster: Cluster, node: str) -> None:
    (cluster.project.folder / f"{node}-waits").unlink()


def accepted(cluster: Cluster) -> dict[str, Any]:
    return dict(cluster.query("SELECT node, count(*) FROM node_runs WHERE status = 'succeeded' GROUP BY node"))


def ran(cluster: Cluster) -> Counter[str]:
    return Counter(line.split()[0] for line in cluster.project.log())


def deferred(cluster: Cluster) -> int:
    return int(cluster.scalar("SELECT count(*) FROM executions WHERE deferred IS NOT NULL"))


@pytest.mark.parametrize("is_killed", [False, True])
def test_variants_join_cases_that_have_yet_to_come_to_what_differs(cluster: Cluster, is_killed: bool) -> None:
    write(cluster, 4, "a")
    cluster.start_scheduler()
    worker = cluster.start_worker(concurrency=SLOTS)
    sweep = cluster.submit()
    cluster.until(lambda: ran(cluster)["a"] == SLOTS, "all slots to be in the node before what differs")
    document = cluster.wtb("extend", sweep, *NEW, "--format", "json", check=0).json
    assert document["cells"] == 4 * 4
    assert deferred(cluster) == SLOTS, "those that run are left alone"
    if is_killed:
        worker.kill()
        cluster.start_worker(concurrency=SLOTS)
    release(cluster, "a")
    cluster.ends_well({"succeeded": 4 * 6})
    assert deferred(cluster) == 0
    assert accepted(cluster) == {"a": 4, "b": 4 * 3, "c": 4 * 6}
    assert ran(cluster)["b"] == 4 * 3
    assert ran(cluster)["c"] == 4 * 6
    assert ran(cluster)["a"] == 4 + (SLOTS if is_killed else 0), "only attempts that were lost are repeated"


def test_variants_begin_at_once_where_all_of_the_running_step_differs(cluster: Cluster) -> None:
    write(cluster, 1, "b")
    cluster.start_scheduler()
    cluster.start_worker(concurrency=SLOTS)
    sweep = cluster.submit()
    cluster.until(lambda: ran(cluster)["b"] == 2, "both variants to be in the node")
    cluster.wtb("extend", sweep, "--vary", "b={name: b2, of: default, by: 2}", check=0)
    assert deferred(cluster) == 0
    release(cluster, "b")
    cluster.ends_well({"succeeded": 3})
    assert ran(cluster) == Counter(a=1, b=3, c=3)


@pytest.mark.parametrize("kills", [pytest.param(0, marks=pytest.mark.slow), 3])
def test_a_sweep_that_grows_again_and_again_while_workers_die_has_each_cell_once(cluster: Cluster, kills: int) -> None:
    write(cluster, 30)
    cluster.start_scheduler()
    worker = cluster.start_worker(concurrency=SLOTS)
    sweep = cluster.submit()
    cluster.until(lambda: ran(cluster)["b"] > 5, "it to be under way")
    cluster.wtb("extend", sweep, *NEW, check=0)
    for _ in range(kills):
        before = ran(cluster).total()
        cluster.until(lambda before=before: ran(cluster).total() > before + 10, "more nodes to run")
        worker.kill()
        worker = cluster.start_worker(concurrency=SLOTS)
    cluster.project.write({"more.jsonl": lines(25, 35)})
    cluster.wtb("extend", sweep, "--cases", "more.jsonl", "--repeats", "2", check=0)
    cluster.wtb("extend", sweep, "--vary", "c={name: c2, of: default, by: 7}", check=0)
    cluster.ends_well({"succeeded": 35 * 2 * 9})
    assert accepted(cluster) == {"a": 70, "b": 70 * 3, "c": 70 * 9}
    twice = ran(cluster).total() - 70 * 13
    assert twice <= kills * SLOTS * 8, "a killed worker repeats what it had not committed"
    variants = "SELECT node, variant, count(*) FROM node_runs WHERE status = 'succeeded' AND node <> 'a' GROUP BY 1, 2"
    assert {(node, variant): count for node, variant, count in cluster.query(variants)} == {
        **{("b", variant): 70 for variant in ("default", "b1", "b2")},
        **{("c", variant): 70 * 3 for variant in ("default", "c1", "c2")},
    }
