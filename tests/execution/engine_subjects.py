"""Build the workflows with which the contract of the engine port is tested: the same shapes for each engine."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Protocol, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy, Send

from tests.execution.fanning import FanEngine
from wtb.authoring.code.import_paths import as_workflow
from wtb.authoring.context.surroundings import Surroundings
from wtb.authoring.nodes import Backoff
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.serialization.codec import decode
from wtb.core.values import Value
from wtb.execution.engine.protocol import Result, Task
from wtb.integrations.langgraph.nodes import GraphVariant
from wtb.integrations.langgraph.workflow import GraphWorkflow

Fn = Callable[[Any], Any]


class State(TypedDict, total=False):
    """Of all shapes. `words` has a reducer, the others have none."""

    x: int
    y: int
    any: Any
    items: list[int]
    words: Annotated[list[str], operator.add]


class Subject(Protocol):
    """Makes workflows over `State` for one engine. Nodes are functions of the state alone, as all engines take them."""

    @property
    def name(self) -> str: ...

    def line(self, *nodes: Fn) -> Workflow:
        """a -> b -> c ..., as many as there are functions."""

    def diamond(self, a: Fn, b: Fn, c: Fn, d: Fn) -> Workflow:
        """a -> {b, c} -> d, which waits for both."""

    def branch(self, a: Fn, by: Callable[[Any], str], b: Fn, c: Fn) -> Workflow:
        """a -> b or c: `by` returns "b" or "c" for the state after a."""

    def loop(self, a: Fn, continues: Callable[[Any], bool]) -> Workflow:
        """a -> a, as long as `continues` is true for the state after it."""

    def retried(self, a: Fn, attempts: int) -> Workflow:
        """a alone, with at most this many attempts."""

    def add_variant(self, workflow: Workflow, node: str, name: str, fn: Fn) -> None: ...


class Sender(Protocol):
    """Makes the additional shape of an engine that fans out."""

    @property
    def name(self) -> str: ...

    def sends(self, a: Fn, work: Fn, d: Fn) -> Workflow:
        """a -> work, once for each of `items` after a, with x as the item -> d."""


class Native:
    """Workflows as WTB has them."""

    name = "native"

    def line(self, *nodes: Fn) -> Workflow:
        wf = self._of(*nodes)
        names = list(wf.nodes)
        for before, after in zip(names, [*names[1:], END], strict=True):
            wf.edge(before, after)
        return wf

    def diamond(self, a: Fn, b: Fn, c: Fn, d: Fn) -> Workflow:
        wf = self._of(a, b, c, d)
        wf.edge("a", "b")
        wf.edge("a", "c")
        wf.edge(["b", "c"], "d")
        wf.edge("d", END)
        return wf

    def branch(self, a: Fn, by: Callable[[Any], str], b: Fn, c: Fn) -> Workflow:
        wf = self._of(a, b, c)
        wf.branch("a", {"b": "b", "c": "c"}, by=by)
        wf.edge("b", END)
        wf.edge("c", END)
        return wf

    def loop(self, a: Fn, continues: Callable[[Any], bool]) -> Workflow:
        wf = self._of(a)
        wf.edge("a", "a", when=continues)
        wf.edge("a", END, default=True)
        return wf

    def retried(self, a: Fn, attempts: int) -> Workflow:
        wf = Workflow("shape", state=State)
        wf.entry(wf.node(a, name="a", retries=attempts - 1, backoff=Backoff(initial=0)))
        wf.edge("a", END)
        return wf

    def add_variant(self, workflow: Workflow, node: str, name: str, fn: Fn) -> None:
        workflow[node].variant(name, fn)

    def _of(self, *nodes: Fn) -> Workflow:
        wf = Workflow("shape", state=State)
        for name, fn in zip("abcd", nodes, strict=False):
            wf.node(fn, name=name)
        wf.entry("a")
        return wf


class SendEngine(FanEngine):
    """Gives each task its item as x."""

    def run(self, task: Task, surroundings: Surroundings) -> Result:
        if task.node != "work":
            return super().run(task, surroundings)
        number = Value.of(decode(task.state["items"].data)[task.number])
        return super().run(replace(task, state={**task.state, "x": number}), surroundings)


class Sending(Workflow):
    engine: ClassVar[str] = f"{__name__}:SendEngine"


class Fanned:
    """The engine that the tests of the runner fan out with."""

    name = "fanned"

    def sends(self, a: Fn, work: Fn, d: Fn) -> Workflow:
        wf = Sending("sends", state=State)
        for name, fn in (("a", a), ("work", work), ("d", d)):
            wf.node(fn, name=name)
        wf.entry("a")
        wf.edge("a", "work")
        wf.edge("work", "d")
        wf.edge("d", END)
        return wf


class LangGraph:
    """Workflows as LangGraph has them."""

    name = "langgraph"

    def line(self, *nodes: Fn) -> Workflow:
        graph = self._of(*nodes)
        names = list(graph.nodes)
        for before, after in itertools.pairwise(names):
            graph.add_edge(before, after)
        return as_workflow(graph, "shape")

    def diamond(self, a: Fn, b: Fn, c: Fn, d: Fn) -> Workflow:
        graph = self._of(a, b, c, d)
        graph.add_edge("a", "b")
        graph.add_edge("a", "c")
        graph.add_edge(["b", "c"], "d")
        return as_workflow(graph, "shape")

    def branch(self, a: Fn, by: Callable[[Any], str], b: Fn, c: Fn) -> Workflow:
        graph = self._of(a, b, c)
        graph.add_conditional_edges("a", by, ["b", "c"])
        return as_workflow(graph, "shape")

    def loop(self, a: Fn, continues: Callable[[Any], bool]) -> Workflow:
        graph = self._of(a)
        graph.add_conditional_edges("a", continues, {True: "a", False: END})
        return as_workflow(graph, "shape")

    def sends(self, a: Fn, work: Fn, d: Fn) -> Workflow:
        graph: Any = StateGraph(State)
        for name, fn in (("a", a), ("work", work), ("d", d)):
            graph.add_node(name, fn)
        graph.add_edge(START, "a")
        graph.add_conditional_edges(
            "a", lambda state: [Send("work", {"x": number}) for number in state["items"]], ["work"]
        )
        graph.add_edge("work", "d")
        return as_workflow(graph, "sends")

    def retried(self, a: Fn, attempts: int) -> Workflow:
        graph: Any = StateGraph(State)
        graph.add_node("a", a, retry_policy=RetryPolicy(max_attempts=attempts, initial_interval=0, jitter=False))
        graph.add_edge(START, "a")
        return as_workflow(graph, "shape")

    def add_variant(self, workflow: Workflow, node: str, name: str, fn: Fn) -> None:
        assert isinstance(workflow, GraphWorkflow)
        assert workflow.add_variant(GraphVariant(node, name, fn, {})) == []

    def _of(self, *nodes: Fn) -> Any:
        graph: Any = StateGraph(State)
        for name, fn in zip("abcd", nodes, strict=False):
            graph.add_node(name, fn)
        graph.add_edge(START, "a")
        return graph


# Every engine stands here with its shapes, and once more where it fans out: the whole contract is then tested with it.
SUBJECTS: Sequence[Subject] = (Native(), LangGraph())
SENDERS: Sequence[Sender] = (Fanned(), LangGraph())
