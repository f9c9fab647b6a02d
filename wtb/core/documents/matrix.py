"""The matrix of a sweep: combination x metric, as `wtb matrix` prints it. docs/json.md lists the keys."""

from __future__ import annotations

from typing import Final, Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.shared_types import (
    Better,
    CellCounts,
    Combination,
    FailureCauses,
    Interval,
    NodeRunCounts,
    SweepHeading,
)
from wtb.core.scoring.measure import Figure
from wtb.core.scoring.unknown_costs import UnknownCost


class PivotCell(TypedDict):
    """The combinations that share a level of each factor of a pivot table.

    Attributes:
        mean: The mean over the means of `rows`; null if there is none.
        ci: From the mean of the lower ends of their intervals to the mean of the upper ends; null if one has none.
        rows: The numbers of the combinations that are averaged.
        left_out: The numbers of those that are not: stopped, exploratory, or without the figure.
    """

    mean: float | None
    ci: Interval | None
    rows: list[int]
    left_out: list[int]


class PivotDocument(TypedDict):
    """A figure by one or two factors, averaged over the levels of all others.

    Attributes:
        factors: One or two: that of the lines, and that of the columns.
        metric: A metric, or `cost` or `latency`.
        lines: The levels of the first factor; null for combinations without it.
        columns: The levels of the second factor; one null if there is no second factor.
        cells: By line, then by column.
        balanced: Whether all cells that have a mean average the same levels of the other factors.
    """

    factors: list[str]
    metric: str
    lines: list[str | None]
    columns: list[str | None]
    cells: list[list[PivotCell]]
    balanced: bool


class RowGroup(TypedDict):
    """Rows that share levels. `levels`: null for combinations without the factor."""

    levels: dict[str, str | None]
    rows: list[int]


class MatrixView(TypedDict):
    """The selection and the order of a shown matrix. It changes none of its figures.

    Attributes:
        where: The filters, for example `answer.model=mini`.
        within: Whether only rows are shown that are within the margin of the best.
        metric: The metric by which rows are filtered, and compared in a pivot table.
        sort: The order of the rows; null for the best first.
        group_by: The factors by whose levels rows are grouped.
        rows: The numbers of the rows that are shown, in order.
        groups: The same in groups, if `group_by` has a factor.
        pivot: The pivot table, if one was requested.
    """

    where: list[str]
    within: bool
    metric: str | None
    sort: str | None
    group_by: list[str]
    rows: list[int]
    groups: NotRequired[list[RowGroup]]
    pivot: NotRequired[PivotDocument]


VERSION: Final = 1

Basis = Literal["within", "best", "leads", "not shown", "only", "figure"]
Verdict = Literal["worse", "better", "same", "not worse", "unclear", "cannot tell"]


class AsOf(TypedDict):
    """The number of cases over which combinations are compared before the end of a sweep, and why not over all."""

    cases: int
    of: int
    because: str


class NodeRuns(NodeRunCounts):
    """Node runs of a sweep, and of each of its nodes."""

    by_node: dict[str, NodeRunCounts]


class Cost(TypedDict):
    """The cost of a sweep, including failed attempts."""

    usd: float
    unshared_usd: float  # without sharing
    tokens_in: int
    tokens_out: int
    unknown: NotRequired[list[UnknownCost]]  # why `usd` is less than what was spent


class Latency(TypedDict):
    """Seconds of cells that succeeded, each as if alone; null if none did."""

    p50: float | None
    p95: float | None


class MissingFigures(TypedDict):
    """The possible effects of missing cells, and of differences too rare to show; keys are present if there are any."""

    missing: NotRequired[int]  # cells that should have a score and have none
    pairs_missing: NotRequired[int]  # of the combination and of the baseline, in the cases that one of them has
    mean_at_worst: NotRequired[Interval]  # between what the mean would be with missing cells at either end
    delta_at_worst: NotRequired[Interval]
    p_at_worst: NotRequired[float]  # p with missing cells at their worst, where p is below 0.05
    hangs_on: NotRequired[int]  # missing cells because of which a significant difference is not claimed
    unseen_one_in: NotRequired[int]  # what is rarer than 1 in so many cases cannot show, and could cancel `delta`


