"""The evidence of a sweep, as `wtb report --format json` prints it. docs/json.md lists the keys."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.executions import TotalsDocument
from wtb.core.documents.matrix import GateDocument, MatrixDocument, PeopleDocument
from wtb.core.documents.shared_types import (
    Better,
    CellStatus,
    Combination,
    FailureCause,
    FixedReference,
    Interval,
    SweepHeading,
)
from wtb.core.documents.workflows import WorkflowDocument
from wtb.core.tree.stored_spec import Environment


class VariantEffect(TypedDict):
    """The distance of a level, which for a node is a variant, from the middle of its factor's levels, others being
    equal.

    `ci` holds together with all other intervals of factors and pairs, at 95%.
    """

    variant: str
    effect: float
    ci: Interval | None


class NodeEffect(TypedDict):
    """The part of the spread between combinations that a factor explains: a node, or a parameter of a node.

    Attributes:
        factor: "node.parameter", for a parameter.
        within: The variants that have it, unless all variants of the node have it.
        brings: For a parameter in which others are nested, the parameters that only variants with a level have, by
            level.
    """

    node: str
    factor: NotRequired[str]
    within: NotRequired[list[str]]
    brings: NotRequired[dict[str, list[str]]]
    share: float
    p: float
    p_adjusted: float
    variants: list[VariantEffect]


class SimpleEffect(TypedDict):
    """The difference between two levels of a factor, with certain levels of the other factors.

    Attributes:
        factor: "node.parameter", for a parameter.
        beside: Levels of the other factors.
    """

    node: str
    factor: NotRequired[str]
    variant: str
    over: str
    beside: dict[str, str]
    effect: float
    ci: Interval | None
    p: float | None
    p_adjusted: float | None


class StrongestEffect(TypedDict):
    """The two levels whose combination is furthest from the sum of their effects."""

    variants: list[str]
    effect: float
    ci: Interval | None


class InteractionEffect(TypedDict):
    """The part of the spread that two factors explain together. `factors` has their names, if one is a parameter."""

    nodes: list[str]
    factors: NotRequired[list[str]]
    share: float
    p: float
    p_adjusted: float
    strongest: StrongestEffect


class TestedPairs(TypedDict):
    """The number of pairs of factors that could interact, and how many of them are tested."""

    candidates: int
    tested: int


class AttributionDocument(TypedDict):
    """The factors that make the difference by a metric; `because` has the reason if nothing, or not everything, is
    known.

    Attributes:
        nodes: Factors whose own effect is identified.
        simple: Single changes of factors whose effect is not.
        aliased: Groups of factors that always change together.
        pairs: Present if not all are tested.
    """

    metric: str
    cases: int
    missing: int
    nodes: list[NodeEffect]
    simple: NotRequired[list[SimpleEffect]]
    aliased: NotRequired[list[list[str]]]
    pairs: NotRequired[TestedPairs]
    interactions: list[InteractionEffect]
    unexplained: float | None
    unexplained_p: float | None
    sentences: list[str]
    because: str | None


class PairDocument(TypedDict):
    """Two rows of the matrix; `delta` is a minus b."""

    a: int
    b: int
    n_pairs: int
    delta: float | None
    delta_ci: Interval | None
    p: float | None
    p_adjusted: float | None


class PairsDocument(TypedDict):
    """Numbers of rows, best first, and any two of them."""

    rows: list[int]
    pairs: list[PairDocument]


class SharedRuns(TypedDict):
    """Node runs, with the time and the money of their accepted attempts."""

    executed: int
    unshared: int
    failed: NotRequired[int]
    seconds: NotRequired[float]
    usd: NotRequired[float]


class SharedVariant(SharedRuns):
    """Node runs of a variant."""

    variant: str


class SharedNode(SharedRuns):
    """Node runs of a node."""

    node: str
    variants: list[SharedVariant]


class Prefix(SharedRuns):
    """Node runs of the combinations, by their numbers, that made the same choices up to a node."""

    combinations: list[int]
    variant: str | None


class Level(TypedDict):
    """The prefixes up to a node."""

    node: str
    prefixes: list[Prefix]


class FoldedLevel(TypedDict):
    """A level of which there are too many prefixes to list."""

    node: str
    prefixes: int


class SharingTree(TypedDict):
    """The combinations that shared node runs."""

    nodes: list[SharedNode]
    levels: list[Level] | None
    folded: list[FoldedLevel]
    because: str | None


class CaseSide(TypedDict):
    """A combination, by its number, in a case."""

    combination: int
    score: float
    execution: str | None


class TellingEnds(TypedDict):
    """The best and the worst combination of a case, and the node at which they part."""

    best: CaseSide | None
    worst: CaseSide | None
    parted: str | None
    because: str | None


class TellingCase(TellingEnds):
    """A case in which combinations differ most, or that is hard for all."""

    case: str
    why: Literal["differ", "hard"]
    n: int
    mean: float
    spread: float


class TellingCases(TypedDict):
    """The most informative cases, by the metric that decides."""

    metric: str | None
    better: Better | None
    cases: list[TellingCase]
    because: str | None


class CutText(TypedDict):
    """A value as text, and how many characters of it were cut off."""

    text: str
    cut: int


class OpenedStep(TypedDict):
    """A node run of an execution that was opened."""

    step: int
    node: str
    variant: str
    status: str
    attempts: int
    duration_s: float | None
    usd: float | None
    error: str | None


class OpenedCall(TypedDict):
    """A call of a model or a tool."""

    node: str
    model: str | None
    tool: str | None
    tokens_in: int | None
    tokens_out: int | None
    usd: float | None
    duration_s: float | None
    prompt: CutText | None
    response: CutText | None


class OpenedFile(TypedDict):
    """A file that an execution changed."""

    path: str
    kind: str
    bytes: int | None
    sha256: str | None


class OpenedFiles(TypedDict):
    """Files that an execution changed, and how many more there are."""

    changes: list[OpenedFile]
    more: int


class NotListed(TypedDict):
    """The numbers of steps and calls that are not listed."""

    steps: int
    calls: int


class OpenedSide(TypedDict):
    """An execution of a case that was opened; `combination` is the number of its row."""

    combination: int
    execution: str
    status: str
    scores: dict[str, float | str | None]
    totals: TotalsDocument | None
    error: CutText | None
    output: dict[str, CutText]
    steps: list[OpenedStep]
    calls: list[OpenedCall]
    files: OpenedFiles | None
    more: NotListed


class OpenedCase(TypedDict):
    """A case with its input, its expected value, and two executions."""

    case: str
    why: str
    tags: list[str]
    input: dict[str, CutText]
    expected: CutText | None
    sides: list[OpenedSide]


class OpenedCases(TypedDict):
    """Cases that were opened, how many were not, and how many characters were cut."""

    cases: list[OpenedCase]
    left_out: int
    cut: int


class ScoreFailure(TypedDict):
    """Scores that failed for one cause."""

    scores: int
    metric: str
    message: str
    combinations: list[int]


class Unscored(TypedDict):
    """Scores that a combination lacks by a metric."""

    combination: int
    metric: str
    scores: int
    message: str


class FailuresDocument(TypedDict):
    """Causes of failed cells and scores, and how many are not listed."""

    cells: list[FailureCause]
    scores: list[ScoreFailure]
    unscored: list[Unscored]
    left_out: int


class ProvenanceSweep(SweepHeading):
    """The sweep of a report."""

    project: str | None
    session: str
    created_at: str
    reason: str | None


class ProvenanceSize(TypedDict):
    """The size of a sweep."""

    combinations: int
    cases: int
    repeats: int
    cells: int


class HowToRepeat(TypedDict):
    """The command that repeats a sweep, or why there is none."""

    command: str | None
    command_because: str | None


class ProvenanceDocument(HowToRepeat):
    """The provenance of a sweep: `settings` is a sweep file, `graph` as in `wtb workflow show`."""

    sweep: ProvenanceSweep
    workflow: str | None
    graph: WorkflowDocument
    fingerprints: dict[str, dict[str, str]]
    size: ProvenanceSize
    environment: Environment | None
    because: str | None
    folder: str | None
    settings: str


class HistoricSweep(TypedDict):
    """A sweep, with the nodes whose code changed since the one before, and changed tools of servers, as
    `files.read`.
    """

    sweep: str
    at: str
    verdict: str | None
    code_changed: list[str]


class HistoricPoint(TypedDict):
    """The figures of a combination in one sweep."""

    n: int
    mean: float
    ci: Interval | None


class HistoricSeries(TypedDict):
    """A combination over time; null if a sweep has no figure."""

    combination: Combination
    points: list[HistoricPoint | None]


class HistoricMetric(TypedDict):
    """A metric over time; the reference's figures are those of the first combination."""

    better: Better
    series: list[HistoricSeries]
    reference: NotRequired[FixedReference | None]


class SweepHistory(TypedDict):
    """A sweep among its predecessors."""

    sweeps: list[HistoricSweep]
    metrics: dict[str, HistoricMetric]
    left_out: int
    because: str | None


class CellGrid(TypedDict):
    """Every cell, in the order of combinations, cases and repeats; null if there is no cell, or no score.

    `status` has places in `statuses`. `scores` are by metric, with four digits; metrics without room are left out.
    """

    cases: list[str]
    repeats: int
    statuses: list[CellStatus]
    status: list[int | None]
    scores: dict[str, list[float | None]]


class Tested(TypedDict):
    """The results of tests of the whole sweep, by metric."""

    attribution: dict[str, AttributionDocument]
    pairs: dict[str, PairsDocument]
    people: NotRequired[list[PeopleDocument]]


class EvidenceDocument(Tested):
    """The matrix of a sweep with its evidence. `cells` is left out for more than 50,000."""

    version: Literal[1]
    made_at: str
    matrix: MatrixDocument
    cells: NotRequired[CellGrid]
    gates: list[GateDocument]
    tree: SharingTree
    worst: TellingCases
    opened: OpenedCases
    failures: FailuresDocument
    provenance: ProvenanceDocument
    history: SweepHistory
