"""A sweep as it is stored: its sweep file as JSON, records beside it, and rows that were added to it later.

A key may be missing if the sweep was submitted or exported by an earlier version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final, Literal, NotRequired, cast

from typing_extensions import TypedDict

from wtb.core.frozen import frozen
from wtb.core.scoring.scores import OnFailure
from wtb.core.tree.stored_code import EVALUATORS, RecordedCode, StoredCode, stored_code
from wtb.core.values import Json

KEY: Final = "added_rows"  # of a stored spec


@frozen(slots=True)
class Addition:
    """A combination that somebody added because of a case of the sweep.

    Attributes:
        combination: Its number, and that of its row.
        base: The number of the combination that it was made from.
        changed: The variants, by node, in which it differs from that one.
        case: The id of the case that suggested it.
        left_out: The numbers of the cases that do not count for it: those that suggested it or its base, and all cases
            that share a cluster with them.
        execution: The id of the execution that it was made from.
        at: The checkpoint that was named, if any.
        by: The person who added it.
        reason: The reason of that person.
        added_at: When, in seconds since the epoch.
        final: Whether the planned part had ended as planned by then.
    """

    combination: int
    base: int
    changed: Mapping[str, str]
    case: str
    left_out: tuple[int, ...]
    execution: str
    at: str | None
    by: str
    reason: str | None
    added_at: float
    final: bool

    def document(self) -> StoredAddition:
        """Return the addition as plain JSON."""
        return cast("StoredAddition", asdict(self) | {"left_out": list(self.left_out)})


def additions(spec: StoredSpec) -> list[Addition]:
    """Return the rows that were added to a sweep, from its stored spec, in the order of their numbers."""
    return [_read(row) for row in spec.get(KEY, ())]


def _read(stored: StoredAddition) -> Addition:
    return Addition(
        stored["combination"],
        stored["base"],
        stored["changed"],
        stored["case"],
        tuple(stored["left_out"]),
        stored["execution"],
        stored["at"],
        stored["by"],
        stored["reason"],
        stored["added_at"],
        stored["final"],
    )


EXTENSIONS: Final = "extensions"  # the key of a stored spec


def extensions(spec: StoredSpec) -> list[StoredExtension]:
    """Return the extensions of a sweep from its stored spec, the oldest first."""
    return list(spec.get(EXTENSIONS, ()))


def planned_at(spec: StoredSpec, created_at: float) -> float:
    """Return when the plan of a sweep was last decided: at its creation or its last extension."""
    return max([created_at, *(extension["at"] for extension in extensions(spec))])


def first_cases(spec: StoredSpec) -> list[int]:
    """Return the number of the first case of each extension that added cases, in order."""
    return [extension["first_case"] for extension in extensions(spec) if extension["cases"]]


class Environment(TypedDict):
    """Versions of WTB, Python, the platform, packages, tools of servers, and models that judged.

    Tools are by server and name, models by metric.
    """

    wtb: str
    python: str
    platform: str
    packages: dict[str, str]
    tools: NotRequired[dict[str, dict[str, str]]]
    judges: NotRequired[dict[str, str]]


class StoredPolicies(TypedDict):
    """The policies for the nodes of a sweep, as of its submission.

    Attributes:
        by: The principal: the submitter, by the name that policies use.
        text: All policies, in Cedar.
        names: The name of each, in order.
        actions: Actions of nodes that policies name; nodes check no others.
    """

    by: str
    text: str
    names: list[str]
    actions: list[str]


class NodeLimits(TypedDict, total=False):
    """The limits of a sweep for one of its nodes; None is no limit."""

    usd: float | None
    tokens: int | None
    node_runs: int | None


class JudgingLimits(TypedDict, total=False):
    """The limits of a sweep for the cost of its judges; None is no limit."""

    usd: float | None


class Limits(NodeLimits, total=False):
    """The limits of a sweep; None is no limit. Durations are in seconds.

    Attributes:
        nodes: Limits of single nodes.
        judging: The limit of judges.
    """

    cell_timeout: float | None
    wall: float | None
    nodes: dict[str, NodeLimits]
    judging: JudgingLimits


# Pydantic, which reads requests, drops keys that a TypedDict lacks: here they are kept, so that they can be rejected.
for _shape in (NodeLimits, JudgingLimits, Limits):
    _shape.__pydantic_config__ = {"extra": "allow"}  # type: ignore[attr-defined]


class Best(TypedDict, total=False):
    """The goal by which a sweep chooses its best combination."""

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
    """A finding of the check of cases before anything ran.

    Attributes:
        cases: The number of cases that it concerns.
        sentence: Its effect on the figures.
        key: The key of the sweep file, the case, the evaluator or the command that settles it.
    """

    kind: DataFindingKind
    cases: int
    sentence: str
    key: str


class StoredAddition(TypedDict):
    """A row that was added to a sweep; see `Addition`."""

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
    """The stop of a combination: the person, the reason and the time."""

    by: str
    reason: str
    at: float


class StoredExtension(TypedDict):
    """An extension of a sweep that counts as planned, not as exploratory.

    Attributes:
        at: When, in seconds since the epoch.
        by: The person who added it.
        reason: The reason of that person.
        cases: How many cases were added.
        first_case: The number of the first of them.
        repeats: The numbers of repeats before and after.
        combinations: The numbers of the added combinations.
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
        fingerprints: The fingerprints of its evaluators, by name and in their order.
        code: The parts on which they depend.
    """

    fingerprints: dict[str, str]
    code: StoredCode


class StoredSpec(TypedDict, total=False):
    """The settings with which a sweep was submitted.

    Attributes:
        cases: A file or import path, or "inline".
        vary: "all" or variants by node, as in the sweep file, each with its parameters. A grid point has `levels`,
            pairs of parameter and level, instead (`factors_of` reads them).
        fork_variants: Variants by node in the same form, which people made for forks.
        evaluate: Evaluators, each with its options.
        baseline_row: The combination that is the baseline.
        data: The findings of the check of its cases.
        texts: The texts of files that parameters name, by their SHA-256.
        sample: How many of its cases were drawn at random.
        approval: The modes that apply, from the sweep or its workflow; missing if only nodes ask.
        served: Whether a server runs it itself.
        copied_from: The sweep beside which it was copied under another name.
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
    """Return the code that gave the scores of a sweep; None if it is unknown."""
    stored = spec.get("evaluators")
    return None if stored is None else read_evaluators(stored)


def read_evaluators(stored: StoredEvaluators) -> RecordedCode:
    """Return the code of evaluators from the form that `stored_evaluators` returned."""
    return RecordedCode({EVALUATORS: stored["fingerprints"]}, stored["code"])


def stored_evaluators(recorded: RecordedCode) -> StoredEvaluators:
    """Return the code of evaluators as it is stored."""
    return {"fingerprints": dict(recorded.fingerprints[EVALUATORS]), "code": recorded.code or stored_code({})}


def recorded_tools(spec: StoredSpec) -> Mapping[str, Mapping[str, str]]:
    """Return the recorded digests of tools by server and tool; servers that were out of reach have none."""
    return spec["environment"].get("tools", {}) if "environment" in spec else {}
