"""Figures over time, as a user asks for them."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.support.project import Project
from tests.support.prose import sentence

FLOW = """
import time
from wtb import END, Workflow

wf = Workflow("long")

@wf.node
def train(state, ctx):
    for step in range(40):
        ctx.metric("loss", 1.0 / (step + 1))
    if state.get("slow"):
        time.sleep(1.5)
    return {"done": True}

wf.entry(train)
wf.edge(train, END)
"""
SWEEP = """
workflow: long_flow:wf
cases: [{id: quick, input: {}}, {id: slow, input: {slow: true}}]
vary: {train: all}
run: {concurrency: 1}
"""


@pytest.fixture
def ran(project: Project) -> Project:
    project.write({"long_flow.py": FLOW, "sweep.yaml": SWEEP})
    project.inside("run", "sweep.yaml", check=0, env={"WTB_SAMPLE_S": "0.2"})
    return project


def test_figures_over_time_are_shown_as_table_csv_and_json(ran: Project) -> None:
    outcome = ran.inside("series", "sweep")
    assert "train=default" in outcome.stdout
    assert "▇" in outcome.stdout or "█" in outcome.stdout
    assert max(map(len, outcome.stdout.splitlines())) <= 80

    series = ran.inside("series", "sweep", "--format", "json").json["series"]
    losses = [row for row in series if row["name"] == "loss"]
    assert len(losses) == 2
    assert (losses[0]["n"], losses[0]["max"], losses[0]["last"]) == (40, 1.0, 0.025)
    measured = {row["name"]: row for row in series if row["measured"]}
    assert set(measured) == {"rss", "cpu", "files", "processes"}
    assert measured["rss"]["min"] > 1e6
    assert measured["files"]["min"] > 0

    lines = list(csv.DictReader(io.StringIO(ran.inside("series", "sweep", "--name", "loss", "--format", "csv").stdout)))
    assert len(lines) == 80

    (cell, *_) = json.loads(ran.inside("show", "sweep", "--cells", "--format", "json").stdout)["cells"]
    of_one = ran.inside("series", cell["execution"], "--name", "loss", "--format", "json").json
    assert len(of_one["series"]) == 1

    wrong = ran.inside("series", "sweep", "--name", "los")
    assert wrong.code == 2
    assert sentence("there is no series {}", "'los'") + sentence("; did you mean '{}'?", "loss") in wrong.output
