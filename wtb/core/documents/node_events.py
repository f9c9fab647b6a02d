"""Events of nodes, and of their questions."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.shared_types import Event
from wtb.core.provider_faults import ProviderFault
from wtb.core.scoring.unknown_costs import UnknownCost
from wtb.core.values import Json


class NodeRunEnd(TypedDict):
    """The end of a node run.

    Attributes:
        visit: How often the execution had been at the node before; not in logs of older versions.
        attempt: The number of its last attempt.
        duration_s: Of this attempt.
        usd: Of this attempt.
        error: Why it failed.
        writes: Key of the state -> digest of the value that it wrote.
        values: The same with the values, on request.
    """

    node: str
    variant: str
    visit: NotRequired[int]
    attempt: int
    duration_s: float
    usd: NotRequired[float]
    error: NotRequired[str]
    task: NotRequired[str]
    writes: NotRequired[dict[str, str]]
    values: NotRequired[dict[str, Json]]


class Answer(TypedDict):
    """An answer, its latency in seconds, and the executions that continue; `keys` are the changed keys of the state."""

    approval: str
    kind: str
    node: str
    by: str | None
    action: str
    choice: str | None
    feedback: str | None
    value: Any
    keys: list[str]
    latency_s: float
    executions: int
    woken: list[str]


class NodeRunStartedData(TypedDict):
    """Of `node_run.started`."""

    node: str
    variant: str
    task: NotRequired[str]
    visit: NotRequired[int]
    attempt: NotRequired[int]


class NodeRunStarted(Event):
    """A node began."""

    kind: Literal["node_run.started"]
    data: NodeRunStartedData


class NodeRunSucceeded(Event):
    """A node succeeded."""

    kind: Literal["node_run.succeeded"]
    data: NodeRunEnd


class NodeRunFailed(Event):
    """A node failed for good."""

    kind: Literal["node_run.failed"]
    data: NodeRunEnd


class NodeRunSkipped(Event):
    """A node was skipped, according to its failure policy."""

    kind: Literal["node_run.skipped"]
    data: NodeRunEnd


class VariantAppliedData(TypedDict):
    """Of `variant.applied`. replaces: The default variant of the node."""

    node: str
    variant: str
    replaces: str
    task: NotRequired[str]


class VariantApplied(Event):
    """An execution reaches a node for the first time, under another variant than its default."""

    kind: Literal["variant.applied"]
    data: VariantAppliedData


class ModelCalledData(TypedDict):
    """Of `model.called`.

    Attributes:
        model: None if the call names none.
        cached: How many tokens of the prompt the provider read from its cache, if that is known.
        error: Why the call failed.
    """

    node: str
    variant: str
    task: NotRequired[str]
    node_run: str
    attempt: int
    model: str | None
    tokens_in: int
    tokens_out: int
    usd: float
    duration_s: float | None
    cached: NotRequired[int]
    error: NotRequired[str]


class ModelCalled(Event):
    """An attempt called a model."""

    kind: Literal["model.called"]
    data: ModelCalledData


class ToolCalledData(TypedDict):
    """Of `tool.called`.

    Attributes:
        number: Which call of its node run it is, of a tool that the workflow declares.
        tokens_in, tokens_out, usd: Of a tool that the workflow does not declare.
        error: Why the call failed.
        again: Present and true if a rollback was undone, which made the call again.
        arguments, result: On request, of a tool that the workflow declares.
    """

    node: str
    variant: str
    task: NotRequired[str]
    node_run: str
    attempt: int
    tool: str
    number: NotRequired[int]
    duration_s: float | None
    tokens_in: NotRequired[int]
    tokens_out: NotRequired[int]
    usd: NotRequired[float]
    cached: NotRequired[int]
    error: NotRequired[str]
    again: NotRequired[bool]
    arguments: NotRequired[Any]
    result: NotRequired[Any]


class ToolCalled(Event):
    """An attempt called a tool."""

    kind: Literal["tool.called"]
    data: ToolCalledData


class ToolReversedData(TypedDict):
    """Of `tool.reversed`. node_run, attempt, number: The call, as its `tool.called` has them."""

    node: str
    variant: str
    node_run: str
    attempt: int
    tool: str
    number: int
    duration_s: float


class ToolReversed(Event):
    """A rollback undid a call of a tool by its reverse."""

    kind: Literal["tool.reversed"]
    data: ToolReversedData


class AttemptFailedData(TypedDict):
    """Of `attempt.failed`."""

    node: str
    variant: str
    attempt: int
    of: int
    error: str
    task: NotRequired[str]


class AttemptFailed(Event):
    """An attempt failed, and another one follows."""

    kind: Literal["attempt.failed"]
    data: AttemptFailedData


class AttemptPostponedData(TypedDict):
    """Of `attempt.postponed`. wait_s: seconds until the next attempt."""

    node: str
    variant: str
    attempt: int
    fault: ProviderFault
    wait_s: float
    error: str
    task: NotRequired[str]


class AttemptPostponed(Event):
    """A provider failed an attempt, and the node run waits for it."""

    kind: Literal["attempt.postponed"]
    data: AttemptPostponedData


class AnsweredAfterFailureData(TypedDict):
    """Of `node.answered_after_failure`. calls: how many calls failed. message: how the first of them did."""

    node: str
    variant: str
    calls: int
    message: str
    level: str
    task: NotRequired[str]


class AnsweredAfterFailure(Event):
    """A node succeeded although a provider had failed a call, which it did not repeat."""

    kind: Literal["node.answered_after_failure"]
    data: AnsweredAfterFailureData


class AttemptLostData(TypedDict):
    """Of `attempt.lost`."""

    node: str
    variant: str
    attempt: int
    error: str
    task: NotRequired[str]


class AttemptLost(Event):
    """An attempt ended with the process that it shared, and is repeated."""

    kind: Literal["attempt.lost"]
    data: AttemptLostData


class NodeProgressData(TypedDict):
    """Of `node.progress`."""

    node: str
    variant: str
    task: NotRequired[str]
    done: float
    total: float | None
    note: str | None


class NodeProgress(Event):
    """A node reported its progress."""

    kind: Literal["node.progress"]
    data: NodeProgressData


class NodeMetricData(TypedDict):
    """Of `node.metric`."""

    node: str
    variant: str
    node_run: str
    task: NotRequired[str]
    name: str
    value: float
    step: NotRequired[float | None]


class NodeMetric(Event):
    """A node reported a value of a series."""

    kind: Literal["node.metric"]
    data: NodeMetricData


class NodeSampleData(TypedDict):
    """Of `node.sample`."""

    node: str
    variant: str
    node_run: str
    task: NotRequired[str]
    rss: float
    cpu: float
    files: float
    processes: float
    shared: NotRequired[bool]


class NodeSample(Event):
    """A sample of a node's process: `rss` in bytes, `cpu` in percent of a core; `shared` with other node runs."""

    kind: Literal["node.sample"]
    data: NodeSampleData


