from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.flows import Flows


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
