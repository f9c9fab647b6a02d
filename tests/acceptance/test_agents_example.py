"""The example's agent stays within its budget and claims only proven results, whichever policy chooses its moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wtb
from examples.agents.improve import MOVES, Search, adopt, ask_model, improve


@pytest.mark.parametrize(
    ("best", "adopted"),
    [
        ({"clear": True, "combination": {"query": "lead"}}, "lead"),
        ({"clear": True, "combination": {"query": "whole"}}, "whole"),
        ({"clear": False, "combination": {"query": "lead"}}, "whole"),
    ],
)
def test_what_is_not_clear_is_not_adopted_and_not_claimed(best: dict[str, Any], adopted: str) -> None:
    present = {"query": "whole"}
    message = adopt(present, "query", best)
    assert present["query"] == adopted
    assert ("clearly best" in message) == best["clear"]


def test_what_is_no_move_is_refused() -> None:
    with pytest.raises(ValueError, match="'all' is no move; expected one of: chunk, query, retrieve"):
        improve(None, Search(100), lambda moves: "all")  # type: ignore[arg-type]


@pytest.mark.slow
def test_an_agent_stops_where_its_budget_does_not_suffice(tmp_path: Path) -> None:
    with wtb.open(f"sqlite:///{tmp_path / 'wtb.db'}") as bench:
        search = improve(bench, Search(150), lambda moves: moves[-1])
        spent = sum(record.cells for record in bench.sweeps())
    assert search.tried_nodes == ["retrieve"]
    assert (spent, search.cells) == (148, 2)
    assert search.claims[-1] == "query: not tried; 74 cells, and 2 are left"


@pytest.mark.slow
def test_a_small_model_chooses_one_of_the_moves() -> None:
    assert ask_model(list(MOVES)) in MOVES
