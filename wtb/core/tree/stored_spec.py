"""A sweep as it is stored: the keys of its sweep file as JSON, and what is recorded beside them.

A key may be missing, where the sweep was submitted or exported by an earlier version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.scoring.scales import OnFailure
from wtb.core.tree.stored_code import EVALUATORS, RecordedCode, StoredCode, stored_code
from wtb.core.values import Json


class Environment(TypedDict):
    """Versions of WTB, Python, the platform, packages by their name, the tools of servers by those of both, and
    what models answered judges, by metric."""

    wtb: str
    python: str
    platform: str
    packages: dict[str, str]
    tools: NotRequired[dict[str, dict[str, str]]]
    judges: NotRequired[dict[str, str]]


class StoredPolicies(TypedDict):
    """The policies that hold for the nodes of a sweep, as of its submission.

    Attributes:
        text: All policies, in Cedar.
        names: The name of each, in order.
        actions: Actions of nodes that policies name; nodes ask about no others.
        by: The principal: who submitted the sweep, as policies know them.
    """

    by: str
    text: str
    names: list[str]
    actions: list[str]


class NodeLimits(TypedDict, total=False):
    """Where a sweep stops for one of its nodes; None is no limit."""

    usd: float | None
    tokens: int | None
    node_runs: int | None


class JudgingLimits(TypedDict, total=False):
    """Where a sweep stops for what its judges cost; None is no limit."""

    usd: float | None


class Limits(NodeLimits, total=False):
    """Where a sweep stops; None is no limit. Durations in seconds. nodes: limits of single ones. judging: of judges."""

    cell_timeout: float | None
    wall: float | None
    nodes: dict[str, NodeLimits]
    judging: JudgingLimits


# Pydantic, which reads requests, drops keys that a TypedDict has not: here they are kept, so that they can be refused.
for _shape in (NodeLimits, JudgingLimits, Limits):
    _shape.__pydantic_config__ = {"extra": "allow"}  # type: ignore[attr-defined]


class Best(TypedDict, total=False):
    """Which combination a sweep is to find."""

    maximize: str | None
    minimize: str | None
    subject_to: str | None


DataFindingKind = Literal[
    "equal_inputs",
    "equal_inputs_apart",
    "contradictory_expected",
    "similar_inputs",
    "without_expected",
    "rare_class",
    "no_scale",
    "sorted_file",
    "dominant_cluster",
]


class DataFinding(TypedDict):
    """What a check of the cases found before anything ran.

    cases: how many cases it is about. sentence: what it does to the figures. key: of the sweep file, the case, the
    evaluator or the command: what settles it.
    """

    kind: DataFindingKind
    cases: int
    sentence: str
    key: str


class StoredAddition(TypedDict):
    """A row that was added to a sweep, as `Addition` describes it."""

    combination: int
    base: int
    changed: dict[str, str]
    case: str
    left_out: list[int]
    execution: str
    at: str | None
    by: str
    reason: str | None
    added_at: float
    final: bool


class StoredStop(TypedDict):
    """Why a combination of a sweep was stopped: who did, why, and when."""

    by: str
    reason: str
    at: float


class StoredExtension(TypedDict):
    """What was added to a sweep at one time, as planned and not as exploratory.

    Attributes:
        at: When, in seconds since the epoch.
        by: Who added it.
        reason: Why, for people.
        cases: How many cases were added.
        first_case: The number of the first of them.
        repeats: How many repeats there were before, and after.
        combinations: The numbers of the combinations that were added.
        cells: How many cells were added.
        seen: Whether the sweep had scores by then.
    """

    at: float
    by: str
    reason: str | None
    cases: int
    first_case: int
    repeats: list[int]
    combinations: list[int]
    cells: int
    seen: bool


class StoredEvaluators(TypedDict):
    """The code that gave the scores of a sweep.

    Attributes:
        fingerprints: Those of its evaluators, by name and in their order.
        code: What they rest on.
    """

    fingerprints: dict[str, str]
    code: StoredCode


class StoredSpec(TypedDict, total=False):
    """What a sweep was submitted with.

    cases: a file or import path, or "inline". vary: node -> "all" or its variants as the sweep file has them, each with
    its parameters; a grid point has `levels`, pairs of parameter and level, instead (`factors_of` reads them).
    fork_variants: node -> variants in the same form, which people made for forks. evaluate: name ->
    options, of each evaluator. baseline_row: the combination that is the baseline. data: what the check of its cases
    found. texts: of files that parameters name, by their SHA-256. sample: how many of its cases were drawn at random.
    approval: the modes that apply, of the sweep or its workflow; missing if only nodes ask. served: a server runs it
    itself. copied_from: the sweep beside which it was copied under another name.
    """

    sweep: str
    project: str | None
    session: str | None
    workflow: str
    params: dict[str, Json]
    cases: str
    columns: NotRequired[dict[str, list[str]]]
    files_from: list[str]
    vary: Mapping[str, Literal["all"] | list[Any]]
    exclude: list[dict[str, list[str]]]
    combinations: Any
    repeats: int
    seed: int
    baseline: dict[str, str]
    evaluate: list[dict[str, Json]]
    primary: str | None
    on_failure: OnFailure | None
    failure_kinds: dict[str, Literal["result", "missing"]]
    best: Best | None
    gates: list[str]
    margin: dict[str, float]
    agreement: NotRequired[dict[str, float | str]]
    holdout: float | None
    stop: Literal["when_known"] | None
    mcp: dict[str, Json]
    limits: Limits
    run: Any
    redact: Any
    baseline_row: dict[str, str] | None
    folder: str
    environment: Environment
    code: NotRequired[StoredCode]
    approval: list[str | dict[str, str]]
    submitted_by: str
    served: NotRequired[bool]
    final: bool
    added_rows: list[StoredAddition]
    extensions: NotRequired[list[StoredExtension]]
    copied_from: NotRequired[str]
    evaluators: NotRequired[StoredEvaluators]
    fork_variants: dict[str, list[dict[str, Json]]]
    equal_inputs: NotRequired[Literal["cluster", "independent"]]
    data: NotRequired[list[DataFinding]]
    sample: NotRequired[int]
    policies: NotRequired[StoredPolicies]
    texts: NotRequired[dict[str, str]]


def recorded_evaluators(spec: StoredSpec) -> RecordedCode | None:
    """Return the code that gave the scores of a sweep; None if it is not known."""
    stored = spec.get("evaluators")
    return None if stored is None else read_evaluators(stored)


def read_evaluators(stored: StoredEvaluators) -> RecordedCode:
    """Return the code of evaluators that `stored_evaluators` has written."""
    return RecordedCode({EVALUATORS: stored["fingerprints"]}, stored["code"])


def stored_evaluators(recorded: RecordedCode) -> StoredEvaluators:
    """Return the code of evaluators as it is stored."""
    return {"fingerprints": dict(recorded.fingerprints[EVALUATORS]), "code": recorded.code or stored_code({})}


def recorded_tools(spec: StoredSpec) -> Mapping[str, Mapping[str, str]]:
    """Server -> tool -> digest, as recorded with a sweep; no tools of a server that could not be asked from there."""
    return spec["environment"].get("tools", {}) if "environment" in spec else {}
