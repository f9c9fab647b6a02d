"""Hostile nodes: the run always ends with one typed outcome for each cell, and leaves nothing behind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fuzz import hostile_nodes
from tests.support.invariants import invariants_hold, lives
from tests.support.project import Project

SLICE = 10
QUICK = 20
ALL = 400
TIMEOUT_S = 6.0
KINDS = {"error", "timeout", "state", "routing", "budget", "rejected", "killed"}
SWEEP = """
sweep: hostile
workflow: hostile:wf
cases: cases.jsonl
vary: {{work: [default]}}
evaluate: ["hostile:seen"]
run: {{concurrency: 3, set_aside_after: 2, workspace: {{size: 2GB, entries: 2000}}, rlimits: {{processes: 40}}}}
"""


@pytest.mark.parametrize(
    "start", [*range(0, QUICK, SLICE), *(pytest.param(n, marks=pytest.mark.slow) for n in range(QUICK, ALL, SLICE))]
)
def test_whatever_nodes_do_the_run_ends_with_one_typed_outcome_a_cell_and_leaves_nothing(
    start: int, request: pytest.FixtureRequest, tmp_path: Any
) -> None:
    project = Project(tmp_path / "project")
    if start // SLICE % 2:
        project.url = request.getfixturevalue("fresh_postgres_url")
    programs = {f"p{seed}": hostile_nodes.program(seed) for seed in range(start, start + SLICE)}
    cases = "".join(json.dumps({"id": name, "input": program}) + "\n" for name, program in programs.items())
    project.write({"hostile.py": hostile_nodes.module(TIMEOUT_S), "sweep.yaml": SWEEP.format(), "cases.jsonl": cases})
    project.write({"log": "", "victim": "untouched", "elsewhere/file": "untouched"})
    done = project.wtb("run", "sweep.yaml", "--quiet", timeout=300)
    assert done.code in (0, 1), (programs, done.stderr)
    assert "Traceback" not in done.stderr, (programs, done.stderr)
    details = (programs, done.stderr)
    cells = dict(project.query("SELECT status, count(*) FROM cells GROUP BY status"))
    assert cells.keys() <= {"succeeded", "failed", "set_aside"}, details
    assert sum(cells.values()) == SLICE, details
    invariants_hold(project, cells)

    query = (
        "SELECT c.id, x.status, x.failure FROM cells x "
        "JOIN cases c ON c.sweep_id = x.sweep_id AND c.number = x.case_number"
    )
    for name, status, text in project.query(query):
        if status == "succeeded":
            assert text is None
            continue
        failure = json.loads(text) if isinstance(text, str) else text
        assert failure["kind"] in KINDS, (programs[name], failure)
        assert failure["node"] == "work", (programs[name], failure)
        assert failure["type"], (programs[name], failure)
        assert programs[name]["acts"] or programs[name]["end"] != "good", ("did nothing wrong", failure, details)

    started = [line.split() for line in project.log()]
    assert [line for line in started if lives(int(line[1]))] == [], details
    assert (project.folder / "victim").read_text() == (project.folder / "elsewhere/file").read_text() == "untouched"
    assert [path.name for path in (project.folder / ".wtb" / "files").rglob(".new-*")] == [], details
    for command in (["resume", "hostile"], ["log", "hostile"], ["status", "hostile"], ["matrix", "hostile"]):
        assert "Traceback" not in project.inside(*command).stderr, (command, details)
    for (execution,) in project.query("SELECT id FROM executions WHERE status = 'failed' LIMIT 3"):
        project.inside("show", execution, check=0)
    project.close()
