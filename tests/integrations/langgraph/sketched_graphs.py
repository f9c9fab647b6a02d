"""Build generated graphs as a user would write them; in a second form they report failures in their state.

A graph that tells goes on where the user's raises. So LangGraph runs all that a step has, and its stream says what a
cell comes to, whichever of its failures comes first: see `graph_alone`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.channels.last_value import LastValue
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, RetryPolicy, Send

from tests.execution.test_tree_property import Way, mixed
from tests.integrations.langgraph.graph_sketches import GraphSketch, Inside
from wtb.authoring.context.node_context import current_context

BOUND = 4  # of a loop: how much of `count` it takes to leave it
RETRIES = RetryPolicy(initial_interval=0.001, jitter=False, max_attempts=2, retry_on=(ConnectionError, ValueError))


def united(old: list[str], new: list[str]) -> list[str]:
    """A reducer like that of messages: existing lines are not added again."""
    return [*old, *(line for line in dict.fromkeys(new) if line not in old)]


class Latest(LastValue[Any]):
    """A key of one value that accepts several in one step, so that the stream continues and shows them."""

    __slots__ = ()

    def update(self, values: Any) -> bool:
        return super().update(values[-1:])


class State(TypedDict, total=False):
    x: int
    count: Annotated[int, operator.add]
    log: Annotated[list[str], operator.add]
    notes: Annotated[list[str], united]
    luck: Annotated[list[float], operator.add]
    acc: int


class Reporting(State, total=False):
    acc: Annotated[int, Latest]
    bad: Annotated[list[str], operator.add]


class Inner(State, total=False):
    own: Annotated[int, operator.add]


class InnerReporting(Reporting, total=False):
    own: Annotated[int, operator.add]


class Out(TypedDict, total=False):
    count: int
    notes: list[str]


class OutWithAcc(Out, total=False):
    acc: int


def name_of(sketch: GraphSketch, number: int) -> str:
    return f"n{number}" if number < len(sketch.plans) else END


def work_of(
    name: str,
    way: Way,
    reports: bool,
    *,
    acc: bool = True,
    flaky: bool = False,
    is_async: bool = False,
    goes: Callable[[int], Any] | None = None,
) -> Callable[..., Any]:
    """Build a node. reports: it writes its failure. flaky: its first attempt fails. goes: it continues by Command."""

    def work(state: Any, runtime: Runtime[Any]) -> Any:
        ctx, info = current_context(), runtime.execution_info
        total = mixed(state, way.factor)
        passed = {"count": 1, "own": 1} if "." in name else {"count": 1}
        if flaky and max(0 if ctx is None else ctx.attempt, 0 if info is None else info.node_attempt) == 1:
            raise ConnectionError(f"{name} of {total} was cut off")
        if way.fails is not None and total % 4 == way.fails:
            if reports:
                return {**passed, "bad": [f"ValueError: {name} of {total}"]}
            raise ValueError(f"{name} of {total}")
        update = {**passed, "log": [f"{name}:{total}"], "notes": [f"{name} {total % 3}"]}
        update |= {} if ctx is None else {"luck": [ctx.rng.random()]}
        update |= {"acc": total} if acc else {}
        return update if goes is None else Command(goto=goes(total), update=update)

    async def later(state: Any, runtime: Runtime[Any]) -> Any:
        return work(state, runtime)

    return later if is_async and not reports else work


def sends(node: str, state: Mapping[str, Any], number: int) -> list[Send]:
    return [Send(node, {"x": place, "acc": state.get("acc", 0)}) for place in range(number)]


def within_of(inside: Inside, name: str, way: Way, reports: bool) -> Any:
    first = name.count(".") == 1 and name.endswith(".a")
    return work_of(name, way, reports, acc=first and inside.tells_acc, flaky=first and inside.flaky)


def graph_within(name: str, inside: Inside, a: Way, b: Way, reports: bool) -> Any:
    inner: Any = InnerReporting if reports else Inner
    out: Any = OutWithAcc if inside.tells_acc else Out
    graph: Any = StateGraph(inner, output_schema=out)
    retries = RETRIES if inside.flaky else None
    graph.add_node("a", within_of(inside, f"{name}.a", a, reports), retry_policy=retries)
    if inside.shape == "nested":
        deep: Any = StateGraph(inner, output_schema=out)
        deep.add_node("a", within_of(inside, f"{name}.b.a", b, reports))
        deep.add_edge(START, "a")
        graph.add_node("b", deep.compile())
    else:
        graph.add_node("b", within_of(inside, f"{name}.b", b, reports))
    if inside.shape in ("entry", "empty"):
        ends = ["a", "b", END] if inside.shape == "empty" else ["a", "b"]
        graph.add_conditional_edges(START, lambda state: ends[(mixed(state, 1) + inside.rest) % len(ends)], ends)
    else:
        graph.add_edge(START, "a")
    if inside.shape == "fan":
        graph.add_edge(START, "b")
    elif inside.shape == "send":
        graph.add_conditional_edges("a", lambda state: sends("b", state, mixed(state, 1) % 3), ["b"])
    elif inside.shape == "loop":
        graph.add_conditional_edges("a", lambda state: "a" if state["own"] < 2 + inside.rest % 2 else "b")
    else:
        graph.add_edge("a", "b")
    return graph.compile()


def fn_of(sketch: GraphSketch, number: int, choice: Mapping[str, int], reports: bool) -> Any:
    """Return the function of a node for a choice of ways."""
    plan, name = sketch.plans[number], f"n{number}"
    way_number, inside = choice.get(name, 0), plan.inside
    way = plan.ways[way_number]
    if inside is not None and way_number != 1:
        a = inside.a[choice.get(f"{name}.a", 0)]
        b = inside.b[choice.get(f"{name}.b.a" if inside.shape == "nested" else f"{name}.b", 0)]
        return graph_within(name, inside, way if way_number else a, b, reports)
    goes = None
    if inside is None and plan.leaves.startswith("command") and not sketch.joins_into(number):

        def goes(total: int) -> Any:
            following, beyond = name_of(sketch, number + 1), name_of(sketch, number + 2)
            if plan.leaves == "command send" and beyond != END:
                return [following, *sends(beyond, {"acc": total}, (total + plan.rest) % 3)]
            return (following, beyond, [following, beyond])[(total + plan.rest) % 3]

    flaky = plan.flaky and inside is None
    return work_of(name, way, reports, acc=plan.writes_acc, flaky=flaky, is_async=plan.is_async, goes=goes)


def variant_of(sketch: GraphSketch, node: str, way: int) -> Any:
    """Return a variant of a node, as a user writes it."""
    outer, _, inner = node.partition(".")
    inside = sketch.plans[int(outer[1:])].inside
    if inside is None or not inner:
        return fn_of(sketch, int(outer[1:]), {node: way}, reports=False)
    return within_of(inside, node, sketch.ways(node)[way], reports=False)


def graph_of(sketch: GraphSketch, choice: Mapping[str, int], *, reports: bool = False) -> Any:
    """Build the graph as a user writes it, with these ways of its nodes. reports: it reports failures in its state."""
    graph: Any = StateGraph(Reporting if reports else State)
    for number, plan in enumerate(sketch.plans):
        retries = RETRIES if plan.flaky and plan.inside is None else None
        compiled = fn_of(sketch, number, choice, reports)
        graph.add_node(f"n{number}", compiled, defer=plan.deferred, retry_policy=retries)
    if reports:
        graph.add_node("bad", lambda state: {})
    if sketch.enters:
        graph.add_conditional_edges(START, lambda state: "n1" if mixed(state, 1) % 2 else "n0", ["n0", "n1"])
    else:
        graph.add_edge(START, "n0")
    for number in range(len(sketch.plans)):
        if not sketch.joins_into(number):
            lead_on(graph, sketch, number, reports)
        if sketch.joins(number):
            graph.add_edge([f"n{number + 1}", f"n{number + 2}"], name_of(sketch, number + 3))
    compiled = graph.compile()
    return compiled if sketch.limit is None else compiled.with_config(recursion_limit=sketch.limit)


def lead_on(graph: Any, sketch: GraphSketch, number: int, reports: bool) -> None:
    plan, source = sketch.plans[number], f"n{number}"
    following, beyond = name_of(sketch, number + 1), name_of(sketch, number + 2)
    loops = {"again": f"n{plan.other % (number + 1)}", "on": following}

    def mix(state: Any) -> int:
        return mixed(state, 1) + plan.rest

    def by_key(state: Any, config: RunnableConfig) -> Any:
        key = str(mix(state) % (4 if plan.leaves == "misses" else 3))
        by = config["metadata"]["langgraph_checkpoint_ns"].rpartition(":")[2]
        return Send("bad", {"by": by}) if reports and key == "3" else key

    if plan.leaves in ("fan", "join"):
        graph.add_edge(source, following)
        graph.add_edge(source, beyond)
    elif plan.leaves == "skip":
        graph.add_conditional_edges(source, lambda state: beyond if mix(state) % 2 else following)
    elif plan.leaves == "several":
        graph.add_edge(source, following)
        graph.add_conditional_edges(source, lambda state: [[beyond, END], [END], [following]][mix(state) % 3])
    elif plan.leaves == "loop" and plan.inside is None:
        graph.add_conditional_edges(source, lambda state: "again" if state["count"] < BOUND else "on", loops)
    elif plan.leaves in ("branch", "misses"):
        graph.add_conditional_edges(source, by_key, {"0": following, "1": beyond, "2": END})
    elif plan.leaves.startswith("send") and beyond != END:
        to = [beyond, following] if plan.leaves == "send on" else [beyond]
        also = to[1:]
        graph.add_conditional_edges(source, lambda state: [*also, *sends(beyond, state, mix(state) % 4)], to)
    elif not plan.leaves.startswith("command") or plan.inside is not None:
        graph.add_edge(source, following)
