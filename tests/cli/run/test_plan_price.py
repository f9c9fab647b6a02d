"""The price of a plan, from the costs of the same variants in earlier sweeps, or the reason why it is unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.project import Project
from tests.support.prose import sentence

FLOW = """
from wtb import END, Workflow

wf = Workflow("priced")


@wf.node
def find(state, ctx, *, k: int = 1):
    ctx.cost(usd=0.01 * k)
    return {"found": k}


@wf.node
def answer(state, ctx, *, model: str = "mini"):
    ctx.cost(usd={"mini": 0.1, "large": 0.3, "huge": 0.9}[model])
    return {"y": model}


@wf.node
def review(state, ctx):
    ctx.cost(usd=0.05)
    return {"z": 1}


wf.entry(find)
wf.edge(find, answer)
EDGES
"""
PLAIN = FLOW.replace("EDGES", "wf.edge(answer, review)\nwf.edge(review, END)")
BRANCHED = FLOW.replace(
    "EDGES", 'wf.edge(answer, review, when=lambda state: state["x"] > 1)\nwf.edge(answer, END, default=True)'
)
SWEEP = """
sweep: {name}
workflow: flow:wf
cases: [{{id: a, input: {{x: 1}}}}, {{id: b, input: {{x: 2}}}}]
vary: {{find: {{k: [1, 2]}}, answer: {{model: [{models}]}}}}
"""


def write(project: Project, file: str, models: str = "mini, large", more: str = "") -> None:
    project.write({f"{file}.yaml": SWEEP.format(name=file, models=models) + more})


def price(project: Project, file: str) -> Any:
    return project.json("plan", f"{file}.yaml")["price"]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.write({"flow.py": PLAIN})
    return project


@pytest.mark.parametrize("more", ["", "run: {share: false}\n"])
def test_it_is_what_the_same_sweep_cost(project: Project, more: str) -> None:
    write(project, "first", more=more)
    assert price(project, "first") == {
        "usd": None,
        "node_runs": 0,
        "sweeps": 0,
        "because": sentence("no sweep of workflow {} has run here", "'priced'"),
    }
    project.inside("run", "first.yaml", "--quiet", check=0)
    (spent,) = project.query("SELECT sum(usd) FROM node_runs")[0]
    (runs,) = project.query("SELECT count(*) FROM node_runs")[0]
    assert price(project, "first") == {
        "usd": pytest.approx([spent, spent]),
        "node_runs": runs,
        "sweeps": 1,
        "because": None,
    }


def test_each_variant_has_its_own_price_and_others_than_ran_have_none(project: Project) -> None:
    write(project, "first")
    project.inside("run", "first.yaml", "--quiet", check=0)
    write(project, "large", "large", "repeats: 3\n")
    estimate = price(project, "large")
    assert estimate["usd"] == pytest.approx([6 * (0.01 + 0.02 + 2 * (0.3 + 0.05))] * 2)
    text = project.text("plan", "large.yaml")
    assert sentence("Price: about {}, by what", "$4.38") in text
    assert f"{estimate['node_runs']} node runs of 1 earlier sweep" in " ".join(text.split())
    write(project, "huge", "mini, huge")
    assert price(project, "huge")["because"] == sentence(
        "{} did not run in earlier sweeps of the workflow", "answer=model=huge"
    )
    unknown = " ".join(project.text("plan", "huge.yaml").split())
    assert "Price: not known, because answer=model=huge did not run in earlier sweeps" in unknown
    project.inside("run", "huge.yaml", "--quiet", check=0)
    assert price(project, "huge")["sweeps"] == 2


def test_a_path_that_depends_on_the_state_has_bounds(project: Project) -> None:
    project.write({"flow.py": BRANCHED})
    write(project, "first")
    project.inside("run", "first.yaml", "--quiet", check=0)
    low, high = price(project, "first")["usd"]
    (spent,) = project.query("SELECT sum(usd) FROM node_runs")[0]
    assert low < spent < high
    assert (low, high) == pytest.approx((2 * (0.03 + 0.1 + 0.3), 2 * (0.03 + 2 * 0.4 + 4 * 0.05)))
    assert "$0.860 - $2.06" in project.text("plan", "first.yaml")


def test_a_cost_that_is_not_known_is_no_price(project: Project) -> None:
    calls = PLAIN.replace("ctx.cost(usd=0.05)", 'ctx.call(model="our-own-70b", tokens_in=10, tokens_out=1)')
    project.write({"flow.py": calls})
    write(project, "first")
    project.inside("run", "first.yaml", "--quiet", check=0)
    estimate = price(project, "first")
    assert estimate["usd"] is None
    assert sentence("the cost of {}={} is unknown", "review", "default") in estimate["because"]
