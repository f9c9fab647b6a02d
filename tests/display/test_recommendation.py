"""The decision of a sweep as text: the recommendation, its basis, the next step, and the gates."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support import documents
from tests.support.prose import sentence
from wtb.display import markdown, matrix_table, recommendation, summary

NAMES = ("mini", "small", "large")


def row(name: str, mean: float, usd: float | None, is_shown: bool | None = None) -> dict[str, Any]:
    figures = {**summary.NOT_EVALUATED, "n": 60, "mean": mean, "ci": [mean - 0.05, mean + 0.05], "common_mean": mean}
    within = {"margin": 0.05, "shown": is_shown, "behind": [0.0, 0.04]}
    return {
        "combination": {"answer": name},
        "n": 60,
        "succeeded": 60,
        "failed": 0,
        "cost_usd": usd,
        "cost_failed_usd": 0.0,
        "cost_per_success_usd": usd,
        "latency_s": {"p50": 1.2, "p95": 2.0},
        "metrics": {"contains": {**figures, "within": within}},
    }


def decision(**changed: Any) -> dict[str, Any]:
    return {
        "objective": "maximize contains",
        "metric": "contains",
        "margin": None,
        "combination": {"answer": "mini"},
        "because": None,
        "basis": "leads",
        "ties": [{"answer": "small"}, {"answer": "large"}],
        "is_cheapest": True,
        "mean": 0.86,
        "ci": [0.81, 0.91],
        "behind": None,
        "cost_usd": 0.0012,
        "latency_s": 1.2,
        "cases": 60,
        "cases_needed": None,
        "is_final": True,
        "warnings": 0,
        **changed,
    }


def matrix(choice: dict[str, Any], **changed: Any) -> Any:
    best = {
        "combination": {"answer": "mini"},
        "clear": False,
        "candidates": [{"answer": name} for name in NAMES],
        "rival": {"answer": "large"},
        "lead": 0.03,
        "because": "that could be chance",
        "unranked": [],
        "p": 0.4,
        "differ_at_most": None,
        "cases_needed": None,
        "lead_ci": [-0.1, 0.1],
        "n_pairs": 60,
        "winner": None,
    }
    rows = [row(name, 0.86 - 0.01 * place, 0.0012 * (place + 1)) for place, name in enumerate(NAMES)]
    defaults = {
        "sweep": {"id": "1abc", "name": "s", "status": "completed", "started_at": None, "finished_at": None},
        "rows": rows,
        "best": {"contains": best},
        "metrics": {"contains": {"better": "higher", "compare": "mean"}},
        "primary": "contains",
        "baseline": None,
        "cells": {"total": 180, "succeeded": 180, "failed": 0},
        "node_runs": {"executed": 180, "unshared": 180, "attempts": 180, "by_node": {}},
        "cost": {"usd": 0.25, "unshared_usd": 0.25, "tokens_in": 0, "tokens_out": 0},
        "decision": choice,
    }
    return documents.whole_matrix({**defaults, **changed})


def gate(holds: bool | None, mean: float = 0.48) -> dict[str, Any]:
    return {"gate": "contains.mean >= 0.6", "holds": holds, "values": {"contains.mean": mean}, "because": None}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"basis": "best", "ties": []}, ["It beats every other combination."]),
        (
            {"basis": "within", "margin": 0.05},
            ["It is shown to be within 0.05 of the best. Ties with 2 others; this is the cheapest."],
        ),
        (
            {"basis": "within", "margin": 0.05, "ties": [], "is_cheapest": None},
            [sentence("It is shown to be within {} of the best{}.", "0.05", ". No other combination is")],
        ),
        (
            {"cases_needed": 412},
            [
                "It is not shown to be the best: it ties with 2 others; this is the cheapest.",
                sentence("{} {} too few to distinguish them", 60, "cases are")
                + sentence(": about {} would, if the lead of {} is real.", 420, "0.030"),
            ],
        ),
        (
            {"basis": "not shown", "margin": 0.05},
            [
                "No combination is shown to be within 0.05 of the best yet: it ties with 2 others; this is the "
                "cheapest.",
                "60 cases are too few to distinguish them.",
            ],
        ),
        (
            {"objective": "maximize contains subject to cost_usd < 0.002, within 0.05 of the best", "basis": "within",
             "margin": 0.05},
            ["It is shown to be within 0.05 of the best of those with cost_usd < 0.002. Ties with 2 others; this is "
             "the cheapest."],
        ),
        ({"basis": "figure", "metric": None, "objective": "minimize cost_usd", "ties": []}, ["By minimize cost_usd."]),
    ],
)  # fmt: skip
def test_a_decision_says_what_it_rests_on_and_what_comes_next(changed: dict[str, Any], expected: list[str]) -> None:
    card = recommendation.card(matrix(decision(**changed)))
    assert card is not None
    assert card.title == "Recommended: answer=mini"
    assert card.lines == expected


def test_the_cheapest_of_those_that_tie_is_named_if_it_is_another_one() -> None:
    choice = decision(combination={"answer": "large"}, is_cheapest=False, cost_usd=0.0036)
    choice["ties"] = [{"answer": "mini"}, {"answer": "small"}]
    first = recommendation.lines(matrix(choice))[1]
    assert first == sentence("It is not shown to be the best") + ": it ties with 2 others" + sentence(
        "; the cheapest of them is {}", "mini."
    )


def test_figures_of_the_recommended_combination_stand_beside_it() -> None:
    line = recommendation.lines(matrix(decision()))[0]
    assert line == (
        "Recommended: answer=mini (contains 0.860, 95% interval from 0.810 to 0.910, cost per answer $0.00120, "
        "median time 1.20 s)."
    )


@pytest.mark.parametrize(
    ("holds", "tone", "verdict", "title"),
    [
        ([True], "good", sentence("The gate holds."), "Recommended"),
        ([True, True], "good", sentence("Both gates hold."), "Recommended"),
        ([True, False], "bad", sentence("Do not ship: {} of {} failed.", "1 gate", 2), "Leading candidate"),
        ([True, None], "open", sentence("Not decided: {} of {} cannot be decided.", "1 gate", 2), "Recommended"),
        ([False, None], "bad", sentence("Do not ship: {} of {} failed.", "1 gate", 2), "Leading candidate"),
    ],
)
def test_gates_decide_whether_to_ship(holds: list[bool | None], tone: str, verdict: str, title: str) -> None:
    document = matrix(decision(basis="best", ties=[]), gates=[gate(hold) for hold in holds])
    card = recommendation.card(document)
    assert card is not None
    assert (card.tone, card.verdict, card.title.partition(":")[0]) == (tone, verdict, title)
    assert len(card.gates) == len(holds)
    assert "(0.48)" in card.gates[0][1]
    assert recommendation.lines(document)[0] == verdict


def test_what_is_not_shown_is_not_green() -> None:
    tones = [
        recommendation.card(matrix(decision(basis=basis, margin=0.05, is_final=is_final)))
        for basis, is_final in (("leads", True), ("not shown", True), ("best", False), ("within", True))
    ]
    assert [card.tone for card in tones if card] == ["open", "open", "open", "good"]


def test_nothing_is_recommended_if_no_combination_is_allowed() -> None:
    choice = decision(combination=None, because="no combination is known to have cost_usd < 0", basis=None, mean=None)
    assert recommendation.lines(matrix({**choice, "cost_usd": None, "latency_s": None}))[0] == (
        sentence("Nothing to recommend: ") + sentence("no combination is known to have {}", "cost_usd < 0.")
    )


def test_documents_of_before_have_no_decision() -> None:
    before = matrix(decision())
    del before["decision"]
    assert recommendation.card(before) is None
    assert recommendation.lines(before) == []
    assert recommendation.warnings({**before, "warnings": ["a"]}) == (["a"], "")


def test_warnings_that_cannot_change_the_decision_stand_behind_a_count() -> None:
    document = matrix(decision(warnings=1), warnings=["costs are unknown", "skewed", "clusters are few"])
    text = matrix_table.render(document, 100)
    assert "Warning: costs are unknown" in text
    assert "skewed" not in text
    assert sentence("{}: wtb matrix {} --warnings", "2 more warnings", "1abc") in text
    assert "Warning: clusters are few" in matrix_table.render(document, 100, warnings=True)
    assert recommendation.warnings({**document, "warnings": ["a", "b"]}, all_of_them=True) == (["a", "b"], "")


def test_the_decision_stands_before_the_table_everywhere() -> None:
    document = matrix(decision(), gates=[gate(False)])
    for text in (matrix_table.render(document, 100), markdown.matrix(document)):
        assert text.index("Do not ship: 1 gate of 1 failed.") < text.index("Leading candidate: answer=mini")
        assert text.index("Leading candidate") < text.index("small")


def test_a_table_tells_which_rows_are_good_enough() -> None:
    rows = [row("mini", 0.86, 0.1, True), row("small", 0.85, 0.2), row("large", 0.6, 0.3, False)]
    lines = matrix_table.render(matrix(decision(), rows=rows), 120).splitlines()
    header = next(line for line in lines if "≤0.05" in line)
    first = lines.index(header) + 2
    cells = ["".join(re.findall(r"\b(?:yes|no)\b", line)) for line in lines[first : first + 3]]
    assert cells == ["yes", "", "no"]
    assert sentence("within {} of the best", "0.05") in markdown.matrix(matrix(decision(), rows=rows))


def test_of_rows_that_are_alike_none_leads() -> None:
    document = matrix(decision())
    first = document["rows"][0]
    assert summary.mark(document, first, "contains") == "☆ leads"
    document["best"]["contains"]["lead"] = 0.0
    assert summary.mark(document, first, "contains") == "☆"
    document["best"]["contains"]["rival"] = None
    assert summary.mark(document, first, "contains") == ""


@pytest.mark.parametrize(
    ("verdict", "tone", "first"),
    [
        ("worse", "bad", sentence("Do not ship: worse than the baseline.")),
        ("failed", "bad", sentence("Do not ship: the night failed.")),
        ("unclear", "open", sentence("The gate holds.")),
        ("not worse", "good", sentence("The gate holds.")),
    ],
)
def test_the_verdict_of_a_schedule_counts_with_the_gates(verdict: str, tone: str, first: str) -> None:
    night = {"verdict": verdict, "because": ["contains 0.61 to 0.48"], "baseline": "1old"}
    document = matrix(decision(basis="best", ties=[]), gates=[gate(True)], night=night)
    card = recommendation.card(document)
    assert card is not None
    assert (card.tone, card.verdict) == (tone, first)
    assert card.gates[-1] == (tone, f"schedule: {verdict} (baseline: sweep 1old): contains 0.61 to 0.48")
    assert card.compared == ("1old", "1abc")
