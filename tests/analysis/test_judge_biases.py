"""Biases of judges, compared with simulated labels: no person gave any of them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.prose import sentence
from wtb.analysis import judge_bias
from wtb.analysis.judge_agreement import cohens_kappa, krippendorffs_alpha
from wtb.analysis.judge_bias import Held, family_of
from wtb.analysis.judge_check import Label, _weights
from wtb.analysis.judge_rows import labelled_mean
from wtb.analysis.statistics import Floats, Interval
from wtb.core.errors import InputError

CASES = 200


def covers(interval: Interval, truth: float) -> bool:
    return interval[0] <= truth <= interval[1]


def judged(rng: np.random.Generator, more: float) -> tuple[Held, np.ndarray]:
    """Two rows of the same cases: the row of the judge's own family is better, and the judge is right in 80%."""
    truth = (rng.random((2, CASES)) < [[0.85], [0.45]]).astype(np.float64)
    own = np.repeat([True, False], CASES)
    judge = np.where(rng.random((2, CASES)) < 0.8, truth, 1 - truth).ravel() + more * own
    return Held(judge, truth.ravel(), np.tile(np.arange(CASES), 2)), own


@pytest.mark.parametrize("more", [0.0, 0.2])
def test_a_liking_for_its_own_family_is_found_where_there_is_one_and_none_where_there_is_none(more: float) -> None:
    hits = naive = 0
    for seed in range(200):
        judgements, own = judged(np.random.default_rng(seed), more)
        interval = judge_bias.own_family(judgements, own).interval
        hits += covers(interval, more)
        if more:
            assert interval[0] > 0
        apart = (judgements.judge - judgements.people).reshape(2, CASES)
        alone = Held(*[np.zeros(CASES)] * 2, np.arange(CASES))
        naive += covers(judge_bias.by_case(apart[0] - apart[1], alone, None, None).interval, more)
    assert hits >= 182, "95% of 200, but for chance"
    assert naive < 20, "that its own row is better alone makes scores less labels differ"


def test_nothing_is_known_of_a_family_that_all_answers_or_none_are_of() -> None:
    judgements, own = judged(np.random.default_rng(0), 0.2)
    assert judge_bias.own_family(judgements, own | True).value is None
    assert judge_bias.own_family(judgements, own & False).value is None


@pytest.mark.parametrize("model", ["gpt-4o-mini", "openai/gpt-4o", "ft:gpt-4o-mini:acme::x1", "o3-mini", "chatgpt-4o"])
def test_models_have_families_by_their_names(model: str) -> None:
    assert family_of(model) == "gpt"


def test_names_of_other_families() -> None:
    names = [
        "anthropic/claude-sonnet-4-5",
        "us.anthropic.claude-3-5-v2:0",
        "meta-llama/Llama-3.1-8B",
        "qwen2.5:7b",
        "7b",
    ]
    assert [family_of(name) for name in names] == ["claude", "claude", "llama", "qwen", "7b"]


@pytest.mark.parametrize("often", [0.0, 0.15])
def test_a_level_that_a_judge_gives_too_often_is_found_and_none_where_there_is_none(often: float) -> None:
    shares = np.array([0.1, 0.2, 0.3, 0.3, 0.1])
    hits = np.zeros(5)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        people = 1.0 + rng.choice(5, CASES, p=shares)
        noisy = np.where(rng.random(CASES) < 0.7, people, 1.0 + rng.choice(5, CASES, p=shares))
        judge = np.where(rng.random(CASES) < often, 4.0, noisy)
        uses = judge_bias.uses(Held(judge, people, np.arange(CASES)), [1, 2, 3, 4, 5])
        assert [use.level for use in uses] == [1, 2, 3, 4, 5]
        more = often * ((np.arange(5) == 3) - shares)
        hits += [covers(use.more.interval, truth) for use, truth in zip(uses, more, strict=True)]
    assert hits.min() >= 180


def test_levels_of_the_rubric_count_also_where_nobody_gives_them_and_scores_between_as_the_nearest() -> None:
    judgements = Held(np.array([1.0, 2.9, 3.0]), np.array([1.0, 3.0, 3.0]), np.arange(3))
    uses = judge_bias.uses(judgements, [1, 2, 3, *range(4, 10)])
    third = pytest.approx(1 / 3)
    assert [(use.level, use.judge) for use in uses if use.judge] == [(1, third), (2.9, third), (3, third)]
    many = np.arange(12) / 12
    uses = judge_bias.uses(Held(many, np.repeat([0.0, 1.0], 6), np.arange(12)), [0, 1])
    assert uses[0].judge == pytest.approx(7 / 12)
    assert judge_bias.uses(Held(many, many, np.arange(12)), []) == ()


def queue(rng: np.random.Generator) -> tuple[Floats, Floats, list[Label]]:
    """A queue of labels: two raters label 150 of 600 drawn cases, and a third rater decides if they disagree."""
    rate = np.where(rng.random(600) < 0.5, 0.98, 0.45)  # what is hard is worse, and disagreed about
    judge = (rng.random(600) < 0.3 + 0.5 * rate).astype(np.float64)
    labels = []
    for case in rng.permutation(600)[:150].tolist():
        ratings = [float(rng.random() < rate[case]) for _ in range(2)]
        labels += [Label(0, case, 0, f"rater {n}", rating, probability=0.25) for n, rating in enumerate(ratings)]
        if ratings[0] != ratings[1]:
            labels += [Label(0, case, 0, f"again {n}", float(rng.random() < rate[case]), drawn=False) for n in range(3)]
    return rate, judge, labels


