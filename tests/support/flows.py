"""Workflows in modules of their own, sweeps of them in node processes, and what those left in the database."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.support.attempts import attempts
from tests.support.bench import Bench, in_memory
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec

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
        data = {
            "workflow": f"{self.name}:wf",
            "cases": [{"id": f"c{n}", "input": {"n": n}} for n in range(cases)],
            "vary": vary or {"a": "all"},
            **keys,
            "run": {"concurrency": 1, **keys.get("run", {})},
        }
        bench = Bench(in_memory(), prepare(parse_spec(data), workflow=workflow), self.files)
        self.benches.append(bench)
        assert bench.prepared.bound.pool == data["run"].get("pool", "process")
        return bench

    def run(self, *args: Any, **keys: Any) -> Bench:
        """A sweep that has run to its end."""
        bench = self.bench(*args, **keys)
        bench.run()
        return bench

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
    return [
        (row["failure"]["kind"], row["failure"]["message"]) for row in attempts_of(bench) if row["failure"] is not None
    ]


def events_of(bench: Bench, kind: str) -> list[dict[str, Any]]:
    return [row["data"] for row in bench.events if row["kind"] == kind]
