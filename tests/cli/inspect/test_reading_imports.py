"""Commands that read import what their query needs, and nothing else: importing takes longer than reading."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.project import Project

FLOW = """
from wtb import END, Workflow

wf = Workflow("flow")


@wf.node
def look(state, *, add: int = 0):
    return {"y": state["x"] + add}


look.variant("more", add=1)
wf.entry(look)
wf.edge(look, END)
"""
SWEEP = """
sweep: flow
workflow: flow:wf
cases: [{id: c0, input: {x: 0}, expected: {y: 0}}, {id: c1, input: {x: 1}, expected: {y: 1}}]
vary: {look: all}
evaluate: [{exact_match: {field: y}}]
run: {pool: thread}
"""
HEAVY = {
    "alembic",
    "celery",
    "fastapi",
    "httpx",
    "jinja2",
    "jsonschema",
    "kombu",
    "langgraph",
    "numpy",
    "pandas",
    "psutil",
    "psycopg",
    "rich.console",
    "scipy",
    "sqlalchemy.dialects.postgresql",
    "starlette",
    "wtb.analysis.scores",
    "wtb.execution.runner",
    "wtb.planning.prepare",
    "wtb.planning.sweep_spec",
    "yaml",
}
# Of these, what a command may import: psutil finds out whether its owner is alive, rich draws the table of a matrix.
COMMANDS = {
    ("list",): set[str](),
    ("list", "--runs"): set[str](),
    ("status", "flow"): {"psutil"},
    ("show", "flow"): {"psutil"},
    ("show", "flow", "--cells"): set[str](),
    ("show", "flow", "--cells", "--format", "json"): set[str](),
    ("show", "flow", "--outputs"): set[str](),
    ("show", "flow", "--key", "x", "--case", "c0"): set[str](),
    ("matrix", "flow"): {"psutil", "rich.console"},
    ("matrix", "flow", "--format", "json"): {"psutil"},
}
CODE = """
import json, runpy, sys
sys.argv = ["wtb", *{words!r}]
try:
    runpy.run_module("wtb", run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
print("\\nLOADED", *sys.modules)
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A folder with a sweep that `wtb run` has finished, so that its matrix is kept."""
    project = Project(tmp_path_factory.mktemp("finished"))
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP})
    project.wtb("run", "sweep.yaml", "--quiet", check=0)
    return project


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_reading_command_imports_only_what_its_query_needs(finished: Project, words: tuple[str, ...]) -> None:
    loaded = _loaded_by(finished, words)
    assert "wtb.store.database" in loaded
    assert (loaded & HEAVY) - COMMANDS[words] == set()


def test_a_matrix_with_another_baseline_is_made_anew(finished: Project) -> None:
    """Make sure that numpy is imported by this name; otherwise the other tests would always pass."""
    assert "numpy" in _loaded_by(finished, ("matrix", "flow", "--baseline", "1"))


def _loaded_by(project: Project, words: tuple[str, ...]) -> set[str]:
    """The modules that a command has imported at its end."""
    environment = {name: setting for name, setting in os.environ.items() if not name.startswith("WTB_")}
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(words=words)],
        cwd=project.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("\nLOADED")[2].split())
