"""Labels of cases that were chosen by their scores do not represent all cases, and WTB reports it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wtb.analysis.judge_rows import CHANCE, chances_differ, labelled_mean, labels_differ
from wtb.analysis.statistics import Floats


def judged(cases: int = 200, seed: int = 5) -> tuple[Floats, Floats]:
    """Human labels, and the scores of a judge that is right in 90% of the cases."""
    rng = np.random.default_rng(seed)
    truth = (rng.random(cases) < 0.8).astype(float)
    return truth, np.where(rng.random(cases) < 0.9, truth, 1 - truth)


def labels_of(truth: Floats, cases: Floats) -> Floats:
    labels = np.full(len(truth), math.nan)
    labels[cases.astype(int)] = truth[cases.astype(int)]
    return labels


def test_labels_of_the_worst_have_no_interval_and_a_reason() -> None:
    truth, judge = judged()
    estimate = labelled_mean(labels_of(truth, np.argsort(judge, kind="stable")[:30]), judge)
    assert np.isnan(estimate.interval).all()
    assert estimate.why_not.startswith("the judge scores the labelled cases 0 and the others 0.")
    assert estimate.why_not.endswith("label the cases that `wtb label draw` shows, or give the `probability` of each")


def test_labels_of_random_cases_keep_their_interval() -> None:
    truth, judge = judged()
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(300):
        estimate = labelled_mean(labels_of(truth, rng.permutation(200)[:40]), judge)
        refused += estimate.why_not is not None
    assert refused <= 3, f"at most {CHANCE:.1%} by chance"


def test_recorded_chances_explain_labels_of_what_looks_bad() -> None:
    truth, judge = judged(1_000)
    rng = np.random.default_rng(2)
    chances = np.where(judge == 0, 0.5, 0.1)
    cases = np.flatnonzero(rng.random(1_000) < chances)
    labels = labels_of(truth, cases)
    assert labelled_mean(labels, judge).why_not is not None
    estimate = labelled_mean(labels, judge, 1 / chances)
    assert estimate.why_not is None
    assert estimate.interval[0] < truth.mean() < estimate.interval[1]
    wrong = labelled_mean(labels, judge, np.where(judge == 0, 1.0, 1.1))
    assert wrong.why_not is not None, "chances that do not explain the labels"


@pytest.mark.parametrize("scores", [np.ones(50), np.zeros(0), np.full(50, 3.25)])
def test_a_judge_who_tells_nothing_refuses_nothing(scores: Floats) -> None:
    assert not labels_differ(scores[:10], scores[10:])
    assert not chances_differ(scores[:10], np.ones(len(scores[:10])), scores)
