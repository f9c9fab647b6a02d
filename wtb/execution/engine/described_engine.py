"""The engine of a workflow that this process knows by its description: node processes run it."""

from __future__ import annotations

from typing import NoReturn

from wtb.authoring.context.surroundings import Surroundings
from wtb.authoring.graph import Routes
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.tree.checkpoints import Position
from wtb.core.values import Values
from wtb.execution.engine.description import CodeDescription
from wtb.execution.engine.protocol import Joined, Root, Task, Writes


class DescribedEngine:
    """What a runner reads of an engine whose code is elsewhere."""

    def __init__(self, workflow: WorkflowFacts, description: CodeDescription) -> None:
        self.workflow = workflow
        self.begins_here = description["begins_here"]
        self._nodes = description["nodes"]
        self._entry = Routes(workflow).entry.next

    def is_async(self, node: str, variant: str) -> bool:
        return variant in self._nodes[node]["asynchronous"]

    def begin(self, state: Values, root: Root) -> Joined:
        return Joined({}, Position(0, self._entry))

    def run(self, task: Task, surroundings: Surroundings) -> NoReturn:
        raise AssertionError("nodes run in node processes")

    def awaited(self, task: Task, surroundings: Surroundings) -> NoReturn:
        raise AssertionError("nodes run in node processes")

    def join(self, state: Values, position: Position, writes: Writes, root: Root) -> NoReturn:
        raise AssertionError("steps are joined in node processes")
