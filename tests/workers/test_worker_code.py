"""Code of sweeps that a worker keeps ready, with the directories in which it works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.bench import Bench, in_memory
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.execution.engine.description import imports
from wtb.execution.runtime.code_drift import WrittenFiles
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec
from wtb_workers.warm import Codes, Refused


def threads(folder: Path) -> Bench:
    """A sweep that is to run on threads."""
    workflow = Workflow("kept")
    workflow.node(lambda state: {}, name="a")
    workflow.entry("a")
    workflow.edge("a", END)
    spec = {
        "workflow": "kept:wf",
        "cases": [{"id": "c", "input": {}}],
        "vary": {"a": "all"},
        "run": {"pool": "thread"},
    }
    return Bench(in_memory(), prepare(parse_spec(spec), workflow=workflow), folder)


def test_a_worker_whose_database_has_walls_runs_no_nodes_on_its_threads(tmp_path: Path) -> None:
    bench = threads(tmp_path)
    codes = Codes(bench.workspaces, "a-runner", slots=1, threads=False)
    with pytest.raises(Refused, match=r"'run.pool: thread' runs nodes in the worker itself.*set 'pool: process'"):
        codes.acquire(bench.row, WrittenFiles(bench.database, bench.row), apart=False)
    codes.close()


def test_older_code_of_a_sweep_that_is_released_leaves_the_directories_of_newer_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = threads(tmp_path)
    codes = Codes(bench.workspaces, "a-runner", slots=1)
    monkeypatch.setattr("wtb_workers.warm.bind", lambda spec: bench.prepared.bound)
    _, older = codes.acquire(bench.row, WrittenFiles(bench.database, bench.row), apart=False)
    older.workspaces.open(None).close(keep=False)
    monkeypatch.setattr(imports, "rounds", imports.rounds + 1)  # another sweep's modules were imported
    _, newer = codes.acquire(bench.row, WrittenFiles(bench.database, bench.row), apart=False)
    assert newer is not older
    attempt = newer.workspaces.open(None)
    codes.release(older)
    codes.cool(0)
    assert attempt.path.is_dir()
    attempt.close(keep=False)
    codes.release(newer)
    codes.close()
    assert not list(bench.workspaces.root.rglob("*"))