def mean_label(labels: list[Label]) -> Floats:
    means = np.full(600, np.nan)
    for case in {label.case for label in labels}:
        means[case] = np.mean([label.value for label in labels if label.case == case])
    return means


def test_labels_that_were_asked_for_since_raters_disagree_would_make_means_wrong_and_are_left_out() -> None:
    truth = 0.5 * (0.98 + 0.45)
    estimates, pooled = [], []
    for seed in range(200):
        _, judge, labels = queue(np.random.default_rng(seed))
        estimates.append(labelled_mean(mean_label([label for label in labels if label.drawn]), judge))
        pooled.append(np.mean([label.value for label in labels]) - truth)
    assert sum(covers(estimate.interval, truth) for estimate in estimates) >= 180
    assert abs(np.mean([estimate.mean for estimate in estimates]) - truth) < 0.01
    assert np.mean(pooled) < -0.05, "the mean of all labels is of hard cases"


def unequal(rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Cases in which a judge is unsure have worse scores and are three times as likely to be labelled."""
    unsure = rng.random(1_000) < 0.3
    truth = (rng.random(1_000) < np.where(unsure, 0.3, 0.9)).astype(np.float64)
    judge = np.where(rng.random(1_000) < np.where(unsure, 0.6, 0.95), truth, 1 - truth)
    chance = np.where(unsure, 0.3, 0.1)
    return np.where(rng.random(1_000) < chance, truth, np.nan), judge, 1 / chance


def test_cases_that_were_likelier_to_be_drawn_count_less() -> None:
    truth = 0.3 * 0.3 + 0.7 * 0.9
    weighted = naive = narrower = 0
    for seed in range(300):
        labels, judge, weights = unequal(np.random.default_rng(seed))
        both = labelled_mean(labels, judge, weights)
        alone = labelled_mean(labels, np.full(1_000, np.nan), weights)
        weighted += covers(both.interval, truth)
        naive += covers(labelled_mean(labels, judge).interval, truth)
        narrower += np.ptp(both.interval) < np.ptp(alone.interval)
        assert both.counts_as < both.labels
    assert weighted >= 272, "92.5% of 300, but for chance"
    assert naive < 150
    assert narrower >= 290


def test_equal_weights_change_nothing() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.integers(0, 3, (2, 80)).astype(np.float64)
    judgements = Held(first, second, np.arange(80))
    alike = Held(first, second, np.arange(80), dict.fromkeys(range(80), 1.0))
    doubled = cohens_kappa(first, second, weights=np.full(80, 2.0)).value
    assert doubled == pytest.approx(cohens_kappa(first, second).value)
    both = np.stack([first, second])
    assert krippendorffs_alpha(both, weights=np.ones(80)).value == pytest.approx(krippendorffs_alpha(both).value)
    lengths = rng.integers(5, 900, 80).tolist()
    assert judge_bias.by_length(alike, lengths).value == pytest.approx(judge_bias.by_length(judgements, lengths).value)
    for level, other in zip(judge_bias.levels(alike, None), judge_bias.levels(judgements, None), strict=True):
        assert level.people.value == pytest.approx(other.people.value)
        assert level.people.interval == pytest.approx(other.people.interval, abs=0.1)


def test_a_weight_stands_for_as_many_cases() -> None:
    first, second = np.array([0.0, 0, 1, 1, 1, 0]), np.array([0.0, 1, 1, 1, 0, 0])
    often = np.array([1, 2, 3, 1, 1, 2])
    repeated = np.repeat(first, often), np.repeat(second, often)
    weighted = cohens_kappa(first, second, weights=often.astype(float)).value
    assert weighted == pytest.approx(cohens_kappa(*repeated).value)
    judgements = Held(first, second, np.arange(6), dict(enumerate(often.astype(float).tolist())))
    mean = judge_bias.by_case(first - second, judgements, None, None).value
    assert mean == pytest.approx(float(np.mean(repeated[0] - repeated[1])))


def test_a_case_counts_by_the_greatest_chance_that_is_known_of_it() -> None:
    def label(case: int, probability: float | None, rater: str = "ana") -> Label:
        return Label(0, case, 0, rater, 1.0, probability=probability)

    def weights(*labels: Label) -> dict[int, float] | None:
        return _weights(labels, lambda: range(10))

    assert weights(label(0, 0.1), label(9, 0.1)) is None
    assert weights(label(0, None), label(9, 0.1)) is None
    assert weights(label(9, 0.1), label(9, 0.3, "ben"), label(8, 0.3, "ben")) is None
    case_weights = weights(label(9, 0.1), label(8, 0.3))
    assert case_weights[9] / case_weights[8] == pytest.approx(3)
    with pytest.raises(InputError, match=sentence("{} of {} labels have no 'probability'", 1, 3)):
        weights(label(9, 0.1), label(8, 0.3), label(2, None))
    assert weights(label(0, 0.1), label(2, 0.3, "ben")) is None, "the first of one order, however far each rater came"
