"""Walls between nodes and an SQLite file, where settings ask for them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.project import Project
from wtb.execution.sandbox.launch import walls

WAY = subprocess.run([sys.executable, "-I", walls.__file__], capture_output=True, text=True, check=False).stdout
SPY = """
import os
import sqlite3
import subprocess
from pathlib import Path

from wtb import END, Workflow

HERE = Path(__file__).parent
wf = Workflow("spy")


@wf.node
def first(state, ctx):
    (ctx.workspace / "kept.txt").write_text("kept")
    return {"read": Path(state["given"]).read_text() if "given" in state else None}


@wf.node
def look(state, ctx):
    home = HERE / ".wtb"
    try:
        rows = sqlite3.connect(f"file:{home / 'wtb.db'}?mode=ro", uri=True).execute("SELECT count(*) FROM sweeps")
        rows = rows.fetchone()[0]
    except sqlite3.Error as error:
        rows = None
    sizes = []
    for suffix in ("", "-wal", "-shm"):
        try:
            sizes.append(len((home / f"wtb.db{suffix}").read_bytes()))
        except OSError:
            sizes.append(0)
    child = subprocess.run(["cat", home / "wtb.db"], capture_output=True, check=False).stdout
    runner = f"/proc/{os.getppid()}/root{home / 'wtb.db'}"
    try:
        around = len(Path(runner).read_bytes())
    except OSError:
        around = 0
    found = {"rows": rows, "sizes": sizes, "child": len(child), "around": around}
    return {"found": found, "files": os.listdir(ctx.workspace)}


wf.entry(first)
wf.edge(first, look)
wf.edge(look, END)
"""


def found(project: Project, name: str) -> dict[str, object]:
    (cell,) = project.inside("show", name, "--cells", "--format", "json", check=0).json["cells"]
    state: dict[str, object] = cell["state"]
    assert state["files"] == ["kept.txt"]  # what nodes need of the store and of workspaces is there
    assert isinstance(state["found"], dict)
    return state["found"]


@pytest.fixture
def spied(project: Project) -> Project:
    sweep = {"sweep": "spied", "workflow": "spy:wf", "cases": [{"id": "a", "input": {}}], "vary": {"look": "all"}}
    project.write({"spy.py": SPY, "spied.json": json.dumps(sweep)})
    return project


def test_without_walls_a_node_reads_the_database(spied: Project) -> None:
    spied.wtb("run", "spied.json", "--quiet", check=0)
    assert found(spied, "spied")["rows"] == 1
    doctor = spied.inside("doctor", "--format", "json").json["checks"]
    (shown,) = [check["found"] for check in doctor if check["name"] == "nodes and its file"]
    assert "nodes can read the database" in shown


@pytest.mark.skipif(not WAY.startswith(("namespaces", "landlock")), reason="this system has no walls")
def test_with_walls_a_node_finds_no_database(spied: Project) -> None:
    spied.write({"wtb.toml": "[nodes]\nwalls = true\n"})
    for _ in range(2):  # the database is there from the start, too
        spied.wtb("run", "spied.json", "--quiet", check=0)
        nothing = found(spied, "spied")
        assert nothing == {"rows": None, "sizes": [0, 0, 0], "child": 0, "around": 0}
    doctor = spied.inside("doctor", "--format", "json").json["checks"]
    (shown,) = [check["found"] for check in doctor if check["name"] == "nodes and its file"]
    assert shown == "nodes cannot read the database"


def test_walls_are_on_or_off(spied: Project) -> None:
    spied.write({"wtb.toml": '[nodes]\nwalls = "yes"\n'})
    assert "'walls' of [nodes] must be true or false" in spied.wtb("run", "spied.json", check=2).said
