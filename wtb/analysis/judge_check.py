"""Check of a judge: how far its scores agree with human labels, what both imply for each row, and the models used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import field, replace
from random import Random
from typing import Literal

import numpy as np

from wtb.analysis import judge_bias
from wtb.analysis.judge_agreement import Agreement, Scale, cohens_kappa, krippendorffs_alpha
from wtb.analysis.judge_bias import Figure, Held, JudgedLevel, LevelUse, OwnFamily, figure
from wtb.analysis.judge_rows import Counting, LabelledRow, labelled_rows, weights_of
from wtb.analysis.scores import Scores, stacked
from wtb.authoring.evaluation.evaluator_options import ASKING
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.store.database import Database
from wtb.store.read import aggregates, evidence
from wtb.store.read.aggregates import judge_versions
from wtb.store.tables.sweeps import SweepRow

Selection = Literal["random", "disagreement"]


@frozen
class LabelledCell:
    """A cell, identified by the variant of each varied node and its repeat."""

    combination: Mapping[str, str]
    repeat: int


@frozen
class LabelItem:
    """An answer to label.

    Attributes:
        id: Its id among the answers of its case.
        case: The id of the case.
        input: The input of the case, as text.
        answer: The text to label.
        cells: The cells that gave this answer; a label applies to each of them. A server leaves them out.
    """

    id: str
    case: str
    input: str
    answer: str
    cells: tuple[LabelledCell, ...] = ()


@frozen
class LabelQueue:
    """The answers that a rater has to label.

    Attributes:
        sweep: The id of the sweep.
        rater: The name of the rater.
        metric: The scores that labels are compared with.
        ends: The scale of labels, if there is one.
        criteria: The criteria of the judge; empty without any.
        rubric: Level -> its description; empty without one.
        asked: The reason for the questions: `random`, or `disagreement` of other raters.
        probability: The probability of each case to be labelled; None if none was drawn.
        items: The answers, in the order of the questions.
        done: How many answers the rater has labelled already.
        is_binary: True if all scores are 0 or 1, so that labels are fail and pass.
    """

    sweep: str
    rater: str
    metric: str
    ends: tuple[float, float] | None
    criteria: str
    rubric: Mapping[str, str]
    asked: Selection
    probability: float | None
    items: tuple[LabelItem, ...]
    done: int
    is_binary: bool = False


@frozen
class Label:
    """A person's label of a cell.

    Attributes:
        combination: The number of the combination.
        case: The number of the case.
        repeat: The repeat.
        rater: The name of the rater.
        value: The label.
        drawn: True if the case was drawn at random; false if it was selected because raters disagree.
        probability: The probability of its selection, if it was recorded.
    """

    combination: int
    case: int
    repeat: int
    rater: str
    value: float
    drawn: bool = True
    probability: float | None = None


@frozen
class JudgeCheck:
    """A judge compared with labels.

    Attributes:
        sweep: The id of the sweep.
        metric: The judge's metric.
        labels: How many labels are of cells that the judge scored.
        unjudged: How many labels are of cells without a score.
        not_drawn: How many labels were selected because raters disagree; they do not count, because such cells are
            harder.
        raters: The raters.
        kappa: Cohen's kappa between the judge and the labels.
        alpha: Krippendorff's alpha among the raters; no value if no cell has two labels.
        bias: The mean of the judge's score minus the label, by case.
        by_length: By how much the score exceeds the label more if an answer is twice as long.
        own_family: How much higher the judge scores models of its own family; None if the models are unknown.
        uses: How often the judge and people use each level, in ascending order.
        is_weighted: True if cases were drawn with unequal probabilities and are weighted by their inverse.
        levels: The mean label for each score of the judge, in ascending order.
        rows: The combinations that have labels.
    """

    sweep: str
    metric: str
    labels: int
    unjudged: int
    not_drawn: int
    raters: tuple[str, ...]
    kappa: Figure
    alpha: Figure
    bias: Figure
    by_length: Figure
    own_family: OwnFamily | None
    uses: tuple[LevelUse, ...]
    is_weighted: bool
    levels: tuple[JudgedLevel, ...]
    rows: tuple[LabelledRow, ...]

    @property
    def why_not(self) -> str | None:
        """Reason why the labels cannot represent all cases; None if they can."""
        return next((row.why_not for row in self.rows if row.why_not), None)


@frozen
class Judged:
    """Facts about a judge and its answers, besides its scores.

    Attributes:
        lengths: Lengths of answers in characters, by combination, case and repeat.
        levels: The levels of its rubric.
        families: The families of its models.
        own: The combinations whose answers are of models of these families, or that were named explicitly; None if
            unknown.
    """

    lengths: Mapping[tuple[int, int, int], int] = field(default_factory=dict)
    levels: Sequence[float] = ()
    families: Sequence[str] = ()
    own: Set[int] | None = None


_NOTHING_KNOWN = Judged()


def check(
    database: Database,
    sweep: SweepRow,
    read: Scores,
    metric: str,
    labels: Sequence[Label],
    scale: Scale,
    *,
    margin: float | None = None,
    judged_by: Judged = _NOTHING_KNOWN,
    base: int | None = None,
) -> JudgeCheck:
    """Compare the scores of a metric with labels. Failed and edited cells have neither.

    Args:
        database: Where the sweep is.
        sweep: Its row.
        read: Its scores.
        metric: A metric of the sweep.
        labels: Labels of its cells.
        scale: The scale of the labels.
        margin: Half the width of the desired interval for each row.
        judged_by: Facts about the judge besides its scores.
        base: The number of the combination that others are compared with; by default the baseline.

    Raises:
        InputError: No label is of a cell that has a score, or probabilities differ and some are missing.
    """
    # Cells selected for disagreement are harder than average, so they would bias every figure.
    label_count, labels = len(labels), [label for label in labels if label.drawn]
    scores = stacked(aggregates.scores_by_repeat(database, sweep.id, metric), 4)
    by_cell = {(int(row), int(case), int(repeat)): score for row, case, repeat, score in scores.tolist()}
    judged = [label for label in labels if (label.combination, label.case, label.repeat) in by_cell]
    if not judged:
        raise InputError(
            f"no label is of a cell that has a score of {metric!r}; expected labels of cells that have one"
        )
    weights = _weights(labels, lambda: draw_order(sweep.id, evidence.case_numbers(database, sweep.id).values()))
    labelled = Held(
        np.array([by_cell[label.combination, label.case, label.repeat] for label in judged]),
        np.array([label.value for label in judged]),
        np.array([label.case for label in judged], dtype=np.int64),
        weights,
    )
    lengths = [judged_by.lengths.get((label.combination, label.case, label.repeat)) for label in judged]
    of_rows = {label.combination for label in judged}
    counted = [(label.combination, label.case, label.value) for label in labels if label.combination in of_rows]
    ends = read.measures[metric].scale
    counting = Counting(ends, weights, bool(evidence.clusters(database, sweep.id)), margin)
    return JudgeCheck(
        sweep.id,
        metric,
        len(judged),
        len(labels) - len(judged),
        label_count - len(labels),
        tuple(sorted({label.rater for label in labels})),
        _agreed(cohens_kappa(labelled.judge, labelled.people, scale, labelled.cases, labelled.weight)),
        _agreed(_among_raters(labels, scale, weights)),
        judge_bias.by_case(labelled.judge - labelled.people, labelled, None, judge_bias.ends_of_differences(ends)),
        judge_bias.by_length(labelled, lengths),
        _own(labelled, judged, judged_by),
        judge_bias.uses(labelled, judged_by.levels),
        weights is not None,
        judge_bias.levels(labelled, ends),
        tuple(labelled_rows(read.choices, scores, counted, read.baseline if base is None else base, counting)),
    )


def draw_order(sweep_id: str, cases: Iterable[int]) -> list[int]:
    """Return the random order in which all raters of a sweep label its cases, by number."""
    numbers = sorted(cases)
    # Seeded by the sweep, so that all raters see one order and their labels overlap from its beginning.
    return Random(sweep_id).sample(numbers, len(numbers))


def _weights(labels: Sequence[Label], order: Callable[[], Sequence[int]]) -> dict[int, float] | None:
    """Return the weight of each case: the inverse of the probability of its selection; None if all are equal.

    The cases of a rater are always the first ones in the sweep's order. A rater who labels more of them includes the
    cases of others, so whenever each rater stopped, the labelled cases are a prefix of that order and equally likely.
    """
    chances: dict[int, float] = {}
    with_chance = [label for label in labels if label.probability is not None]
    for label in with_chance:
        chances[label.case] = max(label.probability or 0.0, chances.get(label.case, 0.0))
    if len(set(chances.values())) < 2 or _is_of_one_order(with_chance, order()):
        return None
    if len(with_chance) < len(labels):
        raise InputError(
            f"{len(labels) - len(with_chance)} of {len(labels)} labels have no 'probability', and others were "
            "drawn, and others were drawn with unequal ones; expected 'probability' of all"
        )
    mean = sum(chances.values()) / len(chances)
    return {case: mean / chance for case, chance in chances.items()}


def _is_of_one_order(labels: Sequence[Label], order: Sequence[int]) -> bool:
    """Return whether every case is among as many of the first cases as its probability implies."""
    places = {case: place for place, case in enumerate(order)}
    return all(places[label.case] < round((label.probability or 0.0) * len(order)) for label in labels)


def _own(labelled: Held, judged: Sequence[Label], judged_by: Judged) -> OwnFamily | None:
    if judged_by.own is None:
        return None
    own = np.array([label.combination in judged_by.own for label in judged])
    return OwnFamily(tuple(judged_by.families), int(own.sum()), judge_bias.own_family(labelled, own))


def _among_raters(labels: Sequence[Label], scale: Scale, weights: Mapping[int, float] | None) -> Agreement:
    places = dict.fromkeys((label.combination, label.case, label.repeat) for label in labels)
    cells = {place: n for n, place in enumerate(places)}
    raters = {rater: n for n, rater in enumerate(sorted({label.rater for label in labels}))}
    ratings = np.full((len(raters), len(cells)), np.nan)
    for label in labels:
        ratings[raters[label.rater], cells[label.combination, label.case, label.repeat]] = label.value
    cases = np.array([case for _, case, _ in cells], dtype=np.int64)
    return krippendorffs_alpha(ratings, scale, cases, weights_of(weights, [case for _, case, _ in cells]))


def _agreed(agreement: Agreement) -> Figure:
    return replace(figure(agreement.value, agreement.interval), because=agreement.because)


def models_of_judges(database: Database, sweep: SweepRow) -> dict[str, list[str]]:
    """Return the versions of the models that judges of a sweep used, by metric and in order.

    The scores, which may be millions, are read only if an evaluator of the sweep may ask a judge.
    """
    versions: dict[str, list[str]] = {}
    if any(ASKING & dict(evaluator).keys() for evaluator in sweep.spec.get("evaluate") or ()):
        for metric, version in sorted(judge_versions(database, sweep.id)):
            versions.setdefault(metric, []).append(version)
    return versions
