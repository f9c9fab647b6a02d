"""The example of a long research run: planned, approved, killed while it reads in parallel, and resumed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.prose import sentence
from tests.support.waiting import until
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.tables.schema import approvals, checkpoints, executions

ROOT = Path(__file__).parents[2]
PAGES = 60


class Research:
    """The program of the example, in processes of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.database = Database(url)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "examples.research.research", "tides", "--db", self.url, *options]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.started.append(subprocess.Popen(command, cwd=self.folder, env={"PYTHONPATH": str(ROOT)}, **output))
        return self.started[-1]

    def run(self, *options: str) -> str:
        process = self.start(*options)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        return str(output)

    def rows(self, table: sa.Table) -> list[dict[str, Any]]:
        with self.database.read() as connection:
            return [dict(row) for row in connection.execute(sa.select(table)).mappings()]

    @property
    def sweep(self) -> str:
        return str(self.rows(executions)[0]["sweep_id"])

    def count_checkpoints(self) -> Counter[str]:
        """Checkpoints inside nodes, by node."""
        return Counter(row["inside"]["node"] for row in self.rows(checkpoints) if row["inside"])

    def reads(self) -> Counter[str]:
        """Reads by page and source, of all attempts."""
        logged = queries.event_rows(self.database, self.sweep)
        return Counter(row["data"]["message"] for row in logged if row["kind"] == "node.log")

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill the program once each of its parallel nodes has kept two more checkpoints."""
        before = self.count_checkpoints()
        nodes = ("books", "letters", "archive")
        until(lambda: all(self.count_checkpoints()[node] >= before[node] + 2 for node in nodes), "reading")
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        assert process.returncode == -signal.SIGKILL


@pytest.fixture
def research(database_url: str, tmp_path: Path) -> Iterator[Research]:
    program = Research(database_url, tmp_path)
    yield program
    for process in program.started:
        if process.returncode is None:
            process.kill()
            process.communicate(timeout=30)
    program.database.close()


def test_research_that_was_killed_twice_continues_and_reads_no_page_again_that_was_kept(research: Research) -> None:
    output = research.run("--pages", str(PAGES))
    assert sentence("Continue with the output of step “{}”?", "plan") in output
    assert "What is known of tides?" in output

    research.kill(research.start("--approve"))
    research.kill(research.start())
    report = research.run().partition("# Tides")[2]

    assert [f"{source}: {PAGES} pages" in report for source in ("archive", "books", "letters")] == [True] * 3
    assert [row["status"] for row in research.rows(approvals)] == ["answered"]
    assert [row["status"] for row in research.rows(executions)] == ["completed"]
    reads = research.reads()
    for source in ("books", "letters", "archive"):
        assert all(reads[f"read page {page} of {source}"] for page in range(PAGES))
        assert reads[f"read page 0 of {source}"] == 1
        repeats = sum(reads[f"read page {page} of {source}"] - 1 for page in range(PAGES))
        assert repeats < PAGES / 4, f"{repeats} pages of {source} were read again"
