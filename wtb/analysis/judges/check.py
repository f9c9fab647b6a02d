"""A judge held against people: how far its scores agree with their labels, and what both together say of each row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import field, replace
from random import Random
from typing import Literal

import numpy as np

from wtb.analysis.judges import bias
from wtb.analysis.judges.bias import Figure, Held, JudgedLevel, LevelUse, OwnFamily, figure
from wtb.analysis.judges.rows import Counting, LabelledRow, labelled_rows, weights_of
from wtb.analysis.scores import Scores, stacked
from wtb.analysis.statistics.raters.agreement import Agreement, Scale, cohens_kappa, krippendorffs_alpha
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError
from wtb.store.database import Database
from wtb.store.read import aggregates, evidence, outcomes
from wtb.store.tables.sweeps import SweepRow

Selection = Literal["random", "disagreement"]


@frozen
class LabelledCell:
    """A cell by the variant of each varied node, and its repeat."""

    combination: Mapping[str, str]
    repeat: int


@frozen
class LabelItem:
    """An answer to label.

    Attributes:
        id: Of the answer, among those of its case.
        case: The id of the case.
        input: Its input, as text.
        answer: What is labelled, as text.
        cells: Those that gave this answer: a label is of each of them. A server does not say them.
    """

    id: str
    case: str
    input: str
    answer: str
    cells: tuple[LabelledCell, ...] = ()


@frozen
class LabelQueue:
    """What a rater has to label.

    Attributes:
        sweep: The id of the sweep.
        rater: Who labels.
        metric: The scores that labels are held against.
        ends: The scale of labels, where there is one.
        criteria: What is judged, in the words of the judge; empty where there are none.
        rubric: Level -> its description; empty where there is none.
        asked: Why: `random`, or `disagreement` of other raters.
        probability: The chance that each case had to be among those that are labelled; None where none was drawn.
        items: In the order in which they are asked.
        done: How many answers the rater has labelled already.
        is_binary: Whether all scores are 0 or 1, so that labels are fail and pass.
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
    """What a person said of a cell: its combination and case by number, and its repeat.

    drawn: Whether its case was drawn at random; not where it was asked for since other raters disagree.
    probability: That it was drawn with, where somebody wrote it down.
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
    """A judge held against labels.

    Attributes:
        sweep: The id of the sweep.
        metric: The judge's scores.
        labels: How many labels are of cells that it scored.
        unjudged: How many are of cells without a score of it.
        not_drawn: How many were asked for since raters disagree, and count for nothing here: such cells are harder.
        raters: Who gave labels.
        kappa: Cohen's kappa between the judge and the labels.
        alpha: Krippendorff's alpha among the raters; no value where no cell has two labels.
        bias: The mean of the judge's score less the label, by case.
        by_length: How much more than the label the score is where an answer is twice as long.
        own_family: How much more it gives to models of its own family; None where it is not known whose answers are.
        uses: How often it gives each level, and people do, from the lowest on.
        is_weighted: Whether cases were drawn with unequal chances, and count by one over these.
        levels: What people say where it gives which score, from the lowest on.
        rows: Of the combinations that have labels.
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
        """Why labels say nothing of all cases; None where they do."""
        return next((row.why_not for row in self.rows if row.why_not), None)