class WithinDocument(TypedDict):
    """The relation of a combination to the margin of the best, if the metric has one.

    Attributes:
        shown: yes, no, or null while it is not shown.
        behind: By how much it is behind the best, at least and at most, each right in 95% of sweeps for all
            combinations together.
        hangs_on: Missing cells that leave it open.
    """

    margin: float
    shown: bool | None
    behind: Interval | None
    hangs_on: NotRequired[int]


class MetricEstimate(MissingFigures):
    """One combination under one metric. Undefined figures are null."""

    n: int
    n_pairs: int
    mean: float | None
    ci: Interval | None
    delta: float | None
    delta_ci: Interval | None
    p: float | None
    p_adjusted: float | None
    effect: float | None  # standard deviations of the differences
    detectable: float | None
    detectable_fall: NotRequired[float | None]
    detectable_rise: NotRequired[float | None]
    ranks: list[int] | None  # the first and the last place that it could have
    common_mean: float | None
    bounds: Interval | None
    within: NotRequired[WithinDocument]  # of metrics with a margin
    class_cases: NotRequired[int]  # of figures over all cells of a row: cases, or clusters, that the interval rests on


class ExploratoryDocument(TypedDict):
    """The reason for which a row was added after results were seen, so that it is never the best by itself."""

    base: Combination  # the row that it was made from
    changed: Combination  # where it differs from that
    suggested_by: str  # case
    cases_left_out: int  # that case, and what shares a cluster with it
    execution: str
    by: str
    reason: str | None
    added_at: str


class StoppedDocument(TypedDict):
    """The reason for which a row was stopped, so that it is never the best; `cases` is the number of its scored
    cases.
    """

    by: str
    reason: str
    at: str
    cases: int


class RowDocument(TypedDict):
    """One combination of a matrix."""

    combination: Combination
    levels: NotRequired[dict[str, str]]  # their labels by factor, `node.parameter`, if a node has factors
    n: int
    succeeded: int
    failed: int
    lost_to_provider: NotRequired[int]  # cells, if any; they are not among those that failed
    cost_usd: float | None  # mean of cells that succeeded, as if alone
    cost_failed_usd: float  # as recorded; the other costs are null if the cost of one of its variants is not known
    cost_per_success_usd: float | None
    cost_innocent_usd: NotRequired[float]  # of attempts that ended for the sake of another one, where there were any
    latency_s: Latency
    as_of: int | None  # cases that the row is over, before the end
    exploratory: NotRequired[ExploratoryDocument]  # of a row that was added, and was not planned
    stopped: NotRequired[StoppedDocument]  # of a row that somebody stopped
    metrics: dict[str, MetricEstimate]


class WinnerDocument(TypedDict):
    """The figures of the best, corrected for the fact that it was chosen by them."""

    mean: float
    ci: Interval | None
    shrunken: float | None


class BestDocument(TypedDict):
    """The best combination by a metric, whether it beats every other, and by how much."""

    combination: Combination | None
    clear: bool
    candidates: list[Combination]
    unranked: list[Combination]
    cases: int
    winner: WinnerDocument | None
    rival: Combination | None
    lead: float | None  # positive is better
    lead_ci: Interval | None
    p: float | None
    n_pairs: int
    cases_needed: list[int | None] | None  # in all, if the leads are real, and if they are half as large
    differ_at_most: NotRequired[float | None]  # two candidates
    because: str | None
    tried: int
    looks: NotRequired[int]  # which look at these rows this is
    level: NotRequired[float]  # that is left of 0.05 for what was not shown before
    hangs_on: NotRequired[int | None]  # missing cells because of which the best is not clear
    unseen_one_in: NotRequired[int]  # losses that are rarer than 1 in so many cases cannot show, and could cancel it


