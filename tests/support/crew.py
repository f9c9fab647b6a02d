"""Sweeps for workers, with nodes that wait: a case with the input `gate` goes on once a file of that name is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.cluster import Cluster
from tests.support.databases import postgres_database
from tests.support.project import Project
from wtb.hosting.servers.valkey import ValkeyServer

FLOW = """
import os
import time

from wtb import END, Workflow, evaluator

wf = Workflow("flow")
HERE = os.path.dirname(os.path.abspath(__file__)) + "/"


@wf.node
def first(state, ctx):
    with open(HERE + "log", "a") as log:
        log.write(f"first {ctx.case.id}\\n")
    return {"x": 1}


@wf.node
def held(state, ctx, *, by: int = 1):
    with open(HERE + "log", "a") as log:
        log.write(f"held {ctx.case.id} {os.getpid()}\\n")
    time.sleep(state.get("pause", 0))
    while state.get("gate") and not os.path.exists(HERE + state["gate"]):
        time.sleep(0.01)
    if state.get("breaks") and not os.path.exists(HERE + state["breaks"]):
        raise ValueError("it is not fixed")
    return {"y": by}


held.variant("two", by=2)

wf.entry(first)
wf.edge(first, held)
wf.edge(held, END)


@evaluator(better="higher")
def y(case, result):
    return result.state["y"]


remote = Workflow("remote")


@remote.node
def near(state):
    return {"n": 1}


@remote.node(queue="gpu")
def far(state):
    if state.get("breaks") and not os.path.exists(HERE + state["breaks"]):
        raise ValueError("it is not fixed")
    return {"f": 1}


remote.entry(near)
remote.edge(near, far)
remote.edge(far, END)
"""


def write_sweep(
    project: Project, name: str, *, cases: int = 2, workflow: str = "flow:wf", **values_of_cases: str
) -> str:
    """A sweep file of this name; its cases are NAME-0, NAME-1, ... Returns the file's name.

    values_of_cases: `gate` and `breaks`, the names of files, and `run`, lines for the key of that name.
    """
    run, same = values_of_cases.pop("run", "grace: 1"), "equal_inputs: independent\n"
    lines = [{"id": f"{name}-{n}", "input": {"x": 0, **values_of_cases}} for n in range(cases)]
    vary = "vary: {held: all}\nevaluate: ['flow:y']\n" if workflow == "flow:wf" else "vary: {near: all}\n"
    sweep = f"sweep: {name}\nworkflow: {workflow}\ncases: {name}.jsonl\n{same}{vary}run: {{{run}}}\n"
    cases_text = "".join(json.dumps(line) + "\n" for line in lines)
    project.write({"flow.py": FLOW, f"{name}.jsonl": cases_text, f"{name}.yaml": sweep})
    return f"{name}.yaml"


def submitted(cluster: Cluster, name: str, *more: str, **changes: Any) -> str:
    """Submit a sweep that `write_sweep` writes, and return its id."""
    return cluster.wtb("submit", write_sweep(cluster.project, name, **changes), *more, check=0).stdout.strip()


def ran(project: Project, what: str) -> int:
    """Count how often a node began, such as `held c-0`; `held c-` counts all cases that begin so."""
    return sum(line.startswith(what) for line in project.log())


def processes(project: Project, name: str) -> list[int]:
    """The processes in which nodes `held` of a sweep began."""
    return [int(line.split()[2]) for line in project.log() if line.startswith(f"held {name}-")]


def status_of(cluster: Cluster, sweep: str) -> str:
    return cluster.sweeps()[sweep]


@pytest.fixture(scope="module")
def module_cluster(
    tmp_path_factory: pytest.TempPathFactory,
    servers_folder: Path,
    postgres_url: str,
    postgres_admin: psycopg.Connection,
    postgres_template: str,
    request: pytest.FixtureRequest,
) -> Iterator[Cluster]:
    """An empty cluster for the tests of a module, with a database and a Valkey of its own; nothing runs yet."""
    project = Project(tmp_path_factory.mktemp("crew") / "project")
    project.write({"flow.py": FLOW})
    with (
        postgres_database(postgres_url, postgres_admin, postgres_template) as project.url,
        ValkeyServer(servers_folder / f"valkey-{request.path.stem}") as valkey,
        closing(project),
        closing(Cluster(project, valkey)) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="module")
def crew(module_cluster: Cluster) -> Cluster:
    """The same with a worker of two slots for the queue `default`, and a scheduler."""
    module_cluster.start_scheduler()
    module_cluster.start_worker(concurrency=2)
    return module_cluster
