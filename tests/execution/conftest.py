from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bench import Bench, in_memory
from tests.support.flows import Flows
from wtb.authoring.code.calling import Caller
from wtb.execution.engine.executor import Surroundings
from wtb.operations.context import Context
from wtb.operations.running.local import signed
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import parse_spec
from wtb.store.database import Database
from wtb.store.files.store import FileStore
from wtb.store.files.workspaces import Workspaces


@pytest.fixture
def flows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flows]:
    workflows = Flows(tmp_path)
    monkeypatch.syspath_prepend(str(workflows.code))
    # Python takes a source of the same size and second as its compiled one.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    yield workflows
    for bench in workflows.benches:
        bench.database.close()
    for name in [name for name in sys.modules if name.startswith("process_flow_")]:
        del sys.modules[name]
    sessions = workflows.files / "sessions"
    assert not sessions.exists() or not list(sessions.iterdir())  # no run leaves a directory behind


@pytest.fixture
def surroundings(tmp_path: Path) -> Iterator[Surroundings]:
    caller = Caller()
    yield Surroundings(caller, None, Workspaces(FileStore(tmp_path / "files"), tmp_path / "attempts"))
    caller.close()


@pytest.fixture
def policed(flows: Flows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    """Runs a sweep of a module that was submitted under policies."""
    folder = tmp_path / "policy"
    folder.mkdir()
    monkeypatch.setenv("WTB_POLICY", str(folder))
    monkeypatch.setattr("wtb.operations.policy_rules.KEEP_S", -1.0)

    def run(text: str, policies: str, pool: str = "process", database: Database | None = None, **spec: Any) -> Bench:
        (folder / "house.cedar").write_text(policies, "utf-8")
        flows.write(text)
        document = {
            "workflow": f"{flows.name}:wf",
            "cases": [{"id": "one", "input": {}}],
            "vary": {"a": "all"},
            "run": {"pool": pool},
            **spec,
        }
        place = database or in_memory()
        bench = Bench(place, signed(Context(place, by="ana"), prepare(parse_spec(document))), flows.files)
        flows.benches.append(bench)
        bench.run()
        return bench

    return run
