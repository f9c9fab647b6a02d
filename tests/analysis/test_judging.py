"""Gates of a matrix: how a name selects a combination; a gate on an unknown figure does not hold."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import documents
from tests.support.prose import sentence
from wtb.analysis.gates import all_hold, judge
from wtb.core.status import CELL
from wtb.display.figures import lines
from wtb.store.database import Database


def row(variant: str, mean: float | None, failed: int = 0) -> dict[str, Any]:
    metric = {"n": 4, "n_pairs": 0, "mean": mean, "ci": None, "delta": None, "delta_ci": None, "p_adjusted": None}
    metric["common_mean"] = mean
    counts = {"n": 4, "failed": failed, "cost_usd": 0.1, "latency_s": {"p50": 0.5, "p95": None}}
    return {"combination": {"a": variant}, **counts, "metrics": {"m": metric}}


def matrix(*rows: dict[str, Any], best: str | None = "x", **more: Any) -> dict[str, Any]:
    counts = {"total": 8, **dict.fromkeys(CELL, 0), "succeeded": 7, "failed": 1}
    document = {
        "cells": counts,
        "cost": {"usd": 1.5, "tokens_in": 0, "tokens_out": 0},
        "node_runs": {"executed": 5, "unshared": 8, "attempts": 6},
        "baseline": {"a": "y"},
        "rows": list(rows) or [row("x", 0.8), row("y", 0.5)],
        "primary": "m",
        "best": {"m": {"combination": best and {"a": best}, "clear": True, "unranked": [], "because": "why"}},
        "metrics": {"m": {"better": "higher"}},
        **more,
    }
    return documents.whole_matrix(document)


def judged(gate: str, document: dict[str, Any] | None = None) -> dict[str, Any]:
    database = Database("sqlite://")  # which conditions do not ask
    sweep = SimpleNamespace(id="s", session="default", spec={"gates": [gate]})
    (answer,) = judge(database, sweep, document or matrix())
    database.close()
    return answer


@pytest.mark.parametrize(
    ("gate", "holds", "values"),
    [
        ("m.mean >= 0.8", True, {"m.mean": 0.8}),
        ("m > 0.8", False, {"m": 0.8}),
        ("m.mean - baseline.m.mean > 0.2", True, {"m.mean": 0.8, "baseline.m.mean": 0.5}),
        ("min(m.mean) > 0.5", False, {"min(m.mean)": 0.5}),
        ("failed == 0", False, {"failed": 1.0}),
        ("cost_usd.total < 2 and cost_usd < 1", True, {"cost_usd.total": 1.5, "cost_usd": 0.1}),
        ("node_runs.executed <= 5", True, {"node_runs.executed": 5.0}),
    ],
)
def test_a_gate_is_told_with_its_figures(gate: str, holds: bool, values: dict[str, float]) -> None:
    assert judged(gate) == {"gate": gate, "holds": holds, "values": values, "because": ""}


def test_what_is_unknown_does_not_hold_and_says_why() -> None:
    gate = judged("other.mean > 0")
    assert gate["holds"] is None
    assert sentence("nothing is scored by {}", "'other'") in gate["because"]
    assert not all_hold([gate])
    assert lines([gate])[0].startswith("gate cannot be decided: other.mean > 0: nothing is")


def test_a_name_means_the_chosen_combination_then_the_only_then_the_best_one() -> None:
    choice = {"objective": "", "combination": {"a": "y"}, "because": None, "left_out": 1}
    assert judged("m > 0", matrix(choice=choice))["values"] == {"m": 0.5}
    nothing = {**choice, "combination": None, "because": "no combination costs so little"}
    assert judged("m > 0", matrix(choice=nothing))["because"] == "no combination costs so little"
    assert judged("failed == 1 and latency_s.p50 < 1", matrix(row("z", None), best=None))["holds"] is True
    assert judged("latency_s.p50 < 1", matrix(best=None, choice=None))["holds"] is None


def test_while_cells_are_open_no_gate_is_decided() -> None:
    document = matrix()
    document["cells"]["pending"] = 2
    answer = judged("m > 0", document)
    because = sentence("{} cells have no outcome yet", 2)
    assert answer == {"gate": "m > 0", "holds": None, "values": {"m": 0.8}, "because": because}


def test_lines_show_a_figure_alone_and_several_by_name() -> None:
    gates = [judged("m > 0"), judged("m > 1 and failed == 0")]
    assert lines(gates) == [
        "gate holds: m > 0 (0.8)",
        "GATE FAILED: m > 1 and failed == 0 (m = 0.8, failed = 1)",
    ]
