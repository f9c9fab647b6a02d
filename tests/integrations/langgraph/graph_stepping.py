"""Step a LangGraph graph through WTB's engine without a database, and compare with LangGraph itself."""

from __future__ import annotations

import asyncio
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import BaseMessage
from langgraph.graph import START, StateGraph

from wtb.authoring.code.calling import Caller
from wtb.authoring.code.import_paths import as_workflow
from wtb.authoring.context.attempt_record import Allowance, CaseView
from wtb.authoring.nodes import Rules
from wtb.authoring.workflow import Workflow
from wtb.core.failures import Failure
from wtb.core.questions import Answer, Question
from wtb.core.serialization.codec import decode, encode
from wtb.core.tree.checkpoints import Position, is_hidden
from wtb.core.values import Value
from wtb.execution.engine.executor import Surroundings
from wtb.execution.engine.protocol import Joined, Result, Root, Task, begin, engine_of, join
from wtb.store.files.store import FileStore
from wtb.store.files.workspaces import Workspaces


class State(TypedDict, total=False):
    x: int
    y: str
    words: Annotated[list[str], operator.add]


def says(*words: str) -> Callable[[Any], dict[str, Any]]:
    return lambda state: {"words": list(words)}


def graph_of(state: Any, nodes: dict[str, Any], *edges: Any, **more: Any) -> StateGraph[Any]:
    """Build a graph from nodes by name and edges as pairs; a list of sources waits for all of them."""
    builder: StateGraph[Any] = StateGraph(state, **more)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for source, target in edges:
        builder.add_edge(source, target)
    return builder


def one_node(node: Any, state: Any = State, **rules: Any) -> StateGraph[Any]:
    """Build a graph of the node `a`, with these rules."""
    builder: StateGraph[Any] = StateGraph(state)
    return builder.add_node("a", node, **rules).add_edge(START, "a")


def with_branch(builder: StateGraph[Any], *branch: Any) -> StateGraph[Any]:
    return builder.add_conditional_edges(*branch)


ABC_REST = {"b": says("b"), "c": says("c")}

ABC = {"a": says("a"), **ABC_REST}

QUICK = {"initial_interval": 0.0, "jitter": False}


