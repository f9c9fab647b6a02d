"""A LangGraph graph whose processes are killed among tasks that were sent, and in a graph within it."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance import corrective
from tests.support import forkserver
from tests.support.cluster import Cluster
from tests.support.invariants import invariants_hold, kill
from tests.support.project import Project

SWEEP = """
sweep: docs
workflow: corrective:graph
cases: [{id: x, input: {q: x}}]
vary: {draft.write: [default, {name: shout, with: "corrective:shout"}]}
run: {concurrency: 1, durability: sync, grace: 100ms}
"""
NOTES = ("retrieve x 1", "grade x1a", "grade x1b", "retrieve x 2", "grade x2a", "grade x2b")
ONCE = Counter([*NOTES, "count X1A", "write X1A", "shout X1A"])
RUNS = {"retrieve": 2, "grade": 4, "check": 2, "draft.count": 1, "draft.write": 2, "review": 2}


@pytest.fixture(autouse=True)
def forked_nodes() -> None:
    """Most of these tests would be imports of LangGraph; other tests kill node processes that were started."""
    forkserver.fork_nodes("langgraph")


def write(project: Project, *waiting: str) -> None:
    """The graph and its sweep; these wait where they are called so."""
    source = Path(corrective.__file__).read_text("utf-8")
    project.write({"corrective.py": source, "sweep.yaml": SWEEP, "log": "", **{f"hold-{name}": "" for name in waiting}})


def noted(project: Project) -> Counter[str]:
    return Counter(line.rpartition(" ")[0] for line in project.log())


def wait_for(project: Project, note: str) -> int:
    """Wait until a node has begun. Returns the process that it is in."""

    def find_process() -> int | None:
        return next((int(line.rpartition(" ")[2]) for line in project.log() if line.startswith(f"{note} ")), None)

    process = project.until(find_process, f"{note} to begin")
    assert isinstance(process, int)
    return process


def release(project: Project, name: str) -> None:
    (project.folder / f"hold-{name}").unlink()


def has_ended_well(project: Project, *twice: str) -> None:
    """Every node run is there once, and nodes began once, but for those that were ended under way."""
    assert noted(project) == ONCE + Counter(twice)
    counts = project.query("SELECT node, count(*) FROM node_runs WHERE status = 'succeeded' GROUP BY node")
    assert dict(counts) == RUNS
    answers = {c["combination"]["draft.write"]: c["state"]["answer"] for c in cells(project)}
    assert answers == {"default": "4 documents", "shout": "4 DOCUMENTS!"}


def cells(project: Project) -> list[dict[str, dict[str, str]]]:
    documents = project.inside("show", "docs", "--cells", "--format", "json", check=0).json["cells"]
    assert isinstance(documents, list)
    return documents


def test_a_node_process_killed_among_sent_tasks_costs_that_task_an_attempt(empty_project: Project) -> None:
    project = empty_project
    write(project, "x1b")
    with project.start("run", "sweep.yaml", "--quiet") as running:
        kill(wait_for(project, "grade x1b"))
        release(project, "x1b")
        running.wait(check=0)
    invariants_hold(project, {"succeeded": 2})
    has_ended_well(project, "grade x1b")
    rows = project.query("SELECT task, attempts FROM node_runs WHERE node = 'grade' AND visit = 0")
    assert dict(rows) == {"grade|0": 1, "grade|1": 2}


@pytest.mark.slow
def test_a_run_interrupted_among_sent_tasks_and_killed_in_a_graph_within_continues(empty_project: Project) -> None:
    project = empty_project
    write(project, "x2b", "write-X1A")
    with project.start("run", "sweep.yaml", "--quiet") as running:
        wait_for(project, "grade x2b")
        running.signal(signal.SIGINT)
        running.wait()
    release(project, "x2b")
    with project.start("resume", "docs", "--quiet") as running:
        wait_for(project, "write X1A")
        kill(running.pid)
        running.wait(check=-signal.SIGKILL)
    project.until(lambda: not project.node_processes(), "its nodes to end")
    release(project, "write-X1A")
    project.inside("resume", "docs", "--quiet", check=0)
    invariants_hold(project, {"succeeded": 2})
    has_ended_well(project, "grade x2b", "write X1A")


@pytest.mark.slow
def test_a_worker_killed_among_sent_tasks_is_reclaimed_by_another_one(cluster: Cluster) -> None:
    project = cluster.project
    write(project, "x1b")
    cluster.start_scheduler()
    first = cluster.start_worker(concurrency=1)
    sweep = cluster.submit()
    wait_for(project, "grade x1b")
    first.kill()
    release(project, "x1b")
    cluster.start_worker(concurrency=1)
    cluster.wait_completed(sweep)
    cluster.ends_well({"succeeded": 2})
    has_ended_well(project, "grade x1b")