@frozen
class Judged:
    """What is known of a judge and of what it judges.

    Attributes:
        lengths: Of answers in characters, by combination, case and repeat.
        levels: Of its rubric.
        families: Of its models.
        own: The combinations whose answers are of models of these, or were named by hand; None where nobody knows.
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
    """Hold the scores of a metric against labels. Cells that failed, or were edited, have neither.

    Args:
        database: Where the sweep is.
        sweep: Its row.
        read: Its scores.
        metric: One by which it is scored.
        labels: Of its cells.
        scale: What labels are.
        margin: Half the width of the interval that is wanted of each row.
        judged_by: What is known of the judge beside its scores.
        base: The combination that others are compared with, by number; by default the baseline.

    Raises:
        InputError: No label is of a cell that has a score, or chances differ that some do not say.
    """
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
    ends = read.measures[metric].scale
    return JudgeCheck(
        sweep.id,
        metric,
        len(judged),
        len(labels) - len(judged),
        label_count - len(labels),
        tuple(sorted({label.rater for label in labels})),
        _agreed(cohens_kappa(labelled.judge, labelled.people, scale, labelled.cases, labelled.weight)),
        _agreed(_among_raters(labels, scale, weights)),
        bias.by_case(labelled.judge - labelled.people, labelled, None, bias.ends_of_differences(ends)),
        bias.by_length(labelled, lengths),
        _own(labelled, judged, judged_by),
        bias.uses(labelled, judged_by.levels),
        weights is not None,
        bias.levels(labelled, ends),
        tuple(
            labelled_rows(
                read.choices,
                scores,
                [(label.combination, label.case, label.value) for label in labels if label.combination in of_rows],
                read.baseline if base is None else base,
                Counting(ends, weights, bool(outcomes.clusters(database, sweep.id)), margin),
            )
        ),
    )


def draw_order(sweep_id: str, cases: Iterable[int]) -> list[int]:
    """The random order in which all raters of a sweep are asked about its cases, by number."""
    numbers = sorted(cases)
    return Random(sweep_id).sample(numbers, len(numbers))


def _weights(labels: Sequence[Label], order: Callable[[], Sequence[int]]) -> dict[int, float] | None:
    """What each case counts: one over the chance that it was drawn with; None where all count alike.

    Who is asked for more cases of the one order of a sweep has those of others, too: whoever stopped when, all labels
    are of the first ones of it, which are drawn alike.
    """
    chances: dict[int, float] = {}
    with_chance = [label for label in labels if label.probability is not None]
    for label in with_chance:
        chances[label.case] = max(label.probability or 0.0, chances.get(label.case, 0.0))
    if len(set(chances.values())) < 2 or _is_of_one_order(with_chance, order()):
        return None
    if len(with_chance) < len(labels):
        raise InputError(
            f"{len(labels) - len(with_chance)} of {len(labels)} labels do not say with what chance their cases were "
            "drawn, and others were drawn with unequal ones; expected 'probability' of all"
        )
    mean = sum(chances.values()) / len(chances)
    return {case: mean / chance for case, chance in chances.items()}


def _is_of_one_order(labels: Sequence[Label], order: Sequence[int]) -> bool:
    """Whether every case is among as many of the first ones as its chance says."""
    places = {case: place for place, case in enumerate(order)}
    return all(places[label.case] < round((label.probability or 0.0) * len(order)) for label in labels)


def _own(labelled: Held, judged: Sequence[Label], judged_by: Judged) -> OwnFamily | None:
    if judged_by.own is None:
        return None
    own = np.array([label.combination in judged_by.own for label in judged])
    return OwnFamily(tuple(judged_by.families), int(own.sum()), bias.own_family(labelled, own))


def _among_raters(labels: Sequence[Label], scale: Scale, weights: Mapping[int, float] | None) -> Agreement:
    cells = {
        place: n
        for n, place in enumerate(dict.fromkeys((label.combination, label.case, label.repeat) for label in labels))
    }
    raters = {rater: n for n, rater in enumerate(sorted({label.rater for label in labels}))}
    ratings = np.full((len(raters), len(cells)), np.nan)
    for label in labels:
        ratings[raters[label.rater], cells[label.combination, label.case, label.repeat]] = label.value
    cases = np.array([case for _, case, _ in cells], dtype=np.int64)
    return krippendorffs_alpha(ratings, scale, cases, weights_of(weights, [case for _, case, _ in cells]))


def _agreed(agreement: Agreement) -> Figure:
    return replace(figure(agreement.value, agreement.interval), because=agreement.because)
