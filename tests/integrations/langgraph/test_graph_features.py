"""Routing and state: WTB, which runs a graph task by task, gives the same results as LangGraph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langgraph.channels import BinaryOperatorAggregate, DeltaChannel, EphemeralValue, Topic
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import ParentCommand
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.managed import IsLastStep, RemainingSteps
from langgraph.runtime import Runtime
from langgraph.types import Command, Overwrite, RetryPolicy, Send, interrupt
from pydantic import BaseModel

from tests.integrations.langgraph.graph_stepping import (
    ABC,
    ABC_REST,
    QUICK,
    Flaky,
    State,
    Stepped,
    alone,
    graph_of,
    one_node,
    same_as_alone,
    says,
    visible_state,
    with_branch,
)
from tests.support.prose import sentence
from wtb.authoring.code.import_paths import as_workflow
from wtb.authoring.context.attempt_record import CaseView
from wtb.authoring.graph import reachable, successors
from wtb.core.serialization.codec import decode
from wtb.core.tree.checkpoints import NodeTask, Position
from wtb.core.values import Value
from wtb.execution.engine.protocol import Joined, Root, Task, begin, engine_of, join
from wtb.integrations.langgraph import variants
from wtb.integrations.langgraph.frames import Branch, Frame, path_to
from wtb.integrations.langgraph.nodes import GraphNode
from wtb.planning.estimate import estimate

Step = Callable[..., Stepped]


async def slowly(state: Any) -> str:
    return "b"


# Where a step leads


def routings() -> dict[str, StateGraph[Any]]:
    def after_a(*branch: Any, edges: Sequence[Any] = (("b", "c"),)) -> StateGraph[Any]:
        return with_branch(graph_of(State, ABC, (START, "a"), *edges), "a", *branch)

    def sends(state: Any) -> list[Any]:
        return [Send("b", {"x": 1}), Send("b", {"x": 2}), "c"]

    entry = graph_of(State, ABC, ("b", "c"))
    entry.add_conditional_edges(START, lambda state: ["a", "b"] if state["x"] == 0 else "c")
    sent = graph_of(State, {"a": says("a"), "b": lambda state: {"words": [f"b{state['n']}"]}})
    sent.add_conditional_edges(START, lambda state: [Send("b", {"n": n}) for n in range(3)], ["b"])
    into = {"a": says("a"), "sub": with_branch(graph_of(State, ABC), START, slowly).compile()}
    later = {**ABC, "d": says("d")}
    return {
        "to one": after_a(lambda state: "b"),
        "to several": after_a(lambda state: ["b", "c"]),
        "to the end": after_a(lambda state: END),
        "to the end by a list": after_a(lambda state: [END, "c"]),
        "to nothing": after_a(lambda state: []),
        "by a map": after_a(lambda state: True, {True: "b", False: END}),
        "by a map, to several": after_a(lambda state: ["one", "two"], {"one": "b", "two": "c"}),
        "by a list": after_a(lambda state: "c", ["b", "c"]),
        "by a runnable": after_a(RunnableLambda(lambda state: "c", name="pick")),
        "by an async function": after_a(slowly),
        "by sending": after_a(sends),
        "twice": with_branch(after_a(lambda state: "b"), "a", lambda_named("again", "c")),
        "to what the edges lead to as well": after_a(lambda state: "c", edges=[("a", "b")]),
        "from the entry": entry,
        "sent from the entry": sent,
        "from the entry by an async function": with_branch(graph_of(State, ABC), START, slowly),
        "into a graph whose entry is decided by an async function": graph_of(State, into, (START, "a"), ("a", "sub")),
        "and waits for both": graph_of(State, ABC, (START, "a"), (START, "b"), (["a", "b"], "c")),
        "and waits for one that is later": graph_of(
            State, later, (START, "a"), (START, "b"), ("b", "d"), (["a", "d"], "c")
        ),
    }


def lambda_named(name: str, target: str) -> Callable[[Any], str]:
    def path(state: Any) -> str:
        return target

    path.__name__ = name
    return path


@pytest.mark.parametrize("name", routings())
def test_a_step_leads_to_where_langgraph_leads(name: str, step: Step) -> None:
    graph = routings()[name]

    assert step(graph, {"x": 0}).state == alone(graph, {"x": 0})


# Commands and sends


class Inner(TypedDict, total=False):
    words: Annotated[list[str], operator.add]
    only: int


def commands() -> dict[str, StateGraph[Any]]:
    def by(command: Command[Any], **nodes: Any) -> StateGraph[Any]:
        return graph_of(State, {"a": lambda state: command, **ABC_REST, **nodes}, (START, "a"))

    def from_within(deep: bool, *edges: Any) -> StateGraph[Any]:
        """Build a graph in a graph (in a graph) whose first node commands the outer graph."""

        def leave(state: Any) -> Command[Any]:
            return Command(graph=Command.PARENT, goto="c", update={"words": ["left"]})

        inner = graph_of(Inner, {"first": says("first"), "leave": leave}, (START, "first"), ("first", "leave"))
        sub = inner.compile()
        if deep:
            sub = graph_of(Inner, {"mid": sub, "c": says("mid c")}, (START, "mid")).compile()
        return graph_of(State, {"a": says("a"), "sub": sub, **ABC_REST}, (START, "a"), ("a", "sub"), *edges)

    def own(state: Any) -> list[Any]:
        return [Command(goto="b", update={"words": ["one"]}), {"y": "two"}]

    class Update(BaseModel):
        y: str = "unset"
        words: list[str] = []

    sub = graph_of(Inner, {"in": lambda state: {"words": [f"in{state['only']}"]}}, (START, "in")).compile()
    to_sub = graph_of(State, {"sub": sub, "c": says("c")}, ("sub", "c"))
    to_sub.add_conditional_edges(START, lambda state: [Send("sub", {"only": n}) for n in (1, 2)], ["sub"])

    def typed(state: Any) -> Command[Any]:
        return Command(update=Update(y="set"))

    return {
        "to one": by(Command(goto="b", update={"words": ["a"], "y": "!"})),
        "to several": by(Command(goto=["b", "c"])),
        "to a send": by(Command(goto=Send("b", {"x": 7})), b=lambda state: {"words": [f"b{state['x']}"]}),
        "to sends and names": by(Command(goto=[Send("b", {}), "c", Send("b", {})])),
        "with pairs": by(Command(update=[("words", ["p"]), ("words", ["q"]), ("y", "r")], goto="b")),
        "with a model": one_node(typed),
        "with an edge as well": by(Command(goto="b")).add_edge("a", "c"),
        "and others in a list": graph_of(State, {"a": own, **ABC_REST}, (START, "a")),
        "for the graph around": from_within(False),
        "for the graph around, with an edge": from_within(False, ("sub", "b")),
        "for the graph around, two deep": from_within(True),
        "for the graph around, beside others": from_within(False, ("a", "b")),
        "sent to a graph": to_sub,
    }


@pytest.mark.parametrize("name", commands())
def test_a_command_does_what_it_does_in_langgraph(name: str, step: Step) -> None:
    graph = commands()[name]

    same_as_alone(step, graph, {"x": 0})


def test_a_command_for_a_graph_that_is_not_there_fails_and_says_so(step: Step) -> None:
    graph = graph_of(State, {"a": lambda state: Command(graph=Command.PARENT, goto="b"), **ABC_REST}, (START, "a"))

    with pytest.raises(ParentCommand):
        alone(graph, {"x": 0})
    failure = step(graph, {"x": 0}).failed
    assert sentence("no graph around it") in failure.message


def test_where_two_tasks_of_a_graph_leave_it_at_once_the_first_counts(step: Step) -> None:
    def leave(word: str) -> Any:
        return lambda state: Command(graph=Command.PARENT, goto="c", update={"words": [word]})

    sub = graph_of(State, {"a": leave("a"), "b": leave("b")}, (START, "a"), (START, "b")).compile()
    graph = graph_of(State, {"sub": sub, "c": says("c")}, (START, "sub"))

    assert step(graph, {"x": 0}).state == {"x": 0, "words": ["a", "c"]}


# Graphs within graphs


def nested() -> dict[str, Any]:
    class Other(TypedDict, total=False):
        text: str
        length: int

    other = graph_of(Other, {"measure": lambda state: {"length": len(state["text"])}}, (START, "measure")).compile()

    def asks(state: Any) -> dict[str, Any]:
        return {"x": other.invoke({"text": state["y"]})["length"]}

    async def asks_later(state: Any) -> dict[str, Any]:
        return {"x": (await other.ainvoke({"text": state["y"]}))["length"]}

    deepest = graph_of(Inner, {"in": lambda state: {"words": ["in"], "only": 3}}, (START, "in"))
    deepest.add_conditional_edges("in", lambda state: END if len(state["words"]) > 3 else "in")
    middle = graph_of(Inner, {"deepest": deepest.compile(), "after": says("after")}, (START, "deepest"))
    middle.add_edge("deepest", "after")
    around = graph_of(
        State, {"a": says("a"), "middle": middle.compile(), "c": says("c")}, (START, "a"), ("middle", "c")
    )
    around.add_conditional_edges("a", lambda state: ["middle", "c"])

    limited = graph_of(Inner, {"in": says("in")}, (START, "in"))
    limited.add_conditional_edges("in", lambda state: END if len(state["words"]) > 40 else "in")
    twice = graph_of(Inner, {"in": says("in")}, (START, "in"))
    out = graph_of(State, {"sub": twice.compile(), "c": says("c")}, (START, "sub"), ("sub", "c"))
    out.add_conditional_edges("c", lambda state: END if len(state["words"]) > 9 else "sub")
    narrow = graph_of(State, {"a": says("a")}, (START, "a"), input_schema=Inner, output_schema=Inner).compile()

    def mapped(name: str, **more: Any) -> Any:
        return graph_of(State, {"sub": graph_of(State, ABC, (START, "a"), ("a", "b")).compile(name=name, **more)},
                        (START, "sub"))  # fmt: skip

    return {
        "invoked by a node": one_node(asks),
        "awaited by a node": one_node(asks_later),
        "two deep, with a loop": around,
        "with a limit of its own": graph_of(
            State, {"sub": limited.compile().with_config(recursion_limit=100)}, (START, "sub")
        ),
        "visited again": out,
        "with its own input and output": graph_of(State, {"sub": narrow}, (START, "sub")),
        "with a name": mapped("named"),
        "that keeps no checkpoints": mapped("plain", checkpointer=False),
        "that keeps checkpoints": mapped("kept", checkpointer=True),
        "with tags": graph_of(State, {"sub": narrow.with_config(tags=["t"], metadata={"m": 1})}, (START, "sub")),
    }


@pytest.mark.parametrize("name", nested())
def test_a_graph_within_a_graph_gives_what_it_gives_in_langgraph(name: str, step: Step) -> None:
    graph = nested()[name]
    inputs = {"x": 0, "y": "four"}
    compiled = graph.compile(checkpointer=InMemorySaver()) if name == "that keeps checkpoints" else graph

    done = step(graph, inputs)

    assert done.failure is None
    assert done.state == alone(compiled, inputs, config={"configurable": {"thread_id": "1"}})


def test_interrupts_of_a_graph_within_a_graph_are_those_of_its_nodes() -> None:
    inner = graph_of(State, {"a": says("a"), "b": says("b")}, (START, "a"), ("a", "b")).compile(interrupt_after=["a"])
    graph = graph_of(State, {"sub": inner, "c": says("c")}, (START, "sub"), ("sub", "c"))

    workflow = as_workflow(graph.compile(interrupt_before=["sub"], interrupt_after=["sub", "c"]), "tests:graph")

    assert workflow.breakpoints == ("before sub.a", "after sub.b", "after c", "after sub.a")
    assert workflow.varied("sub") is not None
    assert workflow.breakpoints == ("before sub", "after sub", "after c")


def test_a_graph_within_a_graph_that_has_retries_is_tried_again_as_a_whole(step: Step) -> None:
    def graph() -> StateGraph[Any]:
        inner = graph_of(State, {"a": says("a"), "b": Flaky(ConnectionError())}, (START, "a"), ("a", "b"))
        builder: StateGraph[Any] = StateGraph(State)
        return builder.add_node("sub", inner.compile(), retry_policy=RetryPolicy(**QUICK)).add_edge(START, "sub")

    done = step(graph(), {"x": 0})

    assert done.state == alone(graph(), {"x": 0})
    assert done.ran == ["sub", "sub"]


def test_a_graph_within_a_graph_that_would_remember_its_last_visit_is_visited_once(step: Step) -> None:
    inner = one_node(says("a")).compile(checkpointer=True)
    graph = graph_of(State, {"sub": inner, "c": says("c")}, (START, "sub"), ("sub", "c"))
    looping = with_branch(graph, "c", lambda state: END if len(state["words"]) > 6 else "sub")

    failure = step(looping, {"x": 0}).failed

    assert sentence("graph {} was compiled with checkpointer=True", "'sub'") in failure.message


# State


def longest(left: str, right: str) -> str:
    return max(left, right, key=len)


def into(left: list[str], right: list[str]) -> list[str]:
    """A reducer that changes its argument."""
    left.extend(right)
    return left


def union(left: set[str], right: set[str]) -> set[str]:
    return left | right


def appended(state: list[str], writes: Any) -> list[str]:
    return [*state, *(word for write in writes for word in write)]


class Reduced(TypedDict, total=False):
    x: int
    best: Annotated[str, longest]
    grown: Annotated[list[str], into]
    tags: Annotated[set[str], union]
    counts: Annotated[dict[str, int], operator.or_]
    delta: Annotated[list[str], DeltaChannel(appended)]
    binop: Annotated[int, BinaryOperatorAggregate(int, operator.add)]
    topic: Annotated[list[str], Topic(str, accumulate=True)]
    last: Annotated[list[str], Topic(str)]
    brief: Annotated[int, EphemeralValue(int)]


def one_write(word: str) -> Callable[[Any], dict[str, Any]]:
    def write(state: Any) -> dict[str, Any]:
        return {
            "best": word, "grown": [word], "tags": {word}, "counts": {word: len(word)}, "delta": [word],
            "binop": len(word), "topic": word, "last": word,
        }  # fmt: skip

    return write


@dataclass
class Data:
    x: int
    words: Annotated[list[str], operator.add] = field(default_factory=list)
    y: str = "unset"


class Typed(BaseModel):
    x: int
    words: Annotated[list[str], operator.add] = []
    y: str = "unset"


class Managed(TypedDict, total=False):
    x: int
    last: IsLastStep
    left: RemainingSteps
    words: Annotated[list[str], operator.add]


class Private(TypedDict, total=False):
    secret: str


def states() -> dict[str, StateGraph[Any]]:
    def seen(state: Any) -> dict[str, Any]:
        return {"words": [type(state).__name__, str(state.x), state.y]}

    def overwrite(state: Any) -> dict[str, Any]:
        return {"words": Overwrite(["only"])}

    def hide(state: State) -> Private:
        return {"secret": "s"}

    def find(state: Private) -> dict[str, Any]:
        return {"words": [state["secret"], *sorted(state)]}

    def managed(state: Managed) -> dict[str, Any]:
        return {"words": [f"{state['last']} {state['left']}"]}

    several = {name: one_write(name * number) for number, name in enumerate("abc", 1)}
    write_again = lambda state: {**one_write("dddd")(state), "brief": 1}  # noqa: E731
    loop = one_node(managed, Managed)
    loop.add_conditional_edges("a", lambda state: END if len(state["words"]) > 2 else "a")
    deferred = graph_of(
        State, {"a": says("a"), "b": says("b"), "b2": says("b2")}, (START, "a"), ("a", "b"), ("b", "b2")
    )
    deferred.add_node("c", says("c"), defer=True)
    deferred.add_edge("a", "c")
    deferred.add_edge("b2", "c")
    narrow = graph_of(State, {"a": says("a")}, (START, "a"), input_schema=Private, output_schema=Inner)
    return {
        "reduced": graph_of(
            Reduced, {**several, "d": write_again}, (START, "a"), (START, "b"), (START, "c"), (["a", "b", "c"], "d")
        ),
        "overwritten": graph_of(State, {"a": says("a"), "b": overwrite}, (START, "a"), ("a", "b")),
        "a dataclass": graph_of(Data, {"a": seen, "b": lambda state: {"y": "b"}, "c": seen},
                                (START, "a"), ("a", "b"), ("b", "c")),
        "a model": graph_of(Typed, {"a": seen, "b": lambda state: Typed(x=3, y="b"), "c": seen},
                            (START, "a"), ("a", "b"), ("b", "c")),
        "managed": loop,
        "private": graph_of(State, {"a": hide, "b": find}, (START, "a"), ("a", "b")),
        "deferred": deferred,
        "of a schema": narrow,
    }  # fmt: skip


@pytest.mark.parametrize("name", states())
def test_state_is_what_langgraph_makes_of_it(name: str, step: Step) -> None:
    graph = states()[name]
    inputs = {"secret": "s"} if name == "of a schema" else {"x": 0}

    done = step(graph, inputs)

    assert done.failure is None
    assert visible_state(graph, done.state) == alone(graph, inputs)


class Box(TypedDict, total=False):
    x: int
    box: dict[str, Any]
    words: Annotated[list[str], operator.add]
    messages: Annotated[list[Any], operator.add]


def changes_in_place() -> dict[str, StateGraph[Any]]:
    """Graphs whose first node changes its input in place, and whose second node shows what it sees."""

    def nothing(state: Box) -> dict[str, Any]:
        state["words"].append("in place")
        return {}

    def beside_a_write(state: Box) -> dict[str, Any]:
        state["words"].append("in place")
        return {"words": ["written"]}

    def deep(state: Box) -> dict[str, Any]:
        state["box"]["inner"]["list"].insert(0, 1)
        return {"x": 1}

    def attribute(state: Box) -> dict[str, Any]:
        state["messages"][0].content = "changed"
        return {"x": 1}

    def of_the_state_itself(state: Box) -> dict[str, Any]:
        state["x"] = 99  # of a copy that LangGraph made for this node
        return {"words": ["written"]}

    def refused(state: Box) -> dict[str, Any]:
        state["words"].clear()
        return {"words": Overwrite(["only"])}

    def shows(state: Box) -> dict[str, Any]:
        message = state["messages"][0].content
        return {"words": [f"{state['x']} {state['words']} {state['box']} {message}"]}

    firsts = (nothing, beside_a_write, deep, attribute, of_the_state_itself, refused)
    graphs = {first.__name__: graph_of(Box, {"a": first, "b": shows}, (START, "a"), ("a", "b")) for first in firsts}
    graphs["in the second step"] = graph_of(
        Box, {"a": shows, "b": nothing, "c": shows}, (START, "a"), ("a", "b"), ("b", "c")
    )
    graphs["beside another node"] = graph_of(
        Box, {"a": beside_a_write, "b": says("b"), "c": shows}, (START, "a"), (START, "b"), (["a", "b"], "c")
    )
    within = graph_of(Box, {"a": deep, "b": shows}, (START, "a"), ("a", "b")).compile()
    graphs["within"] = graph_of(Box, {"a": within, "b": shows}, (START, "a"), ("a", "b"))
    return graphs


@pytest.mark.parametrize("name", changes_in_place())
def test_what_a_node_changes_in_place_is_there_as_in_langgraph(name: str, step: Step) -> None:
    graph = changes_in_place()[name]

    def inputs() -> dict[str, Any]:
        box = {"inner": {"list": []}}
        return {"x": 0, "box": box, "words": ["given"], "messages": [AIMessage("given", id="1")]}

    done = step(graph, inputs())

    assert done.failure is None
    assert done.state == alone(graph, inputs())


def test_what_two_nodes_write_to_a_key_without_a_reducer_fails_as_in_langgraph(step: Step) -> None:
    graph = graph_of(State, {"a": lambda s: {"y": "a"}, "b": lambda s: {"y": "b"}}, (START, "a"), (START, "b"))

    failure = step(graph, {"x": 0}).failed

    assert failure.type == "InvalidUpdateError"
    assert "key 'y'" in failure.message


# Nodes of every kind


class Calls:
    """Nodes that are methods and objects."""

    def method(self, state: State) -> dict[str, Any]:
        return {"words": ["method"]}

    def __call__(self, state: State) -> dict[str, Any]:
        return {"words": ["object"]}


class CallsLater:
    async def __call__(self, state: State) -> dict[str, Any]:
        return {"words": ["async object"]}


def with_word(state: State, word: str = "none") -> dict[str, Any]:
    return {"words": [word]}


async def with_word_later(state: State, *, word: str = "none") -> dict[str, Any]:
    return {"words": [word]}


def streams(state: State) -> Any:
    yield {"words": ["streamed"]}


async def streams_later(state: State) -> Any:
    yield {"words": ["streamed later"]}


KINDS = {
    "a method": Calls().method,
    "an object": Calls(),
    "an async object": CallsLater(),
    "a partial": partial(with_word, word="partial"),
    "an async partial": partial(with_word_later, word="partial"),
    "a runnable": RunnableLambda(with_word),
    "a generator": streams,
    "an async generator": streams_later,
    "nothing written": lambda state: None,
    "a graph": one_node(with_word).compile(),
    "a graph with an async node": one_node(with_word_later).compile(),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_node_and_a_variant_may_be_of_any_kind(name: str, step: Step) -> None:
    graph = graph_of(State, {"a": KINDS[name], "b": says("b")}, (START, "a"), ("a", "b"))
    other = graph_of(State, {"a": says("a"), "b": says("b")}, (START, "a"), ("a", "b"))
    workflow = as_workflow(variants(other).add("a", "other", KINDS[name]), "tests:graph")

    expected = alone(graph, {"x": 0})

    assert step(graph, {"x": 0}).state == expected
    assert step(workflow, {"x": 0}, choose={"a": "other"}).state == expected
    assert step(workflow, {"x": 0}).state["words"] == ["a", "b"]


def test_a_single_value_may_be_the_state(step: Step) -> None:
    graph = graph_of(Annotated[list, operator.add], {"a": lambda state: [len(state)]}, (START, "a"))

    assert step(graph, {"__root__": [7]}).state == {"__root__": graph.compile().invoke([7])}


def test_a_graph_that_is_entered_again_has_nothing_of_its_last_visit(step: Step) -> None:
    class Hinted(State):
        hint: int

    inner = one_node(lambda state: {"words": [f"hint: {state.get('hint')}"]}, Hinted)
    nodes = {"first": lambda state: Command(goto=["other", Send("sub", {"hint": 3})]), "other": says("other")}
    nodes |= {"sub": inner.compile(), "then": says("then")}
    graph = graph_of(State, nodes, (START, "first"), ("other", "sub"), ("other", "then"))

    assert step(graph, {}).state["words"] == alone(graph, {})["words"]


def test_nodes_and_keys_may_have_a_number_sign_in_their_names(step: Step) -> None:
    state = TypedDict("Signed", {"a#b": int, "words": Annotated[list[str], operator.add]})  # type: ignore[misc]
    nodes = {"first": lambda state: {"a#b": 1}, "step#1": says("one"), "step#2": says("two")}
    graph = graph_of(state, nodes, (START, "first"), ("first", "step#1"), ("first", "step#2"))

    assert step(graph, {}).state == alone(graph, {})


def engine_at(graph: Any, position: Position | None = None) -> tuple[Any, dict[str, Value], Position]:
    """Return an engine with a state and a position: after the node `a`, or another one."""
    engine = engine_of(as_workflow(graph, "tests:graph"))
    state = {"x": Value.of(1)}
    if position is not None:
        return engine, state, position
    joined = begin(engine, state, ROOT)
    assert isinstance(joined, Joined)
    return engine, joined.after(state, joined.changed), joined.position


ROOT = Root(CaseView("one", (), {}))


def wrote(step: Any, engine: Any, state: Any, position: Position, task: NodeTask) -> tuple[str, Any]:
    attempt = Task(task.node, "default", state, position, ROOT, number=task.number, key=task.key)
    node_result = engine.run(attempt, step.surroundings)
    assert node_result.failure is None, node_result.failure
    return task.key, node_result.writes


def after(step: Any, engine: Any, state: Any, position: Position) -> Joined:
    joined = join(engine, state, position, [wrote(step, engine, state, position, it) for it in position.tasks], ROOT)
    assert isinstance(joined, Joined), joined
    return joined


@pytest.mark.parametrize("within", [False, True])
def test_a_task_reads_nothing_of_what_other_tasks_were_sent(within: bool, step: Step) -> None:
    says_x = lambda state: {"words": [state["x"]]}  # noqa: E731
    to = graph_of(State, {"b": says_x}, (START, "b")).compile() if within else says_x
    sends = [Send("b", {"x": number}) for number in range(3)]
    graph = with_branch(graph_of(State, {"a": says("a"), "b": to}, (START, "a")), "a", lambda state: sends, ["b"])
    engine, state, position = engine_at(graph)
    joined = after(step, engine, state, position)
    state = joined.after(state, joined.changed)
    other_keys = [key for key in state if key.startswith(("~send/", "b|")) and "/1" not in key and "|1" not in key]
    assert other_keys

    damaged = {**state, **dict.fromkeys(other_keys, Value("", b"damaged"))}
    _, values = wrote(step, engine, damaged, joined.position, joined.position.tasks[1])

    assert decode(values["words"].data) == [1]


def test_the_line_to_a_frame_is_walked_once() -> None:
    class Counted(list[Any]):
        times = 0

        def __iter__(self) -> Any:
            Counted.times += 1
            return super().__iter__()

    def frame(*branches: Branch) -> Frame:
        return Frame(None, "", "", {}, {}, {}, {}, 0, 9, Counted(branches))  # type: ignore[arg-type]

    leaf = root = frame()
    for _ in range(8):
        root = frame(Branch((), "other"), Branch((), "sub", inner=root))

    assert len(path_to(root, leaf)) == 8
    assert Counted.times == 8


@pytest.mark.parametrize("node", ["a", "b", "c"])
def test_a_graph_may_start_at_any_of_its_nodes_and_at_one_that_is_deferred(node: str, step: Step) -> None:
    graph = StateGraph(State)
    for name in "abc":
        graph.add_node(name, says(name), defer=name == "c")
    for pair in ((START, "a"), ("a", "b"), ("b", "c")):
        graph.add_edge(*pair)
    engine, state, position = engine_at(graph, Position(0, (node,)))
    ran = []
    while position.next:
        ran += position.next
        joined = after(step, engine, state, position)
        state, position = joined.after(state, joined.changed), joined.position

    assert ran == list("abc"["abc".index(node) :])


@pytest.mark.parametrize("form", [list, dict, lambda update: list(update.items())])
def test_messages_of_a_command_for_an_outer_graph_have_one_id_whoever_joins_them(form: Any, step: Step) -> None:
    message = AIMessage("over to you")
    update = {"messages": [message]} if form is list else form({"messages": message})
    leaves = lambda state: Command(graph=Command.PARENT, goto="end", update=update)  # noqa: E731
    inner = graph_of(MessagesState, {"leaves": leaves}, (START, "leaves")).compile()
    graph = graph_of(MessagesState, {"sub": inner, "end": says()}, (START, "sub"))
    engine, state, position = engine_at(graph)
    writes = [wrote(step, engine, state, position, task) for task in position.tasks]

    joined = [join(engine, state, position, writes, ROOT) for _ in range(2)]

    assert joined[0].changed["messages"] == joined[1].changed["messages"]


@pytest.mark.parametrize("start", [True, False])
def test_an_edge_that_asks_between_node_runs_fails_and_says_what_to_do(start: bool, step: Step) -> None:
    inner = one_node(says("a")).compile()
    graph = graph_of(State, {"sub": inner, "b": says("b")}, *([] if start else [(START, "sub")]))

    failure = step(with_branch(graph, START if start else "sub", lambda state: interrupt("where?"), ["b"]), {}).failed

    assert failure.kind == "routing"
    assert sentence("call it in a node, and let the edge read what it wrote") in failure.message


# What people change


def around(inner: StateGraph[Any]) -> StateGraph[Any]:
    return graph_of(State, {"before": says("before"), "sub": inner.compile()}, (START, "before"), ("before", "sub"))


@pytest.mark.parametrize(
    ("inner", "edits", "seen"),
    [
        ("sub", {"sub.a": {"x": 5}}, "a: 5 old"),  # around a graph that has not run yet, which it reaches
        ("sub.more", {"sub.more.a": {"x": 5}}, "a: 5 old"),
        ("sub", {"sub.a": {"sub.x": 7}}, "a: 7 old"),  # in the graph itself
        ("sub", {"sub.a": {"sub.x": 7, "y": "new"}}, "a: 7 new"),  # which stays where something around it changes
        ("sub.more", {"sub.more.a": {"sub.more.x": 7, "y": "new"}}, "a: 7 new"),
        ("sub", {"sub.b": {"x": 5}}, "b: 1 old"),  # around a graph that has begun, which keeps what it was given
    ],
)
def test_what_is_changed_around_a_graph_reaches_it_until_it_begins(
    inner: str, edits: dict[str, Any], seen: str, step: Step
) -> None:
    def tells(node: str) -> Callable[[Any], dict[str, Any]]:
        return lambda state: {"words": [f"{node}: {state['x']} {state['y']}"]}

    graph = graph_of(State, {"a": tells("a"), "b": tells("b")}, (START, "a"), ("a", "b"))
    if inner == "sub.more":
        graph = graph_of(State, {"more": graph.compile()}, (START, "more"))

    assert seen in step(around(graph), {"x": 1, "y": "old"}, edits=edits).state["words"]


# What is told of a graph without running it


def goes_to_b(state: State) -> Command[Any]:
    return Command(goto="b", update={"words": ["a"]})


def leaves_for_b(state: State) -> Command[Any]:
    return Command(goto="b", graph=Command.PARENT)


UNSAID = {"by a node": goes_to_b, "by a node of a graph within": one_node(leaves_for_b).compile()}


@pytest.mark.parametrize("node", UNSAID.values(), ids=UNSAID)
def test_a_node_that_only_a_command_without_annotation_leads_to_is_known_to_come(step: Step, node: Any) -> None:
    graph = graph_of(State, {"z": says("z"), "a": node, "b": says("b")}, (START, "z"), ("z", "a"))
    workflow = as_workflow(graph, "tests:graph")
    done = step(workflow, {"x": 0})
    assert done.ran[-1] == "b"
    assert "b" in reachable(successors(workflow.facts()), done.ran[-2:-1])
    plan = estimate(workflow.facts(), [{}, {"b": "other"}])
    assert (plan.executed["z"].low, plan.executed["b"].low, plan.executed["b"].high) == (1, 0, None)


def test_a_retry_on_that_raises_ends_the_attempts_and_both_errors_are_named(step: Step) -> None:
    def boom(state: State) -> None:
        raise KeyError("no such")

    graph: StateGraph[Any] = StateGraph(State)
    policy = RetryPolicy(max_attempts=3, retry_on=lambda error: error.response.status_code >= 500, **QUICK)  # type: ignore[attr-defined, arg-type]
    graph.add_node("a", boom, retry_policy=policy)
    graph.add_edge(START, "a")
    done = step(graph, {"x": 0})
    assert done.ran == ["a"]
    assert (done.failed.type, done.failed.final) == ("KeyError", True)
    assert "no such" in done.failed.message
    assert "AttributeError: 'KeyError' object has no attribute 'response'" in done.failed.message


def test_params_are_for_the_outermost_graph(step: Step) -> None:
    @dataclass
    class Outer:
        tone: str = "x"

    @dataclass
    class Within:
        depth: int = 1

    def tell(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        return {"words": [runtime.context.tone]}

    inner = graph_of(State, {"in": says("in")}, (START, "in"), context_schema=Within).compile()
    graph = graph_of(State, {"tell": tell, "sub": inner}, (START, "tell"), ("tell", "sub"), context_schema=Outer)
    workflow = as_workflow(graph, "tests:graph")
    assert workflow.param_problems({"tone": "dry"}) == []
    assert "depth" in workflow.param_problems({"depth": 2})[0]
    assert "dry" in step(workflow, {"x": 0}, params={"tone": "dry"}).state["words"]


def test_a_function_that_makes_the_graph_makes_variants_of_it_by_its_parameters(step: Step) -> None:
    def build(k: int = 1) -> StateGraph[Any]:
        return one_node(says(*["a"] * k))

    beside = variants(build).add("graph", "k3", k=3)
    assert step(beside, {"x": 0}, choose={"graph": "k3"}).state["words"] == ["a"] * 3
    assert step(beside, {"x": 0}).state["words"] == ["a"]


def test_a_copy_of_a_node_remembers_no_code_of_the_variants_of_another() -> None:
    node = as_workflow(one_node(says("a")), "tests:graph").nodes["a"]
    assert isinstance(node, GraphNode)
    first, second = node.copy(), node.copy()
    first.variant("other", says("b"))
    second.variant("other", says("c"))
    assert first.fingerprint("other") != second.fingerprint("other")


def test_a_graph_that_a_node_calls_and_that_stops_in_the_middle_is_a_failure_that_says_so(step: Step) -> None:
    inner = graph_of(State, {"b": says("b")}, (START, "b")).compile(interrupt_before=["b"])
    graph = one_node(lambda state: inner.invoke(state))

    stepped = step(graph, {"words": []})

    assert (
        sentence("{} calls a graph that was compiled with interrupt_before or interrupt_after", "node 'a'")
        in stepped.failed.message
    )


def test_without_a_context_schema_nodes_get_what_was_given(step: Step) -> None:
    def tone(state: State, runtime: Runtime[Any]) -> dict[str, Any]:
        return {"words": [runtime.context["tone"]]}

    graph = one_node(tone)

    assert step(graph, {"words": []}, params={"tone": "dry"}).state["words"] == ["dry"]
    assert alone(graph, {"words": []}, context={"tone": "dry"})["words"] == ["dry"]
