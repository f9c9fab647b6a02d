"""Figures over all cells of a row agree with scikit-learn, and the matrix shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn import metrics
from sklearn.calibration import calibration_curve

from tests.support.prose import sentence
from wtb.analysis.comparison.compare import compare_sweeps
from wtb.analysis.comparison.row_pairs import compare_two_rows
from wtb.analysis.matrix.build import build
from wtb.analysis.running_totals import live
from wtb.analysis.scores import Scores
from wtb.analysis.statistics import Design, compare
from wtb.analysis.statistics.paired import mcnemar
from wtb.analysis.statistics.row_figures import FigureRows, RowCells, by_case, contributions
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.workflow import Workflow
from wtb.core.errors import InputError
from wtb.core.scoring.measure import FIGURES, OF_CLASSES, OF_SCORES, Figure
from wtb.store.read import tallies

Make = Callable[..., Any]
KINDS = ("refund", "delay", "praise")


def drawn(figure: Figure, cells: int = 400, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    if figure in OF_CLASSES:
        truth = rng.choice(4, cells, p=[0.4, 0.3, 0.2, 0.1])
        return truth, np.where(rng.random(cells) < 0.7, truth, rng.integers(0, 4, cells)).astype(float)
    truth = (rng.random(cells) < 0.4).astype(int)
    scores = np.round(np.clip(rng.normal(0.3 + 0.3 * truth, 0.2), 0, 1), 2)  # so that some are equal
    return truth, scores if figure in OF_SCORES else (scores > 0.5).astype(float)


def unbiased_calibration(truth: Any, scores: Any) -> float:
    """The mean squared calibration error of scikit-learn's bins, less what chance adds to each."""
    rates, predicted = calibration_curve(truth, scores, n_bins=10)
    place = np.minimum((scores * 10 - 1e-9).astype(int), 9)
    cells = np.array([(place == number).sum() for number in np.unique(place)])
    squares = np.array([((scores - truth)[place == number] ** 2).sum() for number in np.unique(place)])
    products = ((cells * (predicted - rates)) ** 2 - squares) / np.maximum(cells - 1, 1)
    return float(products.sum() / len(truth))


REFERENCES: dict[Figure, Callable[[Any, Any], float]] = {
    "macro_f1": lambda truth, predicted: metrics.f1_score(truth, predicted, average="macro"),
    "balanced_accuracy": metrics.balanced_accuracy_score,
    "cohen_kappa": metrics.cohen_kappa_score,
    "class_f1": metrics.f1_score,
    "class_precision": metrics.precision_score,
    "class_recall": metrics.recall_score,
    "auc": metrics.roc_auc_score,
    "calibration_error": unbiased_calibration,
}


@pytest.mark.parametrize("figure", FIGURES)
def test_the_mean_of_contributions_is_what_scikit_learn_gives(figure: Figure) -> None:
    truth, predicted = drawn(figure)
    if figure == "calibration_error":
        predicted = np.clip(predicted + 0.005, 0, 1)  # so that no score is where two bins meet
    values = contributions(figure, truth, predicted, np.arange(len(truth)))
    assert values.mean() == pytest.approx(REFERENCES[figure](truth, predicted), abs=1e-12)


@pytest.mark.parametrize("figure", FIGURES)
def test_contributions_tell_how_a_figure_changes_where_a_case_is_left_out(figure: Figure) -> None:
    truth, predicted = drawn(figure, 2_000)
    cases = np.arange(len(truth))
    values = contributions(figure, truth, predicted, cases)
    others = [cases != case for case in range(20)]
    without = [contributions(figure, truth[some], predicted[some], cases[1:]).mean() for some in others]
    left_out = np.array([values.mean() - (values[case] - values.mean()) / (len(truth) - 1) for case in range(20)])
    assert np.array(without) == pytest.approx(left_out, abs=3e-6)
    assert np.ptp(without) > 5e-5


