"""Cells that succeeded without their last node in an earlier version: `wtb doctor`, `wtb retry`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.project import Project
from tests.support.prose import sentence

WORKFLOW = """
from wtb import END, Workflow

wf = Workflow("short")


@wf.node
def first(state, ctx):
    return {"first": ctx.case.id}


@wf.node
def last(state, *, by: int = 0):
    return {"last": f"{state['first']}/{by}"}


last.variant("one", by=1)
wf.entry(first)
wf.edge(first, last)
wf.edge(last, END)
"""
CASES = 3

# The state in which the database was left: the rows of the last step are missing, and the node run counts as running.
DAMAGE = (
    "UPDATE node_runs SET status = 'running', writes = NULL, attempts = 0, ended_transaction = NULL, "
    "ended_event = NULL, ended_at = NULL WHERE node = 'last' AND variant = 'one'",
    "DELETE FROM attempts WHERE node_run_id IN (SELECT id FROM node_runs WHERE status = 'running')",
    "UPDATE executions SET head_id = (SELECT parent_id FROM checkpoints WHERE id = head_id) "
    "WHERE id IN (SELECT execution_id FROM node_runs WHERE status = 'running')",
    "DELETE FROM checkpoints WHERE parent_id IN (SELECT checkpoint_id FROM node_runs WHERE status = 'running') "
    "AND id NOT IN (SELECT head_id FROM executions WHERE head_id IS NOT NULL)",
)


@pytest.mark.parametrize("of", ["sweep", "execution"])
def test_doctor_finds_cells_that_succeeded_without_their_last_node_and_retry_repairs_them(
    project: Project, of: str
) -> None:
    project.write_sweep("short", WORKFLOW, CASES, vary={"last": "all"})
    project.wtb("run", "sweep.yaml", "--quiet", check=0)
    whole = final_states(project)
    for statement in DAMAGE:
        project.change(statement)
    ((sweep,),) = project.query("SELECT id FROM sweeps")
    assert sorted(final_states(project).values(), key=str) == sorted(
        [None] * CASES + [f"c{n}/0" for n in range(CASES)], key=str
    )
    assert problems(project) == [
        {
            "name": "cells",
            "status": "problem",
            "found": sentence(
                "{} of sweep {} succeeded without the last node, since a worker was killed", f"{CASES} cells", sweep
            ),
            "fix": sentence("run `wtb retry {}`: it runs what is missing", sweep),
        }
    ]

    if of == "sweep":
        project.wtb("retry", "short", "--quiet", check=0)
    else:
        for (execution,) in project.query("SELECT execution_id FROM node_runs WHERE status = 'running'"):
            project.wtb("retry", execution, "--quiet", check=0)

    assert final_states(project) == whole
    assert problems(project) == []
    assert project.query("SELECT node, variant FROM node_runs WHERE status <> 'succeeded'") == []
    assert sentence("no cells to retry") in project.wtb("retry", "short", check=0).output


def final_states(project: Project) -> dict[tuple[str, int], Any]:
    """Map each cell (case, combination) to what its last node wrote, None if its state has nothing of it."""
    contents = dict(project.query('SELECT digest, data FROM "values"'))
    states = project.query(
        "SELECT cases.id, cells.combination, checkpoints.state FROM cells "
        "JOIN cases ON cases.sweep_id = cells.sweep_id AND cases.number = cells.case_number "
        "JOIN executions ON executions.id = cells.execution_id JOIN checkpoints ON checkpoints.id = executions.head_id"
    )
    outputs = {}
    for case, combination, stored in states:
        state = json.loads(stored) if isinstance(stored, str) else stored
        outputs[case, combination] = json.loads(contents[state["last"]]) if "last" in state else None
    return outputs


def problems(project: Project) -> list[dict[str, str]]:
    checks = project.wtb("doctor", "--format", "json").json["checks"]
    return [check for check in checks if check["name"] == "cells" and check["status"] == "problem"]
