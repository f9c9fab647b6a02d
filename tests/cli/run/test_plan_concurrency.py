"""The number of concurrent node runs in a plan, the time that follows from it, and the limits that reduce it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.project import Project
from tests.support.prose import sentence

FLOW = """
import asyncio
from wtb import END, Workflow

wf = Workflow("paced")


@wf.node(RULES)
KIND find(state, *, k: int = 1):
    return {"found": k}


@wf.node
async def answer(state):
    await asyncio.sleep(0.2)
    return {"y": 1}


wf.entry(find)
wf.edge(find, answer)
wf.edge(answer, END)
"""
SWEEP = """
sweep: paced
workflow: flow:wf
cases: [{id: a, input: {x: 1}}, {id: b, input: {x: 2}}]
vary: {find: {k: [1, 2]}}
"""


def write(project: Project, kind: str, rules: str = "", more: str = "") -> None:
    project.write({"flow.py": FLOW.replace("KIND", kind).replace("RULES", rules), "paced.yaml": SWEEP + more})


def plan(project: Project) -> Any:
    return project.json("plan", "paced.yaml")


@pytest.mark.parametrize(
    ("kind", "more", "concurrency"),
    [
        ("async def", "", {"at_once": 64, "is_default": True}),
        ("def", "", {"at_once": 8, "is_default": True}),
        ("async def", "run: {concurrency: 5}", {"at_once": 5, "is_default": False}),
    ],
)
def test_a_sweep_of_async_nodes_makes_more_node_runs_at_a_time(
    project: Project, kind: str, more: str, concurrency: dict[str, Any]
) -> None:
    write(project, kind, more=more)
    assert plan(project)["concurrency"] == concurrency


def test_the_slowest_node_decides_once_it_is_measured(project: Project) -> None:
    write(project, "def")
    project.inside("run", "paced.yaml", "--quiet", check=0)
    planned = plan(project)
    low, high = planned["concurrency"].pop("seconds")
    assert planned["concurrency"] == {"at_once": 64, "is_default": True}
    assert 4 * 0.2 / 64 <= low == high < 0.2  # four runs of `answer` that wait, and of `find` that do not
    text = " ".join(project.text("plan", "paced.yaml").split())
    assert "at a time" + sentence("{}, so that nodes take about", " (default of async nodes)") in text


def test_a_plan_warns_of_limits_that_allow_fewer_node_runs(project: Project) -> None:
    write(project, "async def", rules="limit=3, rate=2")
    project.inside("run", "paced.yaml", "--limit", "1", "--quiet", check=0)
    project.inside("admin", "session", "change", "default", "--concurrency", "16", check=0)
    assert plan(project)["warnings"] == [
        sentence("node {} has `limit` {}, lower than the concurrency of {}", "'find'", 3, 64),
        sentence(
            "node {} has `rate` {}: {} take {} or longer, whatever the concurrency is",
            "'find'",
            2,
            "4 node runs",
            "2.00 s",
        ),
        sentence("the session has a quota of {} at a time, lower than the concurrency of {}", "16 node runs", 64),
    ]


def test_a_plan_without_history_counts_node_runs_in_a_row(project: Project) -> None:
    write(project, "async def", more="run: {concurrency: 3}")
    text = " ".join(project.text("plan", "paced.yaml").split())
    assert "Concurrency: 3 node runs at a time, so that they take as long as 3 in a row." in text
