"""Our own processes collect garbage seldom; a user's program keeps its settings."""

from __future__ import annotations

import gc

import pytest

from tests.support.bench import Bench
from tests.support.flows import Flows, states
from tests.support.project import Project
from wtb.config.distribution import THRESHOLDS

FLOW = f"""
import gc
from wtb import END, Workflow

wf = Workflow("collecting")

@wf.node
def look(state):
    if (gc.get_threshold(), gc.isenabled()) != ({THRESHOLDS}, True):
        raise ValueError(f"garbage is collected by {{gc.get_threshold()}}")
    return {{}}

wf.entry(look)
wf.edge(look, END)
"""


@pytest.mark.nodes("started")
@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_command_and_its_node_processes_collect_seldom(project: Project, pool: str) -> None:
    sweep = f"workflow: flow:wf\ncases: [{{input: {{}}}}]\nvary: {{look: all}}\nrun: {{pool: {pool}}}\n"
    project.write({"flow.py": FLOW, "sweep.yaml": sweep})
    project.wtb("run", "sweep.yaml", check=0)


def test_a_program_that_runs_a_sweep_keeps_its_own_way(flows: Flows) -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(701, 11, 12)
        ended: Bench = flows.run("@wf.node\ndef a(state): return {}")
        assert states(ended)
        assert gc.get_threshold() == (701, 11, 12)
    finally:
        gc.set_threshold(*before)
