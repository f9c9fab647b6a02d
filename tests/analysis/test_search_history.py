"""Combinations that were tried over the same cases before raise the bar for those that come after them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import numpy as np
import pytest

from wtb.analysis.matrix.build import build
from wtb.analysis.search_history import spendable
from wtb.analysis.statistics import Design, compare
from wtb.authoring.edges import END
from wtb.authoring.workflow import Workflow

Make = Callable[..., Any]
CASES = [{"id": str(x), "input": {"x": x}} for x in range(40)]


class State(TypedDict, total=False):
    x: int
    y: float


def workflow(**offsets: int) -> Workflow:
    """Variants that differ by parameters only; `after` is not varied."""
    made = Workflow("searched", state=State)

    @made.node
    def guess(state: State, *, offset: int = 0) -> State:
        return {"y": float((state["x"] * 7 + offset * 13) % 20 + (offset > 90))}

    @made.node
    def after(state: State) -> State:
        return {}

    for name, offset in offsets.items():
        guess.variant(name, offset=offset)
    made.entry(guess)
    made.edge(guess, after)
    made.edge(after, END)
    return made


def y(case: Any, result: Any) -> float:
    return float(result.state["y"])


@pytest.fixture
def tried(bench: Make) -> Callable[..., dict[str, Any]]:
    """The matrix of a sweep of the default and these variants."""

    def run(*variants: str, cases: Sequence[Any] = CASES, **spec: Any) -> dict[str, Any]:
        offsets = {name: sum(map(ord, name)) for name in variants}
        more = {"evaluators": {"tests:y": y}} | spec
        made = bench(workflow(**offsets), cases, {"guess": ["default", *variants]}, **more)
        made.run()
        found = build(made.database, made.row)
        assert found["figures"] == "final"
        return found

    return run


def test_the_first_sweep_over_its_cases_is_as_it_was(tried: Any) -> None:
    found = tried("a", "b")
    assert found["best"]["y"]["tried"] == 2
    assert not any("tried" in one for one in found["warnings"])


def test_what_is_tried_later_has_to_show_more(tried: Any) -> None:
    first = [tried(name) for name in ("a", "b", "c")]
    assert [found["best"]["y"]["tried"] for found in first] == [1, 2, 3]
    raised = [found["rows"][1]["metrics"]["y"] for found in first]
    assert all(one["p_adjusted"] == pytest.approx(min(1, one["p"] / spendable(n, 1))) for n, one in enumerate(raised))
    said = "3 combinations besides the baseline were tried over these cases by y, 2 of them in 2 other sweeps before"
    assert said in " ".join(first[2]["warnings"])


def test_exploratory_metrics_ask_for_more_as_well(tried: Any) -> None:
    def pair(case: Any, result: Any) -> dict[str, float]:
        return {"y": y(case, result), "again": y(case, result)}

    both = {"evaluators": {"tests:pair": pair}}
    for name in ("a", "b"):
        tried(name, **both)
    found = tried("c", **both)
    assert (found["primary"], *found["metrics"]) == ("pair.y", "pair.y", "pair.again")
    primary, other = (found["rows"][1]["metrics"][metric] for metric in found["metrics"])
    assert primary["p"] == other["p"]
    assert other["p_adjusted"] == primary["p_adjusted"] == pytest.approx(min(1, other["p"] / spendable(2, 1)))


def test_one_combination_that_was_tried_before_is_one(tried: Any) -> None:
    tried("a")
    alone = " ".join(tried()["warnings"])
    assert "1 combination besides the baseline was tried over these cases by y, 1 of them in another sweep" in alone


def test_the_same_combination_again_is_not_another_one(tried: Any) -> None:
    tried("a", "b")
    assert tried("a", "b")["best"]["y"]["tried"] == 2
    again = tried("b")
    assert again["best"]["y"]["tried"] == 2
    said = " ".join(again["warnings"])
    assert "1 of them in 2 other sweeps before" in said, "a part of what was tried is no new start"


def test_another_code_of_the_same_name_is_another_combination(tried: Any, bench: Make) -> None:
    tried("a")
    made = bench(workflow(a=55), CASES, {"guess": ["default", "a"]}, evaluators={"tests:y": y})
    made.run()
    assert build(made.database, made.row)["best"]["y"]["tried"] == 2


@pytest.mark.parametrize(
    ("other", "counts"),
    [
        ({"cases": CASES[:39]}, True),
        ({"cases": [*CASES[:20], *({"id": str(x), "input": {"x": x + 100}} for x in range(20, 40))]}, True),
        ({"cases": CASES[:19]}, False),
        ({"cases": [{"id": str(x), "input": {"x": x + 100}} for x in range(40)]}, False),
        ({"project": "other"}, False),
        ({"evaluators": {"tests:z": lambda case, result: 1.0}}, False),
    ],
)
def test_only_what_was_scored_alike_over_most_of_the_cases_counts(tried: Any, other: Any, counts: bool) -> None:
    tried("a", **other)
    assert tried("b")["best"]["y"]["tried"] == (2 if counts else 1)


def test_a_lead_that_so_many_tries_explain_is_not_clear() -> None:
    scores = np.stack([np.zeros(40), np.repeat([1.0, -1.0, 0.0], (12, 2, 26))])
    first, later = compare(scores, Design(baseline=0)), compare(scores, Design(baseline=0, share=spendable(49, 1)))
    assert (first.clear, later.clear) == (True, False)
    assert later.lead.because == "that could be chance, given how many combinations were tried over these cases"
    assert later.lead.p == first.lead.p
    assert later.rows[1].p_adjusted == 1.0
    assert (later.rows[1].detectable or 0) > (first.rows[1].detectable or 1)
    assert first.lead.next_step is None
    assert later.lead.next_step is not None
    assert later.lead.next_step.cases is not None


def test_parts_of_the_level_never_add_up_to_more_than_it() -> None:
    for first, each in ((1, 1), (1, 7), (24, 3)):
        spent, before = 0.0, first
        for _ in range(10_000):
            spent += spendable(before, each)
            before += each
        assert spent <= 1
    assert spendable(0, 5) == 1
    assert spendable(9, 0) == spendable(9, 1) > 0
