"""The evidence of a sweep: what `wtb report --format json` prints. docs/report-json.md lists the keys."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.common import (
    Better,
    CellStatus,
    Combination,
    FailureCause,
    FixedReference,
    Interval,
    SweepHeading,
)
from wtb.core.documents.executions import TotalsDocument
from wtb.core.documents.matrix import GateDocument, MatrixDocument, PeopleDocument
from wtb.core.documents.workflows.graphs import WorkflowDocument
from wtb.core.tree.stored_spec import Environment


class VariantEffect(TypedDict):
    """How far a level, which of a node is a variant, lies from the middle of its factor's levels, others being equal.

    ci: holds together with all other intervals of factors and pairs, at 95%.
    """

    variant: str
    effect: float
    ci: Interval | None


class NodeEffect(TypedDict):
    """How much of the spread between combinations comes from a factor: a node, or a parameter of a node.

    factor: "node.parameter", of a parameter. within: the variants that have it, if not all of the node have. brings: of
    a parameter in which others are nested, level -> the parameters that only variants with this level have.
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
    """What a level scores above another one of its factor, with certain levels of the other factors.

    factor: "node.parameter", of a parameter. beside: levels of the other factors.
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
    """The two levels that are furthest from what both add up to."""

    variants: list[str]
    effect: float
    ci: Interval | None


class InteractionEffect(TypedDict):
    """How much of the spread comes from two factors acting together. factors: their names, if one is a parameter."""

    nodes: list[str]
    factors: NotRequired[list[str]]
    share: float
    p: float
    p_adjusted: float
    strongest: StrongestEffect


class TestedPairs(TypedDict):
    """How many pairs of factors could act together, and how many of them are tested."""

    candidates: int
    tested: int


class AttributionDocument(TypedDict):
    """What makes the difference by a metric; `because` says why nothing, or not all, can be told.

    nodes: factors whose own effect can be told. simple: single changes of those for which it cannot. aliased: groups of
    factors that always change together. pairs: if not all are tested.
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
    """Two rows of the matrix; `delta` is a less b."""

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
    """Which combinations ran which node together."""

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
    """The cases that tell most, by the metric that decides."""

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
    """How many steps and calls are not listed."""

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
    """A case with its input, what was expected, and two executions."""

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
    """The sweep that was run."""

    project: str | None
    session: str
    created_at: str
    reason: str | None


class ProvenanceSize(TypedDict):
    """How large it was."""

    combinations: int
    cases: int
    repeats: int
    cells: int


class HowToRepeat(TypedDict):
    """The command that runs it again, or why there is none."""

    command: str | None
    command_because: str | None


class ProvenanceDocument(HowToRepeat):
    """What was run, where, and how to run it again. `settings` is a sweep file, `graph` as of `wtb workflow show`."""

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
    """A sweep, and nodes whose code changed since the one before, and tools of servers that did, as `files.read`."""

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
    """A combination through time; null where a sweep has no figure."""

    combination: Combination
    points: list[HistoricPoint | None]


class HistoricMetric(TypedDict):
    """A metric through time; the reference's figures are those of the first combination."""

    better: Better
    series: list[HistoricSeries]
    reference: NotRequired[FixedReference | None]


class SweepHistory(TypedDict):
    """A sweep among its forerunners."""

    sweeps: list[HistoricSweep]
    metrics: dict[str, HistoricMetric]
    left_out: int
    because: str | None


class CellGrid(TypedDict):
    """Every cell, in the order of combinations, cases and repeats; null where there is no cell, or no score.

    status: places in `statuses`. scores: by metric, with four digits; metrics for which there is no room are left out.
    """

    cases: list[str]
    repeats: int
    statuses: list[CellStatus]
    status: list[int | None]
    scores: dict[str, list[float | None]]


class Tested(TypedDict):
    """What rests on tests of the whole sweep, by metric."""

    attribution: dict[str, AttributionDocument]
    pairs: dict[str, PairsDocument]
    people: NotRequired[list[PeopleDocument]]


class EvidenceDocument(Tested):
    """The matrix of a sweep and what stands behind it. cells: left out of more than 50,000."""

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
