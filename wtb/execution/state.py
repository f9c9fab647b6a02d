"""The state of a running sweep in the memory of its runner: progress, and facts that runs of one node share."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property

from wtb.authoring.code.fingerprint import fingerprints
from wtb.authoring.nodes import Rules
from wtb.core.frozen import frozen
from wtb.core.stop import Disk, Stop
from wtb.core.tree.run_order import Choices, agreed, groups, mixed
from wtb.execution.engine.protocol import Root
from wtb.execution.execution import Execution
from wtb.execution.holds import Holds
from wtb.execution.runtime.budgets import Budgets
from wtb.execution.runtime.code_drift import WrittenFiles
from wtb.execution.runtime.quotas import Permits, SessionMemory
from wtb.execution.waits import NoRoom, ProviderWaits, Room
from wtb.planning.binding import Bound
from wtb.store.database import Database


def ended_cells(counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts as progress shows them: cells that were set aside count as failed."""
    return {"succeeded": counts.get("succeeded", 0), "failed": counts.get("failed", 0) + counts.get("set_aside", 0)}


class Progress:
    """The progress of a run, for display; the database is the source of truth.

    Attributes:
        cells: The number of cells of the sweep.
        sweep_id: The sweep.
        succeeded: Cells that have succeeded.
        failed: Cells that have ended otherwise.
        node_runs: Node runs by this run.
        usd: US dollars that they spent.
    """

    def __init__(self, cells: int, sweep_id: str) -> None:
        self.cells = cells
        self.sweep_id = sweep_id
        self.succeeded = 0
        self.failed = 0
        self.node_runs = 0
        self.usd = 0.0
        self.notices: list[str] = []
        self._lock = threading.Lock()

    def add(self, *, succeeded: int = 0, failed: int = 0, node_runs: int = 0, usd: float = 0.0) -> None:
        with self._lock:
            self.succeeded += succeeded
            self.failed += failed
            self.node_runs += node_runs
            self.usd += usd

    def add_notice(self, text: str) -> None:
        """Add a message for people, shown while the sweep runs."""
        with self._lock:
            self.notices.append(text)

    def take_notices(self) -> list[str]:
        """Return and remove the notices added since the last call."""
        with self._lock:
            notices, self.notices = self.notices, []
        return notices

    @property
    def done(self) -> int:
        return self.succeeded + self.failed


@frozen
class SweepIds:
    """The session, the sweep and the runner to which the rows of a runner belong."""

    session_id: str
    id: str
    runner_id: str


@frozen
class Limits:
    """Everything that can delay, reject or stop work on a sweep in this process."""

    stop: Stop
    budgets: Budgets
    permits: Permits
    disk: Disk
    room: Room | NoRoom
    providers: ProviderWaits
    memory: SessionMemory


class Combinations:
    """The variants that the cells of a sweep choose.

    Args:
        bound: The sweep.
        choices: For each combination, by number, the variant of each varied node.
    """

    def __init__(self, bound: Bound, choices: Sequence[Mapping[str, str]]) -> None:
        self._bound = bound
        self._varied = tuple(bound.vary)
        self._default = {node.name: node.default for node in bound.workflow.nodes.values()}
        self._columns = {node: [choice[node] for choice in choices] for node in self._varied}
        self._count = len(choices)
        self.stopped: frozenset[int] = frozenset()  # that somebody stopped, up to date by a second

    def __len__(self) -> int:
        return self._count

    def grouped(self, execution: Execution, nodes: Sequence[str]) -> dict[Choices, Sequence[int]]:
        """Group the combinations of an execution by their variants of its next nodes, in a mixed order."""
        if execution.choices is not None:
            return {tuple(execution.choices.get(node, self._default[node]) for node in nodes): []}
        # The usual step: no next node is varied, so there is no need to look at each of up to thousands of cells.
        if self._columns.keys().isdisjoint(nodes):
            return {tuple(map(self._default.__getitem__, nodes)): execution.combinations}
        groups_by_choices = groups(nodes, execution.combinations, self.variant_of)
        if len(groups_by_choices) == 1:
            return {**groups_by_choices}
        # Mixed, so that no variant always runs first, and by the seed, so that a repeat of the sweep has the same
        # order.
        place = (self._bound.spec.seed, execution.case.id, execution.repeat, execution.at.step, *nodes)
        return dict(mixed(groups_by_choices.items(), *place))

    def has_stopped(self, execution: Execution) -> bool:
        """Return whether an execution stands for a combination that somebody stopped."""
        return bool(self.stopped) and not self.stopped.isdisjoint(execution.combinations)

    def variant_of(self, combination: int, node: str) -> str:
        """Return the variant that a combination chooses for a node; a node that is not varied has its default."""
        column = self._columns.get(node)
        return self._default[node] if column is None else column[combination]

    def lacks(self, choices: Mapping[str, str], nodes: Iterable[str]) -> list[str]:
        """Return the chosen variants of a fork that the code does not have, each as NODE=VARIANT."""
        workflow_nodes = self._bound.workflow.nodes
        next_choices = [(node, choices[node]) for node in nodes if node in choices]
        return [
            f"{node}={name}"
            for node, name in next_choices
            if node in workflow_nodes and name not in workflow_nodes[node].variants
        ]

    def agreed(self, execution: Execution) -> Mapping[str, str]:
        """Return the variants that all cells of an execution choose, by node."""
        if execution.choices is not None:
            return execution.choices
        numbers = execution.combinations[:1000]
        if not numbers:
            return {}
        return agreed([{node: self._columns[node][number] for node in self._varied} for number in numbers])


