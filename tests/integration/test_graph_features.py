"""What leads where and what becomes of the state: WTB, which runs a graph task by task, gives what LangGraph gives."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableLambda
from langgraph.channels import BinaryOperatorAggregate, DeltaChannel, EphemeralValue, Topic
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import ParentCommand
from langgraph.graph import END, START, StateGraph
from langgraph.managed import IsLastStep, RemainingSteps
from langgraph.types import Command, Overwrite, RetryPolicy, Send
from pydantic import BaseModel

from tests.integration.graph_stepping import (
    ABC,
    ABC_REST,
    QUICK,
    Flaky,
    State,
    Stepped,
    alone,
    graph_of,
    says,
    shown,
    with_branch,
)
from wtb.langgraph import variants
from wtb.workflows import as_workflow

Step = Callable[..., Stepped]


async def slowly(state: Any) -> str:
    return "b"


# Where a step leads


def routings() -> dict[str, StateGraph[Any]]:
    def after_a(*branch: Any) -> StateGraph[Any]:
        return with_branch(graph_of(State, ABC, (START, "a"), ("b", "c")), "a", *branch)

    def sends(state: Any) -> list[Any]:
        return [Send("b", {"x": 1}), Send("b", {"x": 2}), "c"]

    entry = graph_of(State, ABC, ("b", "c"))
    entry.add_conditional_edges(START, lambda state: ["a", "b"] if state["x"] == 0 else "c")
    sent = graph_of(State, {"a": says("a"), "b": lambda state: {"words": [f"b{state['n']}"]}})
    sent.add_conditional_edges(START, lambda state: [Send("b", {"n": n}) for n in range(3)], ["b"])
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
        "to what the edges lead to as well": with_branch(
            graph_of(State, ABC, (START, "a"), ("a", "b")), "a", lambda state: "c"
        ),
        "from the entry": entry,
        "sent from the entry": sent,
        "from the entry by an async function": with_branch(graph_of(State, ABC), START, slowly),
        "into a graph whose entry is decided by an async function": graph_of(
            State,
            {"a": says("a"), "sub": with_branch(graph_of(State, ABC), START, slowly).compile()},
            (START, "a"),
            ("a", "sub"),
        ),
        "and waits for both": graph_of(State, ABC, (START, "a"), (START, "b"), (["a", "b"], "c")),
        "and waits for one that is later": graph_of(
            State, {**ABC, "d": says("d")}, (START, "a"), (START, "b"), ("b", "d"), (["a", "d"], "c")
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
        """A graph in a graph (in a graph), whose first node commands what the one around it does."""

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
        "with a model": graph_of(State, {"a": typed}, (START, "a")),
        "with an edge as well": graph_of(
            State, {"a": lambda state: Command(goto="b"), **ABC_REST}, (START, "a"), ("a", "c")
        ),
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

    done = step(graph, {"x": 0})

    assert done.failure is None
    assert done.state == alone(graph, {"x": 0})


def test_a_command_for_a_graph_that_is_not_there_fails_and_says_so(step: Step) -> None:
    graph = graph_of(State, {"a": lambda state: Command(graph=Command.PARENT, goto="b"), **ABC_REST}, (START, "a"))

    with pytest.raises(ParentCommand):
        alone(graph, {"x": 0})
    failure = step(graph, {"x": 0}).failure
    assert failure is not None
    assert "no graph around it" in failure.message


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
        "invoked by a node": graph_of(State, {"a": asks}, (START, "a")),
        "awaited by a node": graph_of(State, {"a": asks_later}, (START, "a")),
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
    given = {"x": 0, "y": "four"}
    kept = graph.compile(checkpointer=InMemorySaver()) if name == "that keeps checkpoints" else graph

    done = step(graph, given)

    assert done.failure is None
    assert done.state == alone(kept, given, config={"configurable": {"thread_id": "1"}})


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
    inner = graph_of(State, {"a": says("a")}, (START, "a")).compile(checkpointer=True)
    graph = graph_of(State, {"sub": inner, "c": says("c")}, (START, "sub"), ("sub", "c"))
    again = with_branch(graph, "c", lambda state: END if len(state["words"]) > 6 else "sub")

    failure = step(again, {"x": 0}).failure

    assert failure is not None
    assert "graph 'sub' was compiled with checkpointer=True" in failure.message


# State


def longest(left: str, right: str) -> str:
    return max(left, right, key=len)


def into(left: list[str], right: list[str]) -> list[str]:
    """A reducer that changes what it is given."""
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
    loop = graph_of(Managed, {"a": managed}, (START, "a"))
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
    given = {"secret": "s"} if name == "of a schema" else {"x": 0}

    done = step(graph, given)

    assert done.failure is None
    assert shown(graph, done.state) == alone(graph, given)


def test_what_two_nodes_write_to_a_key_without_a_reducer_fails_as_in_langgraph(step: Step) -> None:
    graph = graph_of(State, {"a": lambda s: {"y": "a"}, "b": lambda s: {"y": "b"}}, (START, "a"), (START, "b"))

    failure = step(graph, {"x": 0}).failure

    assert failure is not None
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
    "a graph": graph_of(State, {"a": with_word}, (START, "a")).compile(),
    "a graph with an async node": graph_of(State, {"a": with_word_later}, (START, "a")).compile(),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_node_and_a_variant_may_be_of_any_kind(name: str, step: Step) -> None:
    graph = graph_of(State, {"a": KINDS[name], "b": says("b")}, (START, "a"), ("a", "b"))
    other = graph_of(State, {"a": says("a"), "b": says("b")}, (START, "a"), ("a", "b"))
    workflow = as_workflow(variants(other).add("a", "other", KINDS[name]), "tests:graph")

    wanted = alone(graph, {"x": 0})

    assert step(graph, {"x": 0}).state == wanted
    assert step(workflow, {"x": 0}, choose={"a": "other"}).state == wanted
    assert step(workflow, {"x": 0}).state["words"] == ["a", "b"]


def test_a_single_value_may_be_the_state(step: Step) -> None:
    graph = graph_of(Annotated[list, operator.add], {"a": lambda state: [len(state)]}, (START, "a"))

    assert step(graph, {"__root__": [7]}).state == {"__root__": alone_with(graph, [7])}


def alone_with(graph: StateGraph[Any], given: Any) -> Any:
    return graph.compile().invoke(given)


def test_a_graph_that_is_entered_again_has_nothing_of_its_last_visit(step: Step) -> None:
    class Hinted(State):
        hint: int

    inner = graph_of(Hinted, {"a": lambda state: {"words": [f"hint: {state.get('hint')}"]}}, (START, "a"))
    nodes = {"first": lambda state: Command(goto=["other", Send("sub", {"hint": 3})]), "other": says("other")}
    nodes |= {"sub": inner.compile(), "then": says("then")}
    graph = graph_of(State, nodes, (START, "first"), ("other", "sub"), ("other", "then"))

    assert step(graph, {}).state["words"] == alone(graph, {})["words"]


# What people change


def around(inner: StateGraph[Any]) -> StateGraph[Any]:
    return graph_of(State, {"before": says("before"), "sub": inner.compile()}, (START, "before"), ("before", "sub"))


@pytest.mark.parametrize("deep", [False, True])
def test_what_is_changed_around_a_graph_that_has_not_run_yet_reaches_it(deep: bool, step: Step) -> None:
    inner = graph_of(
        State, {"a": lambda state: {"words": [f"x is {state['x']}"]}, "b": says("b")}, (START, "a"), ("a", "b")
    )
    graph = around(graph_of(State, {"more": inner.compile()}, (START, "more")) if deep else inner)
    first = "sub.more.a" if deep else "sub.a"

    assert "x is 5" in step(graph, {"x": 1}, edits={first: {"x": 5}}).state["words"]


def test_what_is_changed_in_a_graph_itself_stays(step: Step) -> None:
    inner = graph_of(State, {"a": lambda state: {"words": [f"x is {state['x']}"]}}, (START, "a"))

    assert "x is 7" in step(around(inner), {"x": 1}, edits={"sub.a": {"sub.x": 7}}).state["words"]


def test_a_graph_that_has_begun_keeps_what_it_was_given(step: Step) -> None:
    inner = graph_of(
        State, {"a": says("a"), "b": lambda state: {"words": [f"x is {state['x']}"]}}, (START, "a"), ("a", "b")
    )

    assert "x is 1" in step(around(inner), {"x": 1}, edits={"sub.b": {"x": 5}}).state["words"]
