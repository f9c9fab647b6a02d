"""Fault 25, bytes of a stored value change: the hash says so, and what led to it runs again."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.support.invariants import invariants_hold
from tests.support.project import Project

# first -> second -> third(2) -> fourth. Each node run appends its name to the log, and writes what it always writes:
# the same value under the same hash, so that the damaged one stands in its way.
FLOW = """
import os

from wtb import END, Workflow

wf = Workflow("line")
HERE = os.path.dirname(os.path.abspath(__file__)) + "/"


def add(state, ctx):
    with open(HERE + "log", "a") as log:
        log.write(f"{ctx.node}={ctx.variant} of {ctx.case.id}\\n")
    return {ctx.node: f"{ctx.node} of {ctx.case.id}: {ctx.variant}"}


@wf.node
def first(state, ctx):
    return add(state, ctx)


@wf.node
def second(state, ctx):
    return add(state, ctx)


@wf.node
def third(state, ctx, *, by: int = 0):
    return add(state, ctx)


@wf.node
def fourth(state, ctx):
    return add(state, ctx)


third.variant("one", by=1)
wf.entry(first)
wf.edge(first, second)
wf.edge(second, third)
wf.edge(third, fourth)
wf.edge(fourth, END)


def whole(case, result):
    nodes = ("first", "second", "third", "fourth")
    return all(result.state[node].startswith(f"{node} of {case.id}: ") for node in nodes)
"""
CASES = 2
BEFORE = {"first of c0": 1, "second of c0": 1, "third of c0": 2, "fourth of c0": 2}


def write_line(project: Project, **limits: Any) -> None:
    # Under this seed, c0 begins before c1.
    spec = {"evaluate": ["line:whole"], "run": {"concurrency": 1}, "seed": 3, "limits": limits}
    project.write_sweep("line", FLOW, CASES, vary={"third": "all"}, **spec)


@pytest.fixture
def line(project: Project) -> Project:
    write_line(project)
    return project


def paused_after(project: Project, node_runs: int) -> Counter[str]:
    """Run so many node runs, one at a time; what the log says then."""
    write_line(project, node_runs=node_runs)
    project.inside("run", "sweep.yaml", check=1)
    assert project.query("SELECT status FROM sweeps") == [("paused",)]
    return ran(project)


def ran(project: Project) -> Counter[str]:
    """Count the runs of each node for each case, whatever the variant."""
    return Counter(f"{line.partition('=')[0]} of {line.rpartition(' ')[2]}" for line in project.log())


def written_by(project: Project, node: str, case: str) -> str:
    """The digest of what a node wrote."""
    query = (
        "SELECT r.writes FROM node_runs r JOIN executions e ON e.id = r.execution_id "
        "JOIN cases c ON c.sweep_id = e.sweep_id AND c.number = e.case_number "
        "WHERE r.node = :node AND c.id = :case AND r.status = 'succeeded'"
    )
    ((writes,),) = project.query(query, node=node, case=case)
    stored: dict[str, str] = json.loads(writes) if isinstance(writes, str) else writes
    return stored[node]


def flip(project: Project, digest: str) -> None:
    """Change one character of a stored value, which stays readable JSON."""
    ((text,),) = project.query('SELECT data FROM "values" WHERE digest = :digest', digest=digest)
    damaged = text.replace(" of ", " OF ")
    assert damaged != text
    project.change(f"""UPDATE "values" SET data = '{damaged}' WHERE digest = '{digest}'""")


def resume(project: Project) -> Any:
    return project.inside("resume", "line", "--limits", "node_runs=99", "--format", "json")


def all_is_well(project: Project) -> None:
    invariants_hold(project, {"succeeded": 2 * CASES}, rewound=True)


@pytest.mark.parametrize(
    ("node_runs", "damaged"),
    [
        (2, "second"),
        (2, "first"),  # the whole prefix runs again
        (3, "second"),  # it was shared, and third has run for one of two children: both share what runs again
    ],
)
def test_a_damaged_value_is_made_again_by_the_node_that_wrote_it(line: Project, node_runs: int, damaged: str) -> None:
    before = paused_after(line, node_runs)
    assert before == dict.fromkeys([f"{node} of c0" for node in ("first", "second", "third")[:node_runs]], 1)
    flip(line, written_by(line, damaged, "c0"))

    done = resume(line)
    assert done.code == 0, done.stderr
    intact = {} if damaged == "first" else {"first of c0": 1}
    of_c1 = {name.replace("c0", "c1"): count for name, count in BEFORE.items()}
    assert ran(line) - before == Counter(BEFORE) - Counter(intact) + Counter(of_c1)
    log = line.inside("log", "line", "--severity", "warning", "--format", "json", check=0).stdout
    kinds = [json.loads(row)["kind"] for row in log.splitlines()]
    assert [kind for kind in kinds if kind.startswith("execution.")] == ["execution.rewound"]
    all_is_well(line)


def test_what_was_done_under_the_damage_keeps_its_outcome(line: Project) -> None:
    before = paused_after(line, 8)  # c0 has ended; first and second of c1 have run
    assert before == {**BEFORE, "first of c1": 1, "second of c1": 1}
    outcomes = line.query("SELECT * FROM cells WHERE status = 'succeeded' ORDER BY combination")
    assert len(outcomes) == 2
    flip(line, written_by(line, "first", "c0"))
    flip(line, written_by(line, "second", "c1"))

    done = resume(line)
    assert done.code == 0, done.stderr
    repeats = ran(line) - before
    assert not {name for name in repeats if name.endswith("c0")}, "it has its outcome"
    assert repeats["second of c1"] == 1
    assert "first of c1" not in repeats
    assert set(outcomes) <= set(line.query("SELECT * FROM cells"))
    all_is_well(line)


def test_a_damaged_input_of_a_case_is_refused_naming_the_case_and_the_sweep(line: Project) -> None:
    before = paused_after(line, 2)
    ((stored,),) = line.query("SELECT input FROM cases WHERE id = 'c1'")
    digest = (json.loads(stored) if isinstance(stored, str) else stored)["x"]
    line.change(f"""UPDATE "values" SET data = '10001' WHERE digest = '{digest}'""")
    ((sweep,),) = line.query("SELECT id FROM sweeps")

    done = resume(line)
    assert done.code == 4, done.stderr
    assert "Traceback" not in done.stderr
    assert "case 'c1'" in done.output
    assert sweep in done.output
    assert "damaged" in done.output
    assert not {name for name in ran(line) - before if name.endswith("c1")}, "nothing runs on a wrong input"
    assert line.query("SELECT status FROM sweeps") == [("paused",)]
    assert line.query("SELECT count(*) FROM executions WHERE status = 'running'") == [(0,)]

    line.change(f"""UPDATE "values" SET data = '10000' WHERE digest = '{digest}'""")
    assert resume(line).code == 0
    all_is_well(line)