@frozen
class SweepPolicies:
    """The policies against which the nodes of a sweep are checked.

    Attributes:
        by: The user who submitted the sweep.
        text: The policies, as node processes read them.
    """

    by: str
    text: str


@frozen
class RunningSweep:
    """A sweep as its runner sees it: its code, its limits and its progress.

    Attributes:
        written: Files among its code that nodes write.
        single: Whether it is one execution that a person started.
        policies: The recorded policies, if there are any.
    """

    ids: SweepIds
    bound: Bound
    combinations: Combinations
    holds: Holds
    limits: Limits
    progress: Progress
    database: Database
    written: WrittenFiles
    single: bool = False
    policies: SweepPolicies | None = None

    @cached_property
    def interactive(self) -> bool:
        """True if people answer instead of models: in single executions, unless the run sets `mode`."""
        return (self.bound.spec.run.mode or ("interactive" if self.single else "autonomous")) == "interactive"

    def trace_of(self, execution: Execution) -> str:
        """Return the key of an execution's trace, from which `wtb.core.ids` derives its id."""
        alone = not self.bound.spec.run.share and execution.combinations
        combination = execution.combinations[0] if alone else None
        return f"{self.ids.id} {execution.case.number} {execution.repeat} {combination}"

    def root(self, execution: Execution) -> Root:
        """Return the facts about an execution that an engine needs besides its state."""
        return Root(execution.case.view(), execution.repeat, self.bound.params, self.bound.spec.seed)


@frozen(slots=True)
class NodePlan:
    """A node under a variant.

    Attributes:
        about: Node and variant, as fields of events.
        limited: Whether `limit` or `rate` of the node applies.
        free_hosts: Hosts that cost nothing.
        replaces: The default variant of the node, if this is another one.
        unknown_costs: Number of reports by reason for which the cost is unknown.
        allowed: Number of reported permissions, by action and policies.
    """

    node: str
    variant: str
    rules: Rules
    fingerprint: str
    about: Mapping[str, str]
    limited: bool
    free_hosts: Sequence[str] = ()
    replaces: str | None = None
    unknown_costs: Counter[tuple[str, str]] = field(default_factory=Counter, compare=False)
    allowed: Counter[tuple[str, ...]] = field(default_factory=Counter, compare=False)


class NodePlans:
    """The plans of a sweep, each made on first use."""

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        self._plans: dict[tuple[str, str], NodePlan] = {}

    def of(self, node: str, variant: str) -> NodePlan:
        plan = self._plans.get((node, variant))
        if plan is None:
            declared = self._bound.workflow.nodes[node]
            rules, about = declared.rules, {"node": node, "variant": variant}
            replaces = None if variant == declared.default else declared.default
            limited = rules.limit is not None or rules.rate is not None
            free = self._bound.spec.run.free_hosts
            plan = NodePlan(node, variant, rules, self._fingerprint(node, variant), about, limited, free, replaces)
            self._plans[node, variant] = plan
        return plan

    def _fingerprint(self, node: str, variant: str) -> str:
        """Return the fingerprint of a variant's code. The sweep has those that it varies; a fork may choose others."""
        fingerprint = self._bound.fingerprints.get(node, {}).get(variant)
        return fingerprint or fingerprints([self._bound.workflow.nodes[node]], {node: [variant]})[node][variant]