def test_the_mean_over_cases_is_the_figure_where_some_have_more_cells() -> None:
    truth, predicted = drawn("macro_f1")
    cases = np.minimum(np.arange(len(truth)) // 3, 100)
    values = contributions("macro_f1", truth, predicted, cases)
    _, means, counts = by_case(values, cases)
    assert means.mean() == pytest.approx(values.mean(), abs=1e-12)
    assert counts.sum() == len(truth)


@pytest.mark.parametrize("figure", FIGURES)
def test_nothing_is_known_where_nothing_tells(figure: Figure) -> None:
    truth, predicted = np.zeros(5, dtype=int), np.zeros(5)
    values = contributions(figure, truth, predicted, np.arange(5))
    defined = figure in ("macro_f1", "balanced_accuracy", "calibration_error")
    assert np.isfinite(values).all() == defined


def test_what_no_case_expects_is_wrong_and_no_class_of_its_own() -> None:
    truth, predicted = np.array([0, 0, 1, 1]), np.array([0.0, 7.0, 1.0, -1.0])
    expected = metrics.f1_score(truth, predicted, average="macro", labels=[0, 1])
    assert contributions("macro_f1", truth, predicted, np.arange(4)).mean() == pytest.approx(expected)


def two_rows(figure: Figure, seed: int = 0, cells: int = 100) -> tuple[Any, Any, Any]:
    """Expected values, and the results of two rows that are wrong about equally often."""
    truth, first = drawn(figure, cells, seed)
    luck = np.random.default_rng([seed, 1])
    return truth, first, np.where(luck.random(cells) < 0.6, first, luck.permutation(first))


def rows_of(figure: Figure, truth: Any, *predictions: Any) -> FigureRows:
    columns = np.arange(len(truth))
    return FigureRows(figure, [RowCells(truth, row, columns) for row in predictions], len(truth))


@pytest.mark.parametrize("figure", [name for name in FIGURES if name not in OF_SCORES])
def test_where_two_rows_swap_their_results_of_a_case_what_it_says_changes_its_sign_and_nothing_else_does(
    figure: Figure,
) -> None:
    truth, first, second = two_rows(figure)
    swapped = np.random.default_rng(2).random(len(truth)) < 0.5
    both = ((first, second), (np.where(swapped, second, first), np.where(swapped, first, second)))
    swaps, exchanged = (rows_of(figure, truth, *rows).swaps(0, [1])[0] for rows in both)
    assert exchanged == pytest.approx(np.where(swapped, -swaps, swaps), abs=1e-12)
    assert np.ptp(swaps) > 0.5


def test_recalls_are_tested_by_the_cases_of_the_class_alone() -> None:
    """If four of eight cases differ, McNemar's test is not significant, however many cases other classes have."""
    truth = np.array([1] * 8 + [0] * 92)
    first, second = np.where(truth == 1, 1.0, 0.0), np.where(np.arange(100) < 4, 0.0, truth)
    rows = rows_of("class_recall", truth, first, second)
    table = np.array([contributions("class_recall", truth, predicted, np.arange(100)) for predicted in (first, second)])
    comparison = compare(table, Design(figure=rows, baseline=1))
    assert rows.swaps(0, [1]).mean() == pytest.approx(0.5)
    assert comparison.lead.p == comparison.rows[0].p == mcnemar(4, 0) == 0.125
    assert (comparison.clear, comparison.candidates) == (False, (0, 1))
    assert compare(table, Design(baseline=1)).rows[0].p < 0.05  # what the other 92 cases would have it be


def test_areas_are_compared_whatever_scale_the_scores_of_a_row_are_on() -> None:
    truth, first, second = two_rows("auc")
    swaps = rows_of("auc", truth, first, second).swaps(0, [1])
    assert rows_of("auc", truth, 10 + first**3, second).swaps(0, [1]) == pytest.approx(swaps)
    areas = [metrics.roc_auc_score(truth, predicted) for predicted in (first, second)]
    assert swaps.mean() == pytest.approx(areas[0] - areas[1], abs=0.01)


def test_rows_that_are_as_far_off_in_opposite_directions_are_not_told_apart() -> None:
    """Their errors cancel out, which is no evidence about either row."""
    rng = np.random.default_rng(3)
    p = []
    for seed in range(200):
        truth = (rng.random(100) < 0.5).astype(int)
        rows = [np.clip(0.5 + by + rng.normal(0, 0.02, 100), 0, 1) for by in (-0.2, 0.2)]
        table = np.array([contributions("calibration_error", truth, row, np.arange(100)) for row in rows])
        p.append(compare(table, Design(figure=rows_of("calibration_error", truth, *rows), seed=seed)).lead.p)
    assert np.mean(np.array(p) < 0.05) < 0.12


def test_rows_are_tested_over_the_cases_that_both_have() -> None:
    truth, first, second = two_rows("class_f1")
    columns, shared = np.arange(100), np.arange(100) % 3 > 0
    rows = [RowCells(truth, first, columns), RowCells(truth[shared], second[shared], columns[shared])]
    swaps = FigureRows("class_f1", rows, 100).swaps(0, [1])[0]
    assert np.isnan(swaps).tolist() == (~shared).tolist()
    some = FigureRows("class_f1", rows, 100).part([1, 0], shared)
    assert some.columns == shared.sum()
    assert some.swaps(1, [0])[0] == pytest.approx(swaps[shared])


def workflow(fails: Callable[[str, int], bool] = lambda variant, x: False, every: int = 3) -> Workflow:
    wf = Workflow("tickets")

    def classify(state: dict[str, Any], *, name: str = "plain") -> dict[str, Any]:
        x = state["x"]
        if fails(name, x):
            raise ValueError("too hard")
        wrong = x % (every if name == "plain" else 10) == 0
        return {"kind": KINDS[(x + wrong) % 3], "p": 0.5 + (0.4 if x % 3 == 0 else -0.4) * (0.2 if wrong else 1)}

    node = wf.node(classify)
    node.variant("better", name="better")
    wf.entry(node)
    return wf


CASES = [{"id": str(x), "input": {"x": x}, "expected": {"kind": KINDS[x % 3], "p": x % 3 == 0}} for x in range(60)]
EVALUATE = [
    {"macro_f1": {"field": "kind"}},
    {"class_recall": {"field": "kind", "positive": "refund"}},
    {"auc": {"field": "p"}},
    {"brier": {"field": "p"}},
]


def test_a_matrix_has_figures_over_rows_with_intervals_and_paired_differences(run_sweep: Make) -> None:
    bench = run_sweep(workflow(), CASES, {"classify": "all"}, evaluate=EVALUATE, baseline={"classify": "default"})
    matrix = bench.matrix()
    truth = [x % 3 for x in range(60)]
    for row, every in zip(matrix["rows"], (3, 10), strict=True):
        predicted = [(x + (x % every == 0)) % 3 for x in range(60)]
        figures = row["metrics"]["macro_f1"]
        assert figures["mean"] == pytest.approx(metrics.f1_score(truth, predicted, average="macro"))
        assert (figures["n"], figures["bounds"]) == (60, None)
        low, high = figures["ci"]
        assert low < figures["mean"] < high
        recall = metrics.recall_score(truth, predicted, labels=[0], average=None)[0]
        assert row["metrics"]["class_recall"]["mean"] == pytest.approx(recall)
    better = matrix["rows"][1]["metrics"]["macro_f1"]
    assert better["delta"] == pytest.approx(better["mean"] - matrix["rows"][0]["metrics"]["macro_f1"]["mean"])
    assert better["p_adjusted"] < 0.05
    assert matrix["best"]["macro_f1"]["clear"]
    figures = {name: metric.get("figure") for name, metric in matrix["metrics"].items()}
    assert figures == {"macro_f1": "macro_f1", "class_recall": "class_recall", "auc": "auc", "brier": None}


def test_repeats_are_cells_of_their_case(run_sweep: Make) -> None:
    spec = {"vary": {"classify": "all"}, "evaluate": EVALUATE}
    once, twice = (run_sweep(workflow(), CASES, **spec, repeats=repeats).matrix() for repeats in (1, 2))
    for name in ("macro_f1", "auc"):
        for row, other in zip(once["rows"], twice["rows"], strict=True):
            assert row["metrics"][name]["ci"] == pytest.approx(other["metrics"][name]["ci"])
            assert other["metrics"][name]["n"] == 60


@pytest.mark.parametrize(("on_failure", "n"), [(None, 60), ("left_out", 54)])
def test_a_failed_cell_is_wrong_or_left_out(run_sweep: Make, on_failure: str | None, n: int) -> None:
    wf = workflow(lambda variant, x: variant == "better" and x % 10 == 0)
    bench = run_sweep(wf, CASES, {"classify": "all"}, evaluate=EVALUATE, on_failure=on_failure)
    matrix = bench.matrix()
    cells = [x for x in range(60) if on_failure is None or x % 10]
    predicted = [x % 3 if x % 10 else 9 for x in cells]
    figure = matrix["rows"][1]["metrics"]["macro_f1"]
    truth = [x % 3 for x in cells]
    assert figure["mean"] == pytest.approx(metrics.f1_score(truth, predicted, average="macro", labels=[0, 1, 2]))
    assert figure["n"] == n
    if on_failure is None:
        scores = [(0.9 if x % 3 == 0 else 0.1) if x % 10 else (-9 if x % 3 == 0 else 9) for x in cells]
        auc = metrics.roc_auc_score([x % 3 == 0 for x in cells], scores)
        assert matrix["rows"][1]["metrics"]["auc"]["mean"] == pytest.approx(auc)
        assert "6 failed cells count as wrong by macro_f1, class_recall and auc" in matrix["warnings"]


def test_nobody_averages_what_cells_tell_of_a_figure(run_sweep: Make) -> None:
    bench = run_sweep(workflow(), CASES, {"classify": "all"}, evaluate=EVALUATE)
    database, sweep = bench.database, bench.row
    tallies.tally(database, sweep.id)
    assert {name for row in live(database, sweep)["rows"] for name in row["metrics"]} == {"brier"}
    assert {row.metric for row in tallies.tally_rows(database, sweep.id)} == {"brier"}
    matrix, scored = build(database, sweep), Scores(database, sweep)
    for name in ("macro_f1", "class_recall", "auc"):
        means = [row["metrics"][name]["mean"] for row in matrix["rows"]]
        assert scored.table(name).scores.mean(axis=1).tolist() == pytest.approx(means)
        repeats = scored.by_repeat(name)
        assert [repeats[repeats[:, 0] == row, 3].mean() for row in (0, 1)] == pytest.approx(means)
        pair = compare_two_rows(database, sweep, 1, 0, name, limit=3)
        assert pair["delta"] == pytest.approx(means[1] - means[0])
        if name == "macro_f1":
            right = sum(x % 3 == 0 and x % 10 > 0 for x in range(60))
            assert (pair["wins"], pair["losses"], pair["ties"]) == (right, 4, 60 - right - 4)


def test_two_sweeps_are_compared_by_the_figures_of_their_rows(run_sweep: Make) -> None:
    before, after = (run_sweep(workflow(every=every), CASES, {}, evaluate=EVALUATE) for every in (10, 3))
    means = [sweep.matrix()["rows"][0]["metrics"]["macro_f1"]["mean"] for sweep in (before, after)]
    document = compare_sweeps(before.database, before.row, after.row)
    row = document["rows"][0]["metrics"]["macro_f1"]
    assert (row["delta"], row["verdict"]) == (pytest.approx(means[1] - means[0]), "worse")
    cells = [cell for cell in document["cells"] if cell["metric"] == "macro_f1"]
    listed = {cell["case"]: (cell["before"], cell["after"]) for cell in cells}
    assert listed["3"] == (1, 0)  # whether the case is right
    assert not {"0", "1", "2"} & listed.keys()  # which are as right as they were


def test_two_sweeps_are_told_apart_by_the_cases_of_the_class_alone(run_sweep: Make) -> None:
    """Four of eight cases of a class are lost, which is chance by McNemar's test."""

    def losing(lost: int) -> Workflow:
        wf = Workflow("tickets")

        def classify(state: dict[str, Any]) -> dict[str, Any]:
            return {"kind": KINDS[1 if lost <= state["x"] < 8 else state["x"] % 2]}

        wf.entry(wf.node(classify))
        return wf

    cases = [{"id": str(x), "input": {"x": x}, "expected": KINDS[1] if x < 8 else KINDS[0]} for x in range(60)]
    for figure in ({"class_recall": {"field": "kind", "positive": KINDS[1]}}, {"balanced_accuracy": {"field": "kind"}}):
        before, after = (run_sweep(losing(lost), cases, {}, evaluate=[figure]) for lost in (0, 8))
        (name,) = figure
        figures = compare_sweeps(before.database, before.row, after.row)["rows"][0]["metrics"][name]
        assert figures["delta"] < -0.2
        assert figures["verdict"] == "unclear", figures


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ({"macro_f1": {"field": "a", "at_least": 0.5}}, sentence("expected a gate, such as {} > 0.8", "macro_f1")),
        (
            {"auc": {"field": "a", "on_failure": 0.5}},
            sentence("a failed cell counts as wrong, or is left out with {}", "left_out"),
        ),
        (
            {"all_of": [{"auc": {"field": "a"}}]},
            sentence("{} is a figure over all cells of a row, which no cell has", "'auc'"),
        ),
        (
            {"weighted_mean": [{"auc": {"field": "a"}}]},
            sentence("{} is a figure over all cells of a row, which no cell has", "'auc'"),
        ),
        ({"class_f1": {"field": "a"}}, sentence("needs the option {}", "'positive'")),
        ({"auc": {"field": "a", "positive": [1]}}, "'positive' is [1]; expected the class that is positive"),
    ],
)
def test_what_only_a_score_of_a_cell_can_have_is_refused(written: Any, says: str) -> None:
    from wtb.planning.sweep_spec import read_evaluators

    (ref,) = read_evaluators([written])
    with pytest.raises(InputError) as error:
        make_evaluator(ref.name, ref.options, str)
    assert says in str(error.value)
