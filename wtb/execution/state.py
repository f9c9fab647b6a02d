"""What a runner keeps in memory of a running sweep, and counts of its progress."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from wtb.authoring.code.fingerprint import fingerprints
from wtb.authoring.graph import queue_of
from wtb.core.stop import Disk, Stop
from wtb.core.tree.grouping import Choices, agreed, groups
from wtb.core.tree.run_order import mixed
from wtb.execution.engine.protocol import Root
from wtb.execution.execution import Execution
from wtb.execution.pauses.holds import Holds
from wtb.execution.runtime.budgets import Budgets
from wtb.execution.runtime.disk_space import NoRoom, Room
from wtb.execution.runtime.node_limits import Permits
from wtb.planning.binding import Bound
from wtb.store.database import Database


def ended_cells(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts as progress shows them: cells that were set aside count as failed."""
    return {"succeeded": counts.get("succeeded", 0), "failed": counts.get("failed", 0) + counts.get("set_aside", 0)}


class Progress:
    """Counts and notices for display; the database is the source of truth."""

    def __init__(self, cells: int) -> None:
        self.cells = cells
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


class RunningSweep:
    """A sweep as its runner sees it. choices: for each combination, by number, the variant of each varied node."""

    def __init__(
        self,
        *,
        id: str,
        session_id: str,
        runner_id: str,
        bound: Bound,
        choices: Sequence[Mapping[str, str]],
        budgets: Budgets,
        disk: Disk,
        stop: Stop,
        progress: Progress,
        database: Database,
        holds: Holds,
        room: Room | NoRoom,
        single: bool = False,
    ) -> None:
        self.id = id
        self.session_id = session_id
        self.runner_id = runner_id
        self.bound = bound
        self.budgets = budgets
        self.disk = disk
        self.stop = stop
        self.progress = progress
        self.database = database
        self.holds = holds
        self.room = room
        self.single = single
        self.permits = Permits(bound.workflow, stop, database, runner_id)
        self._place = {node: place for place, node in enumerate(bound.vary)}
        self._chosen = [tuple(choice[node] for node in bound.vary) for choice in choices]
        self._metrics: set[str] = set()
        self._more_fingerprints: dict[tuple[str, str], str] = {}
        self._default = {node.name: node.default for node in bound.workflow.nodes.values()}

    @property
    def interactive(self) -> bool:
        """Whether people answer in place of models: in single executions, unless the run says otherwise."""
        return (self.bound.spec.run.mode or ("interactive" if self.single else "autonomous")) == "interactive"

    def grouped(self, execution: Execution, nodes: Sequence[str]) -> dict[Choices, list[int]]:
        """The combinations of an execution by the variants that they choose for its next nodes, in a mixed order."""
        if execution.choices is None:
            found = groups(nodes, execution.combinations, self.variant_of)
            place = (self.bound.spec.seed, execution.case.id, execution.repeat, execution.at.step, *nodes)
            return dict(mixed(found.items(), *place)) if len(found) > 1 else found
        return {tuple(execution.choices.get(node, self._default[node]) for node in nodes): []}

    def variant_of(self, combination: int, node: str) -> str:
        """The variant that a combination chooses for a node; a node that is not varied has its default."""
        place = self._place.get(node)
        return self._default[node] if place is None else self._chosen[combination][place]

    def fingerprint(self, node: str, variant: str) -> str:
        """Of the code of a variant. The sweep knows those that it varies; a fork by a person may take others."""
        known = self.bound.fingerprints.get(node, {}).get(variant) or self._more_fingerprints.get((node, variant))
        if known is None:
            known = fingerprints([self.bound.workflow.nodes[node]], {node: [variant]})[node][variant]
            self._more_fingerprints[node, variant] = known
        return known

    def root(self, execution: Execution) -> Root:
        """What an engine knows of an execution, besides its state."""
        spec = self.bound.spec
        return Root(execution.case.view(), execution.repeat, self.bound.params, spec.seed)

    def queue_of(self, nodes: Sequence[str]) -> str | None:
        """The queue of a step: that of its first node that names one."""
        return queue_of(self.bound.workflow, nodes)

    def describe(self, execution: Execution) -> dict[str, Any]:
        """Describe an execution for people: its sweep, its case, and the variants that all its cells choose."""
        chosen = [dict(zip(self._place, self._chosen[number], strict=True)) for number in execution.combinations[:1000]]
        if execution.choices is not None:
            chosen = [dict(execution.choices)]
        return {
            "execution": execution.id,
            "queue": execution.queue,
            "sweep": self.bound.spec.sweep,
            "case": execution.case.id,
            "choices": agreed(chosen),
        }

    def is_new_metric(self, name: str) -> bool:
        """Whether a metric appears for the first time in this process. A second True, in a race, does no harm."""
        if name in self._metrics:
            return False
        self._metrics.add(name)
        return True
