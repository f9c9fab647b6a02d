"""Sweeps in Flower: failed cases, lost workers, questions, retries, and a cancellation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.acceptance.test_flower import fetch, hears
from tests.support.cluster import Cluster
from wtb.hosting.servers.server import free_port

FLOW = """
import os
import time

from wtb import END, Workflow

HERE = os.path.dirname(os.path.abspath(__file__)) + "/"
wf = Workflow("watched")

@wf.node
def answer(state, ctx, *, k: int = 0):
    while ctx.params.get("hold") == ctx.case.id and not os.path.exists(HERE + "gate"):
        time.sleep(0.01)
    time.sleep(0.05)
    if ctx.case.id in ctx.params.get("wrong", ()) and k == 4 and not os.path.exists(HERE + "mended"):
        raise KeyError(ctx.case.id)
    return {"y": k}

@wf.node
def check(state, ctx):
    if ctx.params.get("asks"):
        ctx.ask("Is it right?")
    return {"z": 1}

for k in range(1, 5):
    answer.variant(f"v{k}", k=k)
wf.entry(answer)
wf.edge(answer, check)
wf.edge(check, END)
"""
SPEC = "sweep: {name}\nworkflow: watched:wf\ncases: {name}.jsonl\nvary: {{answer: all}}\nparams: {params}\n"
WRONG = ["c3", "c17"]


@pytest.fixture
def watched(cluster: Cluster) -> Iterator[tuple[Cluster, int]]:
    """A cluster of two workers with two slots each, and the port of a Flower that hears them."""
    cluster.project.write({"watched.py": FLOW})
    cluster.start_scheduler()
    for _ in range(2):
        cluster.start_worker(concurrency=2, ready=False)
    cluster.wait_ready()
    port = free_port()
    env = {**cluster.env, "WTB_FLOWER_AUTH": "me:secret"}
    with cluster.project.start("admin", "flower", "--port", str(port), env=env) as flower:
        cluster.until(lambda: hears(port), "Flower to hear of the workers: it is told nothing of what was before")
        yield cluster, port
        flower.process.terminate()


def submit(cluster: Cluster, name: str, cases: int, params: str = "{}") -> str:
    project = cluster.project
    project.write({f"{name}.yaml": SPEC.format(name=name, params=params), f"{name}.jsonl": project.cases(cases)})
    return cluster.submit(f"{name}.yaml")


def tasks(port: int) -> list[dict[str, Any]]:
    return [task for task in fetch(port, "tasks?limit=10000").values() if task["name"] != "wtb.scheduler"]


@pytest.mark.slow
def test_failed_tasks_name_the_failed_cases_and_hardly_any_does_nothing(watched: tuple[Cluster, int]) -> None:
    cluster, port = watched
    failing = submit(cluster, "failing", 20, f"{{wrong: [{', '.join(WRONG)}]}}")
    cluster.wait_completed(failing)
    cluster.project.write({"mended": ""})
    cluster.wtb("retry", failing, check=0)
    cluster.wait_completed(failing)

    lost = submit(cluster, "lost", 8, "{hold: c2}")
    query = "SELECT r.worker FROM executions e JOIN runners r ON r.id = e.owner_id WHERE e.sweep_id = :sweep"
    (name, *_) = cluster.until(lambda: [worker for (worker,) in cluster.query(query, sweep=lost)], "a case to be held")
    next(worker for worker in cluster.workers if worker.name == name).end()
    cluster.project.write({"gate": ""})
    cluster.wait_completed(lost)

    asks = submit(cluster, "asks", 2, "{asks: true}")
    cluster.until(lambda: len(cluster.executions("waiting")) == 10, "all to wait for a person")
    for (question,) in cluster.query("SELECT id FROM approvals WHERE status = 'open'"):
        cluster.wtb("answer", question, "approve", check=0)
    cluster.wait_completed(asks)

    (cluster.project.folder / "gate").unlink()
    cancelled = submit(cluster, "cancelled", 30, "{hold: c5}")
    cluster.until(lambda: cluster.query(query, sweep=cancelled), "some of it to run")
    cluster.wtb("cancel", cancelled, "--yes", check=0)

    ended = ("SUCCESS", "FAILURE", "RETRY", "REVOKED")
    with suppress(AssertionError):
        cluster.until(lambda: all(task["state"] in ended for task in tasks(port)), "tasks to end", 60)
    seen = tasks(port)
    assert [task for task in seen if task["state"] not in ended] == []
    states = {task["uuid"]: task["state"] for task in seen}

    failed = [task for task in seen if task["state"] == "FAILURE"]
    named = [case for task in failed for case in re.findall(r"\b(c\d+) answer=v4: ", task["exception"])]
    assert sorted(named) == sorted(WRONG), failed
    assert {task["name"] for task in failed} == {"failing"}

    of_cells = "FROM cells c JOIN executions e ON e.id = c.execution_id WHERE c.status <> 'cancelled'"
    wrote = f"SELECT DISTINCT e.task_id {of_cells}"
    assert {task for (task,) in cluster.query(wrote)} <= states.keys(), "each outcome names the task that wrote it"
    assert "RETRY" in states.values(), "the worker that was killed had a task"
    assert "REVOKED" in states.values(), "the sweep that was cancelled had tasks that waited"
    results = [ast.literal_eval(task["result"]) for task in seen if task["state"] == "SUCCESS"]
    idle = [counts for counts in results if not (counts["cells"] or counts.get("waiting") or counts.get("node_runs"))]
    assert len(idle) <= 0.02 * len(seen), idle
    assert sum(counts["cells"] for counts in results) >= 20 * 5 - 5 * len(WRONG)
    finished = next(task for task in seen if task["name"] == "failing" and task["state"] == "SUCCESS")
    assert re.fullmatch(r"c\d+(, c\d+)*", finished["args"].strip("'\"")), finished["args"]
    assert finished["runtime"] > 0.05, "the time that it took"