class Flaky:
    """A node that fails several times before it succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def __call__(self, state: Any) -> dict[str, Any]:
        if self.errors:
            raise self.errors.pop(0)
        return {"words": ["done"]}


@dataclass
class Stepped:
    """The result of stepping through a graph. hidden: with the engine's own keys."""

    state: dict[str, Any] = field(default_factory=dict)
    hidden: dict[str, Any] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)  # keys of tasks, with their failed attempts
    steps: list[tuple[str, ...]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    failure: Failure | None = None

    @property
    def failed(self) -> Failure:
        """The failure, which there must be."""
        assert self.failure is not None
        return self.failure

    @property
    def unknown_costs(self) -> list[Any]:
        return [reason for node_result in self.results for reason in node_result.record.unknown_costs]

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [call for node_result in self.results for call in node_result.record.calls]

    @property
    def events(self) -> list[tuple[str, dict[str, Any]]]:
        return [(kind, details) for node_result in self.results for kind, _, details in node_result.record.events]


class Stepping:
    """Runs every task of a step from a freshly encoded state, as a sweep does.

    answers: in the order of questions. edits: what a person changes in the state before a node runs.
    """

    def __init__(self, folder: Path) -> None:
        self.caller = Caller()
        self.surroundings = Surroundings(self.caller, None, Workspaces(FileStore(folder / "files"), folder / "work"))

    def __call__(
        self,
        graph: Any,
        inputs: Mapping[str, Any],
        *,
        case: str = "one",
        repeat: int = 0,
        params: Mapping[str, Any] | None = None,
        choose: Mapping[str, str] | None = None,
        answers: Sequence[Answer | Any] = (),
        edits: Mapping[str, Mapping[str, Any]] | None = None,
        allowance: Allowance | None = None,
    ) -> Stepped:
        workflow = graph if isinstance(graph, Workflow) else as_workflow(graph, "tests:graph")
        workflow.validate()
        engine, done, replies = engine_of(workflow), Stepped(), list(answers)
        state = {name: Value.of(value) for name, value in inputs.items()}
        root = Root(CaseView(case, (), {name: value.data for name, value in state.items()}), repeat, params or {})
        joined = begin(engine, state, root)
        while isinstance(joined, Joined):
            state, position = joined.after(state, joined.changed), joined.position
            if not position.next:
                break
            position = Position.read(json.loads(json.dumps(position.document())))
            done.steps.append(tuple(task.key for task in position.tasks))
            for node in position.next:
                state |= {name: Value.of(value) for name, value in (edits or {}).get(node, {}).items()}
            wrote = []
            for task in position.tasks:
                variant = (choose or {}).get(task.node, "default")
                variant_task = Task(
                    task.node, variant, state, position, replace(root, repeat=repeat),
                    number=task.number, key=task.key, allowance=allowance,
                    timeout=workflow.nodes[task.node].rules.timeout,
                )  # fmt: skip
                node_result = self._attempts(engine, workflow.nodes[task.node].rules, variant_task, done, replies)
                if node_result.failure is not None:
                    done.failure = node_result.failure
                    return done
                wrote.append((task.key, node_result.writes or {}))
            joined = join(engine, state, position, wrote, root)
        if isinstance(joined, Failure):
            done.failure = joined
            return done
        made_of = {name: decode(value.data) for name, value in state.items()}
        done.state = {name: value for name, value in made_of.items() if not is_hidden(name)}
        done.hidden = {name: value for name, value in made_of.items() if is_hidden(name)}
        return done

    def _attempts(self, engine: Any, rules: Rules, task: Task, done: Stepped, replies: list[Any]) -> Result:
        answers: dict[str, Answer] = {}
        questions: list[Question] = []
        attempt, failed = 1, 0
        while True:
            attempted = replace(task, attempt=attempt, failed=failed, answers=dict(answers), asked=tuple(questions))
            node_result = engine.run(attempted, self.surroundings)
            done.results.append(node_result)
            done.ran.append(task.key)
            if node_result.question is not None:
                done.questions.append(node_result.question)
                questions.append(node_result.question)
                reply = replies.pop(0)
                attempt += 1
                answers[node_result.question.key] = reply if isinstance(reply, Answer) else answer(reply)
            elif node_result.failure is None or node_result.failure.final or failed >= rules.retries:
                return node_result
            else:
                attempt, failed = attempt + 1, failed + 1


def answer(value: Any) -> Answer:
    return Answer("approve", value=encode(value).decode(), by="ann")


def alone(graph: Any, inputs: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Run a graph in LangGraph by `ainvoke`, which also runs sync nodes, and return its state."""
    compiled = graph.compile() if hasattr(graph, "compile") else graph
    return asyncio.run(compiled.ainvoke(dict(inputs), **more))


def same_as_alone(step: Callable[..., Stepped], graph: Any, inputs: Mapping[str, Any]) -> Stepped:
    """Step through a graph, and compare its last state with that of LangGraph."""
    done = step(graph, inputs)
    assert done.failure is None, done.failure
    assert plain(done.state) == plain(alone(graph, inputs))
    return done


def visible_state(graph: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the output keys of a graph: without private keys, and only those of its output schema."""
    channels = (graph.compile() if hasattr(graph, "compile") else graph).output_channels
    return {key: value for key, value in state.items() if key in channels}


def plain(value: Any) -> Any:
    """Return a value without the random ids that LangChain gives to messages."""
    if isinstance(value, BaseMessage):
        return type(value), value.text, getattr(value, "tool_calls", None), getattr(value, "tool_call_id", None)
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value
