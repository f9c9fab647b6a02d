"""The facts about a workflow of any kind that planning, submission, display and runners use; edges and branches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import field
from typing import Any, Final

from wtb.authoring.nodes import Node
from wtb.authoring.state_schema import Schema
from wtb.authoring.tools import Tool
from wtb.core.frozen import frozen
from wtb.core.questions import Approval
from wtb.core.values import Json, Params

END: Final = "__end__"


@frozen
class Edge:
    """An edge from all of `sources` (a join waits for each) to `target`, taken when `when(state)` is true.

    Unconditional edges are all followed. Of the conditional ones of a node the true one of highest priority
    is followed; when none is true, the one with `default`.
    """

    sources: tuple[str, ...]
    target: str
    when: Callable[[Any], Any] | None = None
    priority: int = 0
    default: bool = False


@frozen
class Branch:
    """A branch from `source` to `targets[by(state)]`, or to `default` if there is no such key."""

    source: str
    targets: Mapping[str, str]
    by: Callable[[Any], Any]
    default: str | None = None


_TASK_NUMBER = re.compile(r"\|[0-9]+\.")  # in keys of an inner graph that one step runs several times


@frozen
class WorkflowFacts:
    """The facts of a workflow, which its adapter gathers once: `Workflow.facts`.

    There are three adapters: native workflows, LangGraph graphs, and published workflows. Code that reads
    these facts works for all of them.

    Attributes:
        name: Its name in commands, reports and messages.
        source: The object that its import path must lead to; None for facts that were read from a description.
        version: Text that counts as part of the code.
        description: One line for people.
        metadata: Further facts that are shown with its runs.
        params: Defaults of `ctx.params`.
        resources: The factory of `ctx.resources`.
        max_steps: The number of steps that an execution may take.
        approval: When an execution waits for a person.
        schema: The keys of the state.
        input: The keys that a case must bring, if the workflow declares them.
        is_input_closed: Whether a case may bring keys of `input` only.
        state_key: If the state is a single value, its key.
        nodes: Its nodes by name, in order of declaration.
        composites: Further nodes, which exist once a sweep varies them, such as an inner graph.
        entries: Nodes that executions start from.
        starts: Nodes that an execution can be made to start from.
        edges: Its edges.
        branches: Its branches.
        sent_to: Nodes that one step may run several times, or not at all.
        is_limited: Whether somebody chose `max_steps`, so that it bounds loops.
        is_open: Whether the path depends on the state in more than `branches` and conditions.
        inner_graphs: Names of nodes that are graphs themselves and are stepped through.
        breakpoints: Places where executions always pause, as people write them.
        tools: Tools that nodes call, by name.
        versions: Functions that return the versions of tools, by server.
    """

    name: str
    source: Any
    version: str
    description: str
    metadata: Mapping[str, Json]
    params: Params
    resources: Callable[[], Any] | None
    max_steps: int
    approval: Approval
    schema: Schema
    input: Schema | None
    nodes: Mapping[str, Node]
    entries: Sequence[str]
    starts: Sequence[str]
    edges: Sequence[Edge]
    branches: Sequence[Branch]
    breakpoints: Sequence[str]
    tools: Mapping[str, Tool]
    versions: Mapping[str, Callable[[], Mapping[str, str]]]
    is_input_closed: bool = False
    state_key: str | None = None
    composites: Mapping[str, Node] = field(default_factory=dict)
    sent_to: Set[str] = frozenset()
    is_limited: bool = True
    is_open: bool = False
    inner_graphs: Sequence[str] = ()

    def varied(self, node: str) -> Node | None:
        """Look up a node that a sweep may vary. Returns None if there is none of that name."""
        return self.nodes.get(node) or self.composites.get(node)

    def within(self, key: str) -> str | None:
        """Translate a key of the state that belongs to an inner graph.

        Args:
            key: A key as the state has it, such as `sub|2.text` in the second of several runs of `sub` in one step.

        Returns:
            The key as the schema has it, such as `sub.text`; None if it belongs to no inner graph.
        """
        plain = _TASK_NUMBER.sub(".", key)
        is_inner = any(plain.startswith(f"{graph}.") for graph in self.inner_graphs)
        return plain if is_inner and plain in self.schema.keys else None
