"""Workflows in modules of their own, sweeps of them in node processes, and what those left in the database."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.support.attempts import attempts
from tests.support.bench import Bench, in_memory
from wtb.authoring.code.fingerprint import fingerprints
from wtb.authoring.code.import_paths import load
from wtb.authoring.code.recipe import Recipe
from wtb.authoring.graph import outline_digest
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.config.run_options import Run
from wtb.execution.engine.native import NativeEngine
from wtb.execution.sandbox.framing import CodeHead
from wtb.execution.sandbox.pool import InProcesses, UserCode
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.files.locations import workspaces_of

PATIENCE_S = 30.0

HEAD = """
import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from wtb import END, Workflow

HERE = Path(__file__).parent
wf = Workflow("flow")


def until(there):
    while not there():
        time.sleep(0.005)


def say(name, text):
    with open(HERE / name, "a") as file:
        file.write(f"{text}\\n")
"""
ONE_NODE = """
wf.entry("a")
wf.edge("a", END)
"""
_numbers = itertools.count()


class Flows:
    """Workflows in modules, below a folder on `sys.path`, and sweeps of them."""

    def __init__(self, folder: Path) -> None:
        self.code = folder / "code"
        self.files = folder / "files"
        self.code.mkdir()
        self.benches: list[Bench] = []
        self.name = ""

    def write(self, text: str, end: str = ONE_NODE) -> str:
        """A module of this text, between the common beginning and the usual end. Returns its name."""
        self.name = f"process_flow_{next(_numbers)}"
        (self.code / f"{self.name}.py").write_text(f"{HEAD}\n{text}\n{end}", "utf-8")
        return self.name

    def bench(
        self,
        text: str | None = None,
        cases: int = 1,
        vary: Mapping[str, Any] | None = None,
        *,
        workflow: Workflow | None = None,
        end: str = ONE_NODE,
        **keys: Any,
    ) -> Bench:
        """A sweep that is submitted, on one slot unless it says otherwise."""
        if text is not None:
            self.write(text, end)
        listed = [{"id": f"c{n}", "input": {"n": n}} for n in range(cases)]
        data = {"workflow": f"{self.name}:wf", "cases": listed, "vary": vary or {"a": "all"}, **keys}
        data["run"] = {"concurrency": 1, **keys.get("run", {})}
        bench = Bench(in_memory(), prepare(parse_spec(data), workflow=workflow), self.files)
        self.benches.append(bench)
        assert bench.prepared.bound.pool == data["run"].get("pool", "process")
        return bench

    def run(self, *args: Any, **keys: Any) -> Bench:
        """A sweep that has run to its end."""
        bench = self.bench(*args, **keys)
        bench.run()
        return bench

    def processes(self, name: str, run: Run | None = None, limit: int = 1, **params: Any) -> InProcesses:
        """Node processes of a module that was written, without a sweep; `limit` is their number at most."""
        path = f"{name}:wf"
        workflow: Workflow = load(path)
        head: CodeHead = {
            "fingerprints": fingerprints(workflow.nodes.values(), {}),
            "outline": outline_digest(workflow.facts()),
        }
        code = UserCode(NativeEngine(workflow), [], Recipe(path, params=params), head)
        with closing(in_memory()) as database:
            return InProcesses(code, run or Run(), workspaces_of(database, self.files), "test", limit)

    def lines_of(self, name: str) -> list[str]:
        """Return the lines that nodes have written to a file."""
        path = self.code / name
        return path.read_text("utf-8").splitlines() if path.exists() else []


def connect_diamond(wf: Workflow) -> None:
    """Connect four nodes: a, then b and c in one step, then d."""
    wf.entry("a")
    wf.edge("a", "b")
    wf.edge("a", "c")
    wf.edge(["b", "c"], "d")
    wf.edge("d", END)


def states(bench: Bench) -> list[dict[str, Any]]:
    """The final state of every cell, all of which have succeeded."""
    cells = bench.cells()
    assert [cell.error for cell in cells if cell.failure is not None] == []
    return [cell.state for cell in cells]


def attempts_of(bench: Bench) -> list[dict[str, Any]]:
    with bench.database.read() as connection:
        return [dict(row) for row in connection.execute(sa.select(attempts).order_by(attempts.c.number)).mappings()]


def failures(bench: Bench) -> list[tuple[str, str]]:
    failed = [row["failure"] for row in attempts_of(bench) if row["failure"] is not None]
    return [(failure["kind"], failure["message"]) for failure in failed]


def events_of(bench: Bench, kind: str) -> list[dict[str, Any]]:
    return [row["data"] for row in bench.events if row["kind"] == kind]
