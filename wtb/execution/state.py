"""What a runner keeps in memory of a running sweep, and counts of its progress."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from wtb.core.classes.frozen import frozen
from wtb.core.stop import Disk, Stop
from wtb.core.tree.grouping import Choices, agreed, groups
from wtb.core.tree.run_order import mixed
from wtb.execution.attempts.provider_waits import ProviderWaits
from wtb.execution.engine.protocol import Root
from wtb.execution.execution import Execution
from wtb.execution.pauses.holds import Holds
from wtb.execution.pauses.memory_quota import SessionMemory
from wtb.execution.runtime.budgets import Budgets
from wtb.execution.runtime.code_drift import WrittenFiles
from wtb.execution.runtime.disk_space import NoRoom, Room
from wtb.execution.runtime.node_limits import Permits
from wtb.planning.binding import Bound
from wtb.store.database import Database


def ended_cells(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts as progress shows them: cells that were set aside count as failed."""
    return {"succeeded": counts.get("succeeded", 0), "failed": counts.get("failed", 0) + counts.get("set_aside", 0)}


class Progress:
    """How far a run is, for display; the database is the source of truth.

    Attributes:
        cells: How many cells the sweep has.
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
    """Whose rows a runner writes."""

    session_id: str
    id: str
    runner_id: str


@frozen
class Limits:
    """What may delay, refuse or stop the work on a sweep here."""

    stop: Stop
    budgets: Budgets
    permits: Permits
    disk: Disk
    room: Room | NoRoom
    providers: ProviderWaits
    memory: SessionMemory


class Combinations:
    """Which variants the cells of a sweep choose.

    choices: for each combination, by number, the variant of each varied node. Rows may be added to the sweep later.
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
        """The combinations of an execution by the variants that they choose for its next nodes, in a mixed order."""
        if execution.choices is not None:
            return {tuple(execution.choices.get(node, self._default[node]) for node in nodes): []}
        if self._columns.keys().isdisjoint(nodes):
            return {tuple(map(self._default.__getitem__, nodes)): execution.combinations}
        found = groups(nodes, execution.combinations, self.variant_of)
        if len(found) == 1:
            return {**found}
        place = (self._bound.spec.seed, execution.case.id, execution.repeat, execution.at.step, *nodes)
        return dict(mixed(found.items(), *place))

    def has_stopped(self, execution: Execution) -> bool:
        """Return whether an execution stands for a combination that somebody stopped."""
        return bool(self.stopped) and not self.stopped.isdisjoint(execution.combinations)

    def variant_of(self, combination: int, node: str) -> str:
        """The variant that a combination chooses for a node; a node that is not varied has its default."""
        column = self._columns.get(node)
        return self._default[node] if column is None else column[combination]

    def lacks(self, choices: Mapping[str, str], nodes: Iterable[str]) -> list[str]:
        """Return the variants that a fork chooses for nodes and that the code has not, each as NODE=VARIANT."""
        known = self._bound.workflow.nodes
        chosen = [(node, choices[node]) for node in nodes if node in choices]
        return [f"{node}={name}" for node, name in chosen if node in known and name not in known[node].variants]

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
    """What the nodes of a sweep are held against.

    Attributes:
        by: Who submitted it.
        text: The policies, as node processes read them.
    """

    by: str
    text: str


@frozen
class RunningSweep:
    """A sweep as its runner sees it: what is fixed, what limits the work, and how far it is.

    written: files among its code that nodes write. single: it is one execution that a person started.
    policies: those that it recorded; None without any.
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
        """Whether people answer in place of models: in single executions, unless the run says otherwise."""
        return (self.bound.spec.run.mode or ("interactive" if self.single else "autonomous")) == "interactive"

    def trace_of(self, execution: Execution) -> str:
        """What tells the trace of an execution from others; `wtb.core.telemetry.trace_ids` makes its id of it."""
        alone = not self.bound.spec.run.share and execution.combinations
        combination = execution.combinations[0] if alone else None
        return f"{self.ids.id} {execution.case.number} {execution.repeat} {combination}"

    def root(self, execution: Execution) -> Root:
        """What an engine knows of an execution, besides its state."""
        return Root(execution.case.view(), execution.repeat, self.bound.params, self.bound.spec.seed)
