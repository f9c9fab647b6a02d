"""Comparisons of two sweeps, and baselines: the documents of `wtb compare`, `wtb regress` and `wtb baseline`."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.matrix import GateDocument, JudgedMatrixDocument, Verdict, WithinDocument
from wtb.core.documents.shared_types import Better, Combination, Interval, SweepHeading, SweepStatus

TELLING = 20  # cases that tell most of two rows, where nobody says how many


class CodeChange(TypedDict):
    """A variant whose code differs between the sweeps: its fingerprints, and the differences.

    `causes` is empty or missing if one of the sweeps was submitted by an earlier version of WTB.
    """

    node: str
    variant: str
    before: str
    after: str
    causes: NotRequired[list[str]]


class VariantName(TypedDict):
    """A variant of a node."""

    node: str
    variant: str


class VariantChanges(TypedDict):
    """Variants that only one of the sweeps has."""

    added: list[VariantName]
    removed: list[VariantName]


class CombinationChanges(TypedDict):
    """The numbers of combinations in both sweeps, and in only one of them."""

    common: int
    added: int
    removed: int


class CaseChanges(TypedDict):
    """The number of cases in both sweeps, and the ids of added, removed and changed ones."""

    common: int
    added: list[str]
    removed: list[str]
    changed: list[str]


class MetricChanges(TypedDict):
    """The number of metrics of both sweeps, and the metrics of only one of them."""

    common: int
    added: list[str]
    removed: list[str]


class SettingChange(TypedDict):
    """A setting of the sweep file, by its path, that differs; null if it is missing."""

    key: str
    before: Any
    after: Any


class TextFileChange(TypedDict):
    """A file that parameters of both sweeps name, with another text: its SHA-256, and a unified difference by lines."""

    path: str
    before: str
    after: str
    difference: list[str]


class ChangesDocument(TypedDict):
    """The differences between two sweeps besides their results."""

    code: list[CodeChange]
    files: NotRequired[list[TextFileChange]]
    variants: VariantChanges
    combinations: CombinationChanges
    cases: CaseChanges
    metrics: MetricChanges
    settings: list[SettingChange]
    graph: bool


class ComparedSizes(TypedDict):
    """Cells of both sweeps, over all repeats."""

    before: int
    after: int


class Compared(TypedDict):
    """The parts that both sweeps have in common."""

    combinations: int
    cases: int
    cells: int
    of: ComparedSizes


class Margins(TypedDict):
    """The losses that would matter, by metric: as given, else those of the later sweep."""

    given: dict[str, float]
    of_later: dict[str, float]


class FloorDocument(TypedDict):
    """The noise between repeats: compared pairs, the share that differs, and the standard deviation of differences."""

    compared: int
    differ: float
    sd: float
    deterministic: bool


class NoiseFloorDocument(TypedDict):
    """The differences of repeats of a sweep from it, without any change."""

    repeats: int
    sweeps: list[str]
    cells: FloorDocument
    metrics: dict[str, FloorDocument]


class FailingDocument(TypedDict):
    """Cells that fail in both sweeps, and cells that fail in the later one and have no counterpart."""

    still: int
    unpaired: int


class OutcomeFigures(TypedDict):
    """The numbers of cells of a row or pool that newly fail, and that newly succeed."""

    newly_failed: int
    fixed: int
    p_worse: float | None
    p_better: float | None
    verdict: Verdict
    because: str | None


class MissingPairs(TypedDict):
    """Cells that are missing on either side of a row or pool; keys are present if cells are missing."""

    missing: NotRequired[int]
    hangs_on: NotRequired[int]  # missing cells because of which a verdict is unclear
    unseen_one_in: NotRequired[int]  # what is rarer than 1 in so many cases cannot show, and could cancel `delta`
    uneven: NotRequired[bool]  # few cases make much of the difference


class ContrastFigures(MissingPairs):
    """A row or pool by one metric. Differences are later minus earlier; a gain is positive if the later one is
    better.
    """

    n_pairs: int
    n_differ: int
    before: float | None
    after: float | None
    delta: float | None
    delta_ci: Interval | None
    gain_low: float | None
    p_worse: float | None
    p_better: float | None
    margin: float | None
    margin_shown: float | None
    cases_needed: int | None
    decides: bool
    verdict: Verdict
    because: str | None


class ComparedRow(TypedDict):
    """One combination of both sweeps."""

    combination: Combination
    verdict: Verdict
    cells: OutcomeFigures
    metrics: dict[str, ContrastFigures]


class ComparedPool(TypedDict):
    """Combinations that share what was changed, taken together."""

    what: str
    nodes: list[str]
    variant: str | None
    combinations: list[Combination]
    verdict: Verdict
    cells: OutcomeFigures
    metrics: dict[str, ContrastFigures]


class CellFigures(TypedDict):
    """The results of a cell in both sweeps: scores, or how it ended if `metric` is null."""

    metric: str | None
    before: float | str | None
    after: float | str | None
    delta: float | None
    what: Literal["failed", "fixed", "worse", "better"]


class ComparedCell(CellFigures):
    """A cell that differs, with its executions in both sweeps and the first node whose result differs."""

    combination: Combination
    case: str
    executions: list[str | None]
    diverged: str | None


class ComparisonDocument(TypedDict):
    """A comparison of two sweeps: the changes, and the results that got worse or better."""

    version: Literal[2]
    before: SweepHeading
    after: SweepHeading
    changed: ChangesDocument
    compared: Compared
    primary: str | None
    margin: Margins
    noise_floor: NoiseFloorDocument | None
    failing: FailingDocument
    rows: list[ComparedRow]
    pools: list[ComparedPool]
    cells: list[ComparedCell]
    verdict: Verdict
    because: list[str]


class NightTestDocument(TypedDict):
    """A test of tonight, or of the last nights together, against the fixed reference.

    `combination` is null for all combinations together. `p` is one-sided and not corrected: it is a `fall` below
    `level`.
    """

    metric: str
    combination: Combination | None
    nights: int
    before: float
    after: float
    p: float
    level: float
    fall: bool


class NightPoint(TypedDict):
    """A sweep of a series: whether it counts to the reference, is the baseline now, and was worse."""

    sweep: str
    at: str | None
    mean: float | None
    ci: Interval | None
    reference: bool
    baseline: bool
    alarm: bool


class SeriesDocument(TypedDict):
    """Tonight as one night of many, compared with a fixed reference.

    `night` is the number of tonight, `repeats` the number of sweeps whose mean is the reference. A fall against the
    baseline counts if its p is below `level`. `nights` are of `metric` and one combination or all, the oldest first.
    """

    night: int
    reference: SweepHeading
    repeats: int
    new_code: bool
    level: float
    alarm: bool
    because: list[str]
    tests: list[NightTestDocument]
    metric: str | None
    nights: list[NightPoint]


class NightDocument(ComparisonDocument):
    """A comparison of a sweep with its baseline, as one night of a series.

    `series` is missing if a sweep was named, or only a part of a sweep ran.
    """

    series: NotRequired[SeriesDocument]


class RegressionDocument(NightDocument):
    """A comparison of a sweep that has just run with its baseline (null if a sweep was named), with its gates."""

    baseline: str | None
    gates: list[GateDocument]


class PairedRow(TypedDict):
    """One of two rows that are compared; `mean` is over the cases that both have."""

    combination: int
    choices: dict[str, str]
    mean: float | None
    exploratory: bool


class CasePair(TypedDict):
    """A case under two rows; `gain` is positive if the first one is better, whatever the direction of the metric."""

    case: str
    row: float
    other: float
    gain: float
    executions: list[str | None]


class PairedTest(TypedDict):
    """A paired test of a difference, in the metric's unit; null if it is undefined, and while a sweep runs."""

    ci: list[float] | None
    p: float | None
    effect: float | None
    detectable: float | None
    within: NotRequired[WithinDocument]  # whether the row is as good as the other one, if the metric has a margin


class RowComparisonDocument(PairedTest):
    """Two rows of a sweep over all cases: `delta` is row minus other; the most informative cases are first."""

    version: Literal[1]
    sweep: SweepHeading
    metric: str
    better: Better
    compare: Literal["mean", "median"]
    row: PairedRow
    other: PairedRow
    n_pairs: int
    unpaired: int
    wins: int
    losses: int
    ties: int
    delta: float | None
    because: str | None
    cases: list[CasePair]
    more: int


class BaselineSweep(TypedDict):
    """The sweep that a baseline names."""

    id: str
    name: str
    status: SweepStatus
    finished_at: str | None


class BaselineDocument(TypedDict):
    """A name for a sweep that later ones are compared with.

    `reference` is the id of the sweep that was set by hand, and `nights` how many were compared since.
    """

    name: str
    session: str
    set_at: str
    noise_floor: NoiseFloorDocument | None
    sweep: BaselineSweep
    reference: NotRequired[str]
    nights: NotRequired[int]


class BaselinesDocument(TypedDict):
    """Baselines of a session, or of all."""

    baselines: list[BaselineDocument]


class BaselineMatrixDocument(BaselineDocument):
    """A baseline with the matrix of its sweep."""

    matrix: JudgedMatrixDocument
