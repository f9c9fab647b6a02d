"""Sketches of LangGraph graphs to generate, with their varied nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from hypothesis import strategies as st

from tests.execution.test_tree_property import Way

MOST_CELLS = 12


@dataclass(frozen=True)
class Inside:
    """A graph that is a node: of nodes `a` and `b`, where b may be a graph itself, of the node `b.a`."""

    shape: str
    a: tuple[Way, ...]
    b: tuple[Way, ...]
    rest: int
    tells_acc: bool
    flaky: bool


@dataclass(frozen=True)
class Plan:
    """One node. `leaves`: how the graph goes on, with indices of other nodes; the last is followed by END.

    inside: the graph that it is, if it is one; then its other ways are functions and graphs that run as one node.
    """

    ways: tuple[Way, ...]
    leaves: str
    other: int
    rest: int
    writes_acc: bool
    is_async: bool
    deferred: bool
    flaky: bool
    inside: Inside | None


@dataclass(frozen=True)
class GraphSketch:
    """A sweep: its nodes, the varied ones, and the requested cells."""

    plans: tuple[Plan, ...]
    varied: tuple[str, ...]
    enters: bool
    limit: int | None
    cases: int
    repeats: int

    def ways(self, node: str) -> tuple[Way, ...]:
        number, _, inner = node[1:].partition(".")
        plan = self.plans[int(number)]
        if not inner or plan.inside is None:
            return plan.ways
        return plan.inside.a if inner == "a" else plan.inside.b

    def inner(self) -> list[str]:
        """Return the nodes of graphs that are nodes and not varied as a whole."""
        names = []
        for number, plan in enumerate(self.plans):
            if plan.inside is not None and f"n{number}" not in self.varied:
                names += [f"n{number}.a", f"n{number}.b.a" if plan.inside.shape == "nested" else f"n{number}.b"]
        return names

    def stepped(self) -> set[str]:
        """Return the nodes that are graphs whose nodes run one by one."""
        return {prefix for node in self.inner() for prefix in (node.rpartition(".")[0], node.partition(".")[0])}

    def joins_into(self, number: int) -> bool:
        """Return whether a node's only edge also waits for another node."""
        before = [n for n in (number - 1, number - 2) if n >= 0]
        return any(self.joins(n) for n in before)

    def joins(self, number: int) -> bool:
        return self.plans[number].leaves == "join" and number + 2 < len(self.plans) and not self.joins_into(number)


a_way = st.builds(Way, st.integers(1, 5), st.sampled_from([None] * 8 + [0, 1]))
some_ways = st.lists(a_way, min_size=2, max_size=3).map(tuple)
seldom = st.sampled_from([False, False, False, True])
insides = st.builds(
    Inside,
    shape=st.sampled_from(["line", "entry", "empty", "fan", "send", "loop", "nested"]),
    a=some_ways,
    b=some_ways,
    rest=st.integers(0, 5),
    tells_acc=seldom,
    flaky=seldom,
)
SENDS = ("send", "send on", "command send")
LEAVES = ("on", "fan", "fan", "join", "skip", "several", "loop", "branch", "misses", "command", *SENDS)
a_plan = st.builds(
    Plan,
    ways=some_ways,
    leaves=st.sampled_from(LEAVES),
    other=st.integers(0, 6),
    rest=st.integers(0, 5),
    writes_acc=seldom,
    is_async=seldom,
    deferred=seldom,
    flaky=seldom,
    inside=st.none() | st.none() | insides,
)


@st.composite
def graph_sketches(draw: st.DrawFn) -> GraphSketch:
    node_plans = draw(st.lists(a_plan, min_size=3, max_size=6))
    if draw(st.sampled_from([False, False, True])):  # a graph that is sent to
        node_plans[0] = replace(node_plans[0], leaves=draw(st.sampled_from(SENDS)), inside=None)
        node_plans[2] = replace(node_plans[2], inside=draw(insides))
    limit = draw(st.sampled_from([None, None, None, 5, 6]))
    repeats = draw(st.sampled_from([1, 1, 2]))
    sketch = GraphSketch(tuple(node_plans), (), draw(seldom), limit, draw(st.integers(1, 2)), repeats)
    names = [f"n{number}" for number in range(len(node_plans))]
    whole = tuple(draw(st.lists(st.sampled_from(names), max_size=2, unique=True)))
    sketch = replace(sketch, varied=whole)
    if within := sketch.inner():
        sketch = replace(sketch, varied=(*whole, *draw(st.lists(st.sampled_from(within), max_size=1))))
    while prod(len(sketch.ways(node)) for node in sketch.varied) * sketch.cases * sketch.repeats > MOST_CELLS:
        sketch = replace(sketch, varied=sketch.varied[1:])
    return sketch
