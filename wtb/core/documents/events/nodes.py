"""Events of nodes, and of the questions that they ask."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.events.common import Event
from wtb.core.providers.faults import ProviderFault
from wtb.core.scoring.unknown_costs import UnknownCost


class NodeRunEnd(TypedDict):
    """How a node run ended: after which attempt, what it took in seconds and US dollars, and why it failed."""

    node: str
    variant: str
    attempt: int
    duration_s: float
    usd: NotRequired[float]
    error: NotRequired[str]
    task: NotRequired[str]


class Answer(TypedDict):
    """An answer, after how many seconds, and the executions that go on with it; keys: of the state, changed with it."""

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
    """A node was skipped, as its failure policy says."""

    kind: Literal["node_run.skipped"]
    data: NodeRunEnd


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
    """A node answered although a provider had failed a call, which it did not repeat."""

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
    """An attempt ended with the process that it shared, and is made again."""

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
    """A node reported how far it is."""

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
    """What the process of a node used: rss in bytes, cpu in percent of a core. shared: by other node runs, too."""

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
    """A node sent data to whoever follows."""

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
    """A person is asked."""

    kind: Literal["approval.asked"]
    data: ApprovalAskedData


class ApprovalAnswered(Event):
    """A question was answered."""

    kind: Literal["approval.answered"]
    data: Answer


class ApprovalExpired(Event):
    """The time of a question was up: its default answers it, or nobody."""

    kind: Literal["approval.expired"]
    data: Answer


class ApprovalWithdrawnData(TypedDict):
    """Of `approval.withdrawn`."""

    approval: str
    question: str


class ApprovalWithdrawn(Event):
    """A question is asked no more."""

    kind: Literal["approval.withdrawn"]
    data: ApprovalWithdrawnData


class CostUnknown(Event):
    """The cost of a variant of a node is not known, for a reason that is recorded at most a few times."""

    kind: Literal["cost.unknown"]
    data: UnknownCost


class NodeLog(Event):
    """A node logged a message: node, variant, message, level, and what the user gave beside."""

    kind: Literal["node.log"]
    data: dict[str, Any]
