"""Combinations that are stopped: only their cells end, the others go on, and they can run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.abc_flow import Abc
from tests.support.bench import Bench
from tests.support.prose import sentence
from wtb.core.errors import ConflictError, InputError
from wtb.display import markdown, matrix_table
from wtb.operations.control.pause_cancel import stop_combination
from wtb.operations.running.extending import extend
from wtb.store.read import queries

Make = Callable[..., Abc]


@pytest.fixture
def paused(bench: Callable[..., Bench], tmp_path: Path) -> Abc:
    """a -> b -> c over 6 cases, of which the limit of node runs left some open."""
    return Abc(tmp_path, bench, 6, limits={"node_runs": 12}, run={"concurrency": 1})


def statuses(flow: Abc, variant: str) -> Counter[str]:
    every = queries.choices(flow.bench.database, flow.bench.sweep_id)
    rows = queries.cell_rows(flow.bench.database, flow.bench.sweep_id)
    return Counter(str(row.status) for row in rows if every[row.combination]["b"] == variant)


def stop(flow: Abc, **choices: str) -> Any:
    return stop_combination(flow.context, flow.bench.sweep_id, combination=choices, reason="it is bad")


def test_only_the_cells_of_a_stopped_combination_end_and_the_others_continue(paused: Abc) -> None:
    before = statuses(paused, "loud")
    done = before["succeeded"]
    assert paused.bench.row.status == "paused"
    assert 0 < done < 6
    stopped = stop(paused, b="loud")
    assert stopped.cells == 6 - done
    assert statuses(paused, "loud") == {"succeeded": done, "skipped": 6 - done}
    run_pending(paused)
    assert paused.bench.row.status == "completed"
    assert statuses(paused, "default") == {"succeeded": 6}
    assert statuses(paused, "loud") == {"succeeded": done, "skipped": 6 - done}
    matrix = paused.matrix()
    row = next(row for row in matrix["rows"] if row["combination"]["b"] == "loud")
    assert row["stopped"]["cases"] == row["n"] == done
    assert row["metrics"]["score"]["n_pairs"] == done
    assert row["metrics"]["score"]["p"] is None
    assert row["metrics"]["score"]["delta"] == pytest.approx(1.0)
    assert matrix["best"]["score"]["combination"] == {"b": "default"}, "loud has the higher mean, and was stopped"
    assert any(text.startswith("b=loud was stopped by anna after") for text in matrix["warnings"])
    assert matrix["figures"] != "anytime", "what was planned has come to its end"
    assert sentence("stopped by {} after {}", "anna", f"{done} cases") in markdown.matrix(matrix)
    (line,) = [line for line in matrix_table.render(matrix).splitlines() if "stopped after" in line]
    assert f"stopped after {done}" in line
    assert "loud" in line


def test_a_stopped_combination_runs_again_where_extend_lets_it(paused: Abc) -> None:
    stop(paused, b="loud")
    run_pending(paused)
    paused.forget()
    extension = extend(paused.context, paused.bench.sweep_id, combination={"b": "loud"}, run=False, code=paused.code)
    assert extension.restarted == 6 - statuses(paused, "loud")["succeeded"]
    run_pending(paused)
    assert statuses(paused, "loud") == {"succeeded": 6}
    assert paused.ran["a"] == 0, "what is shared ran already"
    assert "stopped" not in paused.matrix()["rows"][1]


def test_new_cases_of_a_stopped_combination_are_skipped(paused: Abc) -> None:
    stop(paused, b="loud")
    run_pending(paused)
    extend(
        paused.context, paused.bench.sweep_id, cases=[{"id": "more", "input": {"x": 99}}], run=False, code=paused.code
    )
    run_pending(paused)
    assert statuses(paused, "default") == {"succeeded": 7}
    assert statuses(paused, "loud")["skipped"] >= 1
    extend(paused.context, paused.bench.sweep_id, combination={"b": "loud"}, run=False, code=paused.code)
    run_pending(paused)
    assert statuses(paused, "loud") == {"succeeded": 7}


def test_what_cannot_be_stopped_is_rejected_and_stopping_again_does_nothing(
    paused: Abc, subtests: pytest.Subtests
) -> None:
    refused: list[tuple[dict[str, str], type[Exception], str]] = [
        ({"b": "default"}, ConflictError, sentence("is the baseline that others are compared with")),
        ({"b": "nothing"}, InputError, sentence("has no variant {}", "'nothing'")),
        ({"x": "loud"}, InputError, sentence("does not vary a node {}", "'x'")),
    ]
    for choices, kind, problem in refused:
        with subtests.test(**choices), pytest.raises(kind, match=problem):
            stop(paused, **choices)
    assert statuses(paused, "default")["skipped"] == 0
    first, second = stop(paused, b="loud"), stop(paused, b="loud")
    assert (first.already, second.already, second.cells, second.combinations) == (0, 1, 0, ())


def test_a_sweep_that_has_ended_has_nothing_to_stop(bench: Callable[..., Bench], tmp_path: Path) -> None:
    flow = Abc(tmp_path, bench, 2)
    with pytest.raises(ConflictError, match="has ended"):
        stop(flow, b="loud")


def run_pending(flow: Abc) -> None:
    """Run what is pending without a limit."""
    flow.bench.run(node_runs=None)
