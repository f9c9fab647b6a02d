"""Claims hold only if they survive the missing cells at their worst, in every kind of table."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.prose import sentence
from wtb.analysis.matrix.estimates import estimate_document
from wtb.analysis.matrix.metric_figures import slices
from wtb.analysis.statistics import Design, Floats, compare
from wtb.analysis.statistics.claims import Claim, MissingCells, Pairs
from wtb.analysis.statistics.comparing import Estimate
from wtb.analysis.statistics.row_figures import FigureRows, RowCells, contributions
from wtb.analysis.statistics.running import look
from wtb.core.scoring.failure_scores import cure, hangs_on

NAN = math.nan


def rng(seed: int = 3) -> np.random.Generator:
    return np.random.default_rng(seed)


def crashing(cases: int, share: float, rate: float = 0.8, rows: int = 2, seed: int = 3) -> Floats:
    """Rows of equal pass rates; the second has no score in a share of the cases, in which it would be wrong."""
    scores = (rng(seed).random((rows, cases)) < rate).astype(float)
    wrong = np.flatnonzero(scores[1] == 0)[: int(share * cases)]
    scores[1, wrong] = NAN
    return scores


def design(scores: Floats, **options: Any) -> Design:
    return Design(**{"baseline": 0, "ends": (0.0, 1.0), "missing": MissingCells.of(scores), **options})


def test_a_row_without_its_wrong_answers_claims_nothing() -> None:
    scores = crashing(400, 0.15)
    (_, row), comparison = compare(scores, design(scores, missing=None)).rows, compare(scores, design(scores))
    assert row.p_adjusted < 0.001
    hanging = comparison.rows[1]
    assert (hanging.hangs_on, hanging.missing, hanging.p) == (60, 60, row.p)
    assert hanging.p_adjusted > 0.05
    assert not comparison.clear


def test_a_star_hangs_on_missing_cells_within_the_95_percent_too() -> None:
    scores = crashing(3_000, 0.04)
    assert compare(scores, design(scores, missing=None)).clear
    comparison = compare(scores, design(scores))
    assert (comparison.clear, comparison.best, comparison.lead.hangs_on) == (False, 1, 120)
    assert comparison.lead.because == "that hangs on 120 missing cells"
    assert (comparison.lead.rival, comparison.candidates) == (0, (0, 1))


def test_a_true_gain_survives_a_few_missing_cells() -> None:
    drawn = rng()
    scores = (drawn.random((2, 400)) < np.array([[0.6], [0.85]])).astype(float)
    scores[drawn.random(scores.shape) < 0.02] = NAN
    comparison = compare(scores, design(scores))
    assert comparison.clear
    assert comparison.rows[1].hangs_on is None
    p, at_worst = comparison.rows[1].p, comparison.rows[1].p_at_worst
    assert p <= at_worst < 0.05


def test_a_star_hangs_on_the_missing_cells_of_a_row_that_is_not_ranked() -> None:
    scores = np.vstack([crashing(400, 0.0), (rng(8).random((1, 400)) < 0.5)])
    lost = rng(9).random(400) < 0.1
    better = scores[0].copy()
    scores[0, lost] = NAN
    comparison = compare(scores, design(scores, baseline=None))
    assert (comparison.unranked, comparison.best, comparison.clear) == ((0,), 1, False)
    assert comparison.lead.rival == 0
    assert comparison.lead.hangs_on == int(lost.sum())
    scores[0] = np.where(lost, NAN, np.minimum(better, (rng(10).random(400) < 0.3)))
    assert compare(scores, design(scores, baseline=None)).clear, "a row that is far behind cannot catch up"


def test_a_loss_hangs_on_missing_cells_as_a_gain_does() -> None:
    scores = crashing(400, 0.15)[::-1].copy()
    row = compare(scores, design(scores)).rows[1]
    assert row.delta < 0
    assert row.hangs_on == 60


def test_what_both_rows_lack_as_often_is_no_excess() -> None:
    scores = np.full((2, 20), 1.0)
    scores[1] = 0.0
    scores[0, :4], scores[1, 4:8] = NAN, NAN
    every, excess = Pairs(scores, MissingCells.of(scores), (0.0, 1.0)).fills(Claim(0, 1, 1))
    assert every.estimate == pytest.approx((12 + 4 * 0 + 4 * 0) / 20)
    assert excess.estimate == 1.0
    assert int(np.isfinite(excess.differences).sum()) == 12


def test_cells_that_are_missing_for_other_reasons_do_not_cancel() -> None:
    scores = np.full((2, 20), 1.0)
    scores[1] = 0.0
    scores[0, :4], scores[1, 4:8] = NAN, NAN
    missing = MissingCells.of(scores).total
    failed, other = (missing * np.array([[first], [1 - first]], np.int32) for first in (1, 0))
    reasons = MissingCells((missing == 0).astype(np.int32), {"failed": failed, "provider": other})
    _, excess = Pairs(scores, reasons, (0.0, 1.0)).fills(Claim(0, 1, 1))
    assert excess.estimate == pytest.approx(12 / 20)


def test_a_case_that_neither_row_has_counts_for_neither() -> None:
    scores = np.array([[1.0, NAN, 1.0], [0.0, NAN, NAN]])
    pairs = Pairs(scores, MissingCells.of(scores), (0.0, 1.0))
    assert pairs.count_missing(0, 1) == 1
    assert np.isnan(pairs.fills(Claim(0, 1, 1))[0].differences[1])


def test_without_a_scale_the_worst_score_seen_counts() -> None:
    scores = np.array([[5.0, 7.0, -3.0, NAN], [1.0, 2.0, 0.0, 2.0]])
    every, _ = Pairs(scores, MissingCells.of(scores)).fills(Claim(0, 1, 1))
    assert every.differences.tolist() == [4, 5, -3, -5]
    half_open = Pairs(scores, MissingCells.of(scores), (0.0, math.inf)).fills(Claim(0, 1, -1))[0]
    assert half_open.differences.tolist() == [4, 5, -3, 5]


def test_a_missing_repeat_counts_as_a_part_of_its_case() -> None:
    scores = np.array([[0.5, 1.0], [0.5, 1.0]])
    behind = np.array([[2, 3], [3, 3]], np.int32)
    missing = MissingCells(behind, {"failed": 3 - behind})
    every, _ = Pairs(scores, missing, (0.0, 1.0)).fills(Claim(0, 1, 1))
    assert every.differences == pytest.approx([0.5 * 2 / 3 - 0.5, 0])
    assert Pairs(scores, missing, (0.0, 1.0)).mean_range(0) == pytest.approx(((1 / 3 + 1) / 2, (2 / 3 + 1) / 2))


def test_typical_differences_and_clusters_hang_on_missing_cells() -> None:
    drawn = rng()
    seconds = drawn.exponential(1.0, (2, 200)) + 1
    slow = np.argsort(-seconds[1])[:60]
    seconds[1, slow] = NAN
    timed = Design(baseline=0, better="lower", by="median", ends=(0.0, math.inf), missing=MissingCells.of(seconds))
    assert compare(seconds, replace(timed, missing=None)).rows[1].p_adjusted < 0.05  # type: ignore[operator]
    assert compare(seconds, timed).rows[1].hangs_on == 60
    scores = crashing(400, 0.15)
    clustered = design(scores, units=np.arange(400) // 4)
    assert compare(scores, replace(clustered, missing=None)).rows[1].p_adjusted < 0.05  # type: ignore[operator]
    assert compare(scores, clustered).rows[1].hangs_on == 60


@pytest.mark.parametrize("figure", ["macro_f1", "class_recall", "balanced_accuracy", "auc"])
def test_figures_over_rows_take_missing_cells_as_wrong_answers(figure: Any) -> None:
    drawn = rng()
    truth = (drawn.random(400) < 0.5).astype(np.int64)
    if figure == "auc":
        answers = [truth + drawn.normal(0, 1.2, 400) for _ in range(2)]
        wrong = np.argsort((answers[1] - 0.5) * np.where(truth == 1, 1, -1))[:80]
    else:
        answers = [np.where(drawn.random(400) < 0.75, truth, 1 - truth).astype(float) for _ in range(2)]
        wrong = np.flatnonzero(answers[1] != truth)[:80]
    scored = ~np.isin(np.arange(400), wrong)
    columns = np.arange(400)
    cells = [RowCells(truth, answers[0], columns), RowCells(truth[scored], answers[1][scored], columns[scored])]
    rows = FigureRows(figure, cells, 400)
    table = np.full((2, 400), NAN)
    for place, row in enumerate(rows.rows):
        table[place, row.column] = contributions(figure, *row)
    whole = Design(baseline=0, figure=rows, missing=MissingCells.of(table))
    assert compare(table, replace(whole, missing=None)).rows[1].p_adjusted < 0.05  # type: ignore[operator]
    estimate = compare(table, whole).rows[1]
    assert estimate.hangs_on == 80
    assert estimate.mean_at_worst[0] < (estimate.mean or 0) < estimate.mean_at_worst[1]


def test_candidates_keep_a_row_that_could_be_the_best_with_its_missing_cells() -> None:
    scores = np.vstack([(rng(seed).random((1, 400)) < 0.75).astype(float) for seed in (1, 2, 3)])
    scores[0] = np.minimum(1.0, scores[1] + (rng(4).random(400) < 0.15))
    right = np.flatnonzero(scores[2] == 1)[:19]
    scores[2, right] = NAN
    with_missing = compare(scores, design(scores))
    assert set(compare(scores, design(scores, missing=None)).candidates) <= set(with_missing.candidates)


def test_a_look_before_the_end_counts_cells_that_have_ended_as_missing() -> None:
    scores = crashing(400, 0.3, rate=0.6)
    finished = np.ones(scores.shape, dtype=np.bool_)
    plain = look(scores, finished, design(scores, missing=None), scale=(0.0, 1.0)).compared
    assert plain.rows[1].delta_ci[0] > 0
    seen = look(scores, finished, design(scores), scale=(0.0, 1.0)).compared
    assert seen.rows[1].delta_ci[0] <= 0
    assert seen.rows[1].hangs_on == 120
    assert not seen.clear
    half = scores[:, :200]
    snapshot = look(half, finished[:, :200] & ~np.isnan(half), design(half), scale=(0, 1))
    assert snapshot.compared.rows[1].missing == 0, "what has not ended is not missing"


def test_slices_by_tag_hang_on_missing_cells() -> None:
    scores = crashing(400, 0.15)
    tags = {case: ["even" if case % 2 == 0 else "odd"] for case in range(400)}
    by_tag = slices(scores, np.arange(400), tags, design(scores))
    rows = [tag["rows"][1] for tag in by_tag["tags"]]
    assert all(row["p_adjusted"] > 0.05 for row in rows)  # type: ignore[operator]
    assert sum(row.get("hangs_on", 0) for row in rows) > 0


def test_the_words() -> None:
    assert (hangs_on(41), hangs_on(1)) == ("hangs on 41 missing cells", "hangs on 1 missing cell")
    assert cure("s", ["provider"], can_declare=True) == sentence(
        "run lost cells again with `wtb retry {} --provider`", "s"
    )
    assert cure("s", ["failed"], can_declare=True).startswith("declare `scale` or `on_failure`, or run failed cells")
    assert cure("s", ["evaluator"], can_declare=False) == sentence("score again with `wtb score {}`", "s")


def test_a_p_at_worst_that_is_0_is_told() -> None:
    estimate = Estimate(9, 9, 0.5, None, 0.5, None, 0.0, 0.0, pairs_missing=2, p_at_worst=0.0)
    document = estimate_document(estimate, None)
    assert (document["p_at_worst"], document["pairs_missing"]) == (0.0, 2)
    assert not document.keys() & {"missing", "mean_at_worst", "delta_at_worst", "hangs_on", "unseen_one_in"}
