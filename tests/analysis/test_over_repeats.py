"""pass@k and pass^k: the outcome of k repeats of a case, estimated without bias from all repeats."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.prose import sentence
from wtb.analysis.comparison.compare import compare_sweeps
from wtb.analysis.kept_matrix import judged
from wtb.analysis.running_totals import live
from wtb.analysis.statistics.row_figures import over_repeats
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.workflow import Workflow
from wtb.core.errors import InputError
from wtb.core.scoring.measure import Kind, Passes, read_passes

Make = Callable[..., Any]


@pytest.mark.parametrize(("kind", "reached"), [("pass@", any), ("pass^", all)])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_an_estimate_is_the_share_of_choices_of_repeats_that_pass(
    kind: Kind, reached: Callable[[Any], bool], k: int
) -> None:
    for repeats, passed in itertools.product(range(k, 7), range(7)):
        if passed <= repeats:
            results = [True] * passed + [False] * (repeats - passed)
            choices = list(itertools.combinations(results, k))
            expected = sum(map(reached, choices)) / len(choices)
            assert Passes(kind, k).estimate(repeats, passed) == pytest.approx(expected)


def test_fewer_repeats_than_k_say_nothing() -> None:
    assert Passes("pass@", 3).estimate(2, 2) is None
    rates, repeats = np.array([[1 / 3, 1.0], [0.0, np.nan]]), np.array([[3, 2], [3, 0]])
    estimates = over_repeats(Passes("pass@", 3), rates, repeats)
    np.testing.assert_allclose(estimates, [[1.0, np.nan], [0.0, np.nan]])


def test_a_name_is_read_as_it_is_written() -> None:
    for text in ("pass@3", "pass^10"):
        assert str(read_passes(text)) == text
    assert [read_passes(text) for text in (None, "auc", "pass@0", "pass@", "pass@x", "pass@3 ")] == [None] * 6


def workflow() -> Workflow:
    """The default passes case x in its first x repeats and fails in repeat 3 of case 5; the other one always passes."""
    wf = Workflow("repeated")

    def answer(state: dict[str, Any], ctx: Any, *, passes: bool = False) -> dict[str, Any]:
        if state["x"] == 5 and ctx.repeat == 3 and not passes:
            raise ValueError("no answer")
        return {"answer": "yes" if passes or ctx.repeat < state["x"] else "no"}

    node = wf.node(answer)
    node.variant("sure", passes=True)
    wf.entry(node)
    return wf


CASES = [{"id": str(x), "input": {"x": x}, "expected": "yes"} for x in range(6)]
EVALUATE = [
    {"exact_match": {"field": "answer"}},
    {"exact_match": {"field": "answer", "pass_at": 2}},
    {"exact_match": {"field": "answer", "pass_all": 2, "name": "steady"}},
]


def expected(kind: Kind, k: int, counts: list[tuple[int, int]]) -> float:
    estimates = [Passes(kind, k).estimate(*count) for count in counts]
    return float(np.mean([estimate for estimate in estimates if estimate is not None]))


@pytest.mark.parametrize("on_failure", [None, "left_out"])
def test_a_matrix_has_means_intervals_differences_and_gates_of_them(run_sweep: Make, on_failure: str | None) -> None:
    gates = ['"pass@2".mean > 0.5', "steady.mean > 0.9", '"pass@2".delta > 0']
    spec = {"baseline": {"answer": "default"}, "on_failure": on_failure, "gates": gates, "best": {"maximize": "pass@2"}}
    bench = run_sweep(workflow(), CASES, {"answer": "all"}, evaluate=EVALUATE, repeats=4, **spec)
    matrix = judged(bench.database, bench.row)
    base, sure = (row["metrics"] for row in matrix["rows"])
    last = (3, 3) if on_failure else (4, 3)
    counts = [(4, x) for x in range(5)] + [last]
    assert base["pass@2"]["mean"] == pytest.approx(expected("pass@", 2, counts))
    assert base["steady"]["mean"] == pytest.approx(expected("pass^", 2, counts))
    for name in ("pass@2", "steady"):
        assert sure[name]["mean"] == 1.0
        assert sure[name]["delta"] == pytest.approx(1 - base[name]["mean"])
        low, high = base[name]["ci"]
        assert 0 <= low < base[name]["mean"] < high <= 1
        assert sure[name]["p"] <= sure[name]["p_adjusted"]
    passes = [matrix["metrics"][name]["passes"] for name in ("pass@2", "steady")]
    assert (passes, [gate["holds"] for gate in matrix["gates"]]) == (["pass@2", "pass^2"], [True] * 3)
    assert matrix["choice"]["combination"] == {"answer": "sure"}
    assert not {"pass@2", "steady"} & live(bench.database, bench.row)["rows"][0]["metrics"].keys(), (
        "they are no mean of what is tallied"
    )


def test_a_case_that_lost_too_many_repeats_has_no_score(run_sweep: Make) -> None:
    evaluate = [{"exact_match": {"field": "answer", "pass_at": 4}}]
    bench = run_sweep(workflow(), CASES, {"answer": "all"}, evaluate=evaluate, repeats=4, on_failure="left_out")
    base, sure = (row["metrics"]["pass@4"] for row in bench.matrix()["rows"])
    assert (base["n"], sure["n"]) == (5, 6)
    assert base["mean"] == pytest.approx(4 / 5)


def test_two_sweeps_are_compared_by_them(run_sweep: Make) -> None:
    before, after = (run_sweep(workflow(), CASES, {}, evaluate=EVALUATE, repeats=4) for _ in range(2))
    document = compare_sweeps(before.database, before.row, after.row)
    assert document["rows"][0]["metrics"]["pass@2"]["delta"] == pytest.approx(0.0)


@pytest.mark.parametrize("repeats", [1, 2])
def test_fewer_repeats_than_k_are_rejected_before_anything_runs(run_sweep: Make, repeats: int) -> None:
    evaluate = [{"exact_match": {"field": "answer", "pass_at": 3}}]
    with pytest.raises(InputError, match=sentence("{} needs {} repeats of each case, and the sweep has", "pass@3", 3)):
        run_sweep(workflow(), CASES, {}, evaluate=evaluate, repeats=repeats)


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("exact_match", {"pass_at": 0}, sentence("{} is {}; expected a number of repeats", "'pass_at'", 0)),
        ("exact_match", {"pass_at": True}, sentence("{} is {}; expected a number of repeats", "'pass_at'", "True")),
        ("exact_match", {"pass_at": 2, "pass_all": 2}, sentence("expected two evaluators with one of each")),
        ("chrf", {"pass_all": 2}, sentence("scores that do not pass or fail; expected 'at_least' beside it")),
        ("macro_f1", {"pass_all": 2}, sentence("scores that do not pass or fail")),
    ],
)
def test_bad_options_are_rejected(name: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        make_evaluator(name, {"field": "answer", **options}, lambda path: None)


def test_scores_with_a_threshold_and_combined_evaluators_count_repeats(run_sweep: Make) -> None:
    evaluate = [
        {"chrf": {"field": "answer", "at_least": 0.9, "pass_at": 2}},
        {"not": {"contains": {"field": "answer", "text": "no"}, "pass_all": 2}},
    ]
    bench = run_sweep(workflow(), CASES, {}, evaluate=evaluate, repeats=4)
    (row,) = bench.matrix()["rows"]
    counts = [(4, x) for x in range(5)] + [(4, 3)]
    assert row["metrics"]["pass@2"]["mean"] == pytest.approx(expected("pass@", 2, counts))
    assert row["metrics"]["pass^2"]["mean"] == pytest.approx(expected("pass^", 2, counts))