class NodeStreamData(TypedDict):
    """Of `node.stream`."""

    node: str
    variant: str
    task: NotRequired[str]
    name: str
    data: Any


class NodeStream(Event):
    """A node sent data to followers."""

    kind: Literal["node.stream"]
    data: NodeStreamData


class ApprovalAskedData(TypedDict):
    """Of `approval.asked`."""

    approval: str
    kind: str
    node: str
    question: str
    timeout_s: float | None


class ApprovalAsked(Event):
    """A person was asked."""

    kind: Literal["approval.asked"]
    data: ApprovalAskedData


class ApprovalAnswered(Event):
    """A question was answered."""

    kind: Literal["approval.answered"]
    data: Answer


class ApprovalExpired(Event):
    """The timeout of a question was over: its default counts, or it has no answer."""

    kind: Literal["approval.expired"]
    data: Answer


class ApprovalWithdrawnData(TypedDict):
    """Of `approval.withdrawn`."""

    approval: str
    question: str


class ApprovalWithdrawn(Event):
    """A question was withdrawn."""

    kind: Literal["approval.withdrawn"]
    data: ApprovalWithdrawnData


class CostUnknown(Event):
    """The cost of a variant of a node is unknown, for a reason that is recorded at most a few times."""

    kind: Literal["cost.unknown"]
    data: UnknownCost


class NodeLog(Event):
    """A node logged a message: node, variant, message, level, and the user's own fields."""

    kind: Literal["node.log"]
    data: dict[str, Json]