class ClassesDocument(TypedDict):
    """The number of cases of each class, for a figure over all cells of a row.

    Attributes:
        cases: By class, the rarest first.
        fewest: The number of cases, or clusters of them, on which the interval of the row with the fewest depends.
        enough: Whether that allows every row an interval.
        sentence: The same in words.
    """

    cases: dict[str, int]
    fewest: int
    enough: bool
    sentence: str


class MetricDocument(TypedDict):
    """The measure of a metric, by which its values are read."""

    better: Better
    declared: bool
    compare: Literal["mean", "median"]
    low: float | None
    high: float | None
    on_failure: float | None  # score of a failed cell
    failed: int
    interval: Literal["betting", "asymptotic"] | None
    figure: NotRequired[Figure]  # over all cells of a row, of which it is no mean of scores
    classes: NotRequired[ClassesDocument]  # of such a figure
    passes: NotRequired[str]  # the figure over the repeats of a case, such as pass@3
    without_expected: NotRequired[int]  # cases that it does not score, if there are any


class TagRow(TypedDict):
    """One combination over the cases of a tag."""

    hangs_on: NotRequired[int]  # missing cells because of which a significant difference is not claimed
    mean: float | None
    n_pairs: int
    delta: float | None
    delta_ci: Interval | None
    p: float | None
    p_adjusted: float | None


class TagDocument(TypedDict):
    """The cases of a tag, with the rows of the matrix in their order."""

    tag: str
    cases: int
    rows: list[TagRow]


class TagSlices(TypedDict):
    """The same comparison within the cases of each tag, and how many tags are not listed."""

    tags: list[TagDocument]
    left_out: int


class SlicesDocument(TagSlices):
    """Slices by tag, by the metric that decides."""

    metric: str


class NodeVariance(TypedDict):
    """The variance that comes from one node."""

    node: str
    variance: float


class Narrower(TypedDict):
    """The factor of an interval's width with twice the cases, and with twice the repeats."""

    cases: float | None
    repeats: float | None


class NoiseDocument(TypedDict):
    """Components of variance of one score, in the unit of the metric squared.

    `cases` are those with every score, `incomplete` those that lack one and are left out.
    """

    metric: str
    case: float
    common: float
    nodes: list[NodeVariance]
    rest: float
    cases: int
    incomplete: NotRequired[int]
    repeats: int
    narrower: Narrower


class ChoiceDocument(TypedDict):
    """The choice of `best` in the sweep file, and how many rows were no candidates.

    `margin` is that of the metric, if it has one; `within` is how many rows are shown to be within it of the best.
    """

    objective: str
    combination: Combination | None
    because: str | None
    left_out: int
    hangs_on: NotRequired[int]  # missing cells that could change the choice
    margin: NotRequired[float]
    within: NotRequired[int]


class DecisionDocument(TypedDict):
    """The combination to ship, what it rests on, and what would make it surer.

    Attributes:
        objective: What is looked for, such as `maximize contains subject to cost_usd < 0.002`.
        metric: The metric that decides; null if it is a figure such as `cost_usd`.
        margin: The loss of it that does not matter, if the sweep has one.
        combination: The recommended combination, null if there is none; then `because` is why.
        basis: `within`: the cheapest that is shown to be within the margin of the best. `best`: it beats every other.
            `leads`: it has the best figure, and others could be the best. `not shown`: the same, and none is shown to
            be within the margin. `only`: there is no other to compare it with. `figure`: no metric is compared.
        ties: The others between which the figures do not decide: within the margin, or could be the best, too.
        is_cheapest: Whether none of these costs less; null if costs are not known.
        behind: By how much it is behind the best at most, and at least.
        cases: Over how many cases rows are compared.
        cases_needed: About how many in all would show which is the best, if the lead is real; null if unknown.
        is_final: Whether the sweep has come to its end.
        warnings: How many of the matrix's warnings, the first ones, could change the decision.
    """

    objective: str
    metric: str | None
    margin: float | None
    combination: Combination | None
    because: str | None
    basis: Basis | None
    ties: list[Combination]
    is_cheapest: bool | None
    mean: float | None
    ci: Interval | None
    behind: Interval | None
    cost_usd: float | None
    latency_s: float | None
    cases: int
    cases_needed: int | None
    is_final: bool
    warnings: int


