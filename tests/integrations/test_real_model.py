"""A sweep over a small local language model: the client records what the model did."""

from __future__ import annotations

from pathlib import Path

from tests.support.bench import in_memory
from tests.support.model_server import require_small_model
from wtb.display.views.executions import execution_document
from wtb.execution.runtime.sweep_run import new_run
from wtb.planning.prepare import prepare
from wtb.planning.sweep_spec import load_spec
from wtb.store.files.locations import workspaces_of
from wtb.store.read import queries

SWEEP = Path(__file__).parents[2] / "examples" / "model" / "sweep.yaml"


def test_two_prompts_over_two_cases_are_recorded_with_what_the_model_took(tmp_path: Path) -> None:
    require_small_model("openai")
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