class GateVerdict(TypedDict):
    """The verdict on a gate (null: undecided), with the reason; `verdict` is present if the gate is on a baseline."""

    holds: bool | None
    values: dict[str, float | None]
    because: str | None
    verdict: NotRequired[Verdict]


class GateDocument(GateVerdict):
    """A gate of the sweep file, with its result."""

    gate: str


class ProviderDocument(TypedDict):
    """Cells that were lost to providers, of all cells, and the attempts that providers failed.

    Attributes:
        scores: Scores that are missing because a provider failed in an evaluator or judge.
        answered_after_failure: Node runs that succeeded although a recorded call had failed.
    """

    lost: int
    share: float
    attempts: int
    scores: NotRequired[int]
    answered_after_failure: int


class MatrixFigures(TypedDict):
    """The part of a matrix that depends on scores.

    `effects` are those of factors by the primary metric, in a sweep with grids.
    """

    rows: list[RowDocument]
    effects: NotRequired[list[str]]
    primary: str | None
    primary_named: bool
    best: dict[str, BestDocument]
    metrics: dict[str, MetricDocument]
    clusters: int | None
    slices: SlicesDocument | None
    noise: NoiseDocument | None
    decision: NotRequired[DecisionDocument]
    view: NotRequired[MatrixView]  # if rows were filtered, sorted, grouped or pivoted; `rows` has all of them


class MatrixDocument(MatrixFigures):
    """The matrix of a sweep."""

    version: Literal[1]
    figures: Literal["final", "anytime"]
    as_of: AsOf | None
    sweep: SweepHeading
    cells: CellCounts
    node_runs: NodeRuns
    cost: Cost
    baseline: Combination | None
    failures: FailureCauses
    provider: NotRequired[ProviderDocument]
    front: dict[str, list[int]]  # metric -> indices of rows
    choice: ChoiceDocument | None
    scores_failed: int
    edited_left_out: int
    warnings: list[str]


class PeopleRow(TypedDict):
    """The estimated human ratings of a combination, from labels of some cases and a judge's scores of all."""

    combination: Combination
    labels: int  # cases of it that have one
    mean: float | None
    ci: Interval | None
    delta: float | None  # to the baseline, else to the first of these rows
    delta_ci: Interval | None
    few_labels: bool  # too few for its intervals to hold what they promise


class PeopleDocument(TypedDict):
    """The estimated human ratings under a metric with labels. Cells that failed are left out."""

    metric: str
    labels: int
    raters: int
    because: NotRequired[str]  # why rows have no interval, if the labelled cases were not drawn at random
    rows: list[PeopleRow]


class NightDocument(TypedDict):
    """The verdict of a schedule on its sweep, compared with the `baseline` sweep, if there was one."""

    verdict: str
    because: list[str]
    baseline: str | None


class JudgedMatrixDocument(MatrixDocument):
    """The matrix of a sweep with its gates, and with estimated human ratings if it has labels."""

    gates: list[GateDocument]
    night: NotRequired[NightDocument]  # of sweeps that a schedule ran
    people: NotRequired[list[PeopleDocument]]


def is_ranked(row: RowDocument) -> bool:
    """Return whether a row competes for the best: planned, and not stopped."""
    return not (row.get("exploratory") or row.get("stopped"))
