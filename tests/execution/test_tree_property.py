"""For any graph, the tree gives each cell the same result as alone, and runs nothing twice.

Cells are compared with an interpreter of a few lines that runs one cell by itself, and with `share: false`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from tests.support.amounts import examples
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.tree import checkpoints

Make = Callable[..., Any]
MAX_STEPS = 7


class State(TypedDict, total=False):
    x: int
    count: Annotated[int, operator.add]
    log: Annotated[list[str], operator.add]
    acc: int
    luck: Annotated[list[float], operator.add]


# What is generated


@dataclass(frozen=True)
class Way:
    """One variant of a node. It fails where its hash of the state, modulo 4, is `fails`."""

    factor: int
    fails: int | None


@dataclass(frozen=True)
class Plan:
    """One node. `leaves`: how the graph goes on, with indices of other nodes; the last is followed by END."""

    ways: tuple[Way, ...]
    leaves: str
    other: int
    rest: int
    writes_acc: bool
    skips: bool


@dataclass(frozen=True)
class Arrows:
    """The edges out of one node, by index; None is END."""

    always: tuple[int | None, ...] = ()
    when: tuple[tuple[int, int, int | None], ...] = ()  # (modulus, remainder, target), best first
    default: tuple[int | None, ...] = ()
    keys: Mapping[str, int | None] = field(default_factory=dict)
    modulus: int = 1


@dataclass(frozen=True)
class Sketch:
    """A sweep: its nodes, the varied ones, and the requested cells."""

    plans: tuple[Plan, ...]
    varied: tuple[int, ...]
    excluded: tuple[int, int] | None
    cases: int
    repeats: int

    def arrows(self, node: int) -> Arrows:
        plan, end = self.plans[node], len(self.plans)

        def to(target: int) -> int | None:
            return target if target < end else None

        following, beyond = to(node + 1), to(node + 2)
        if self.joins_into(node):
            return Arrows()
        if plan.leaves in ("fan", "join"):
            return Arrows(always=(following, beyond))
        if plan.leaves == "skip":
            return Arrows(when=((2, plan.rest % 2, beyond), (3, plan.rest % 3, None)), default=(following,))
        if plan.leaves == "loop":
            return Arrows(when=((2, plan.rest % 2, plan.other % (node + 1)),), default=(following,))
        if plan.leaves == "beside":  # one edge that is always followed, and one of two others
            return Arrows(always=(following,), when=((2, plan.rest % 2, beyond),), default=(None,))
        if plan.leaves == "unsure":  # where the condition is not true nothing leads on
            return Arrows(when=((3, plan.rest % 3, None), (2, plan.rest % 2, following)))
        if plan.leaves == "branch":
            return Arrows(keys={"0": following, "1": beyond, "2": None}, modulus=3)
        if plan.leaves == "misses":  # the branch may return a key that it does not have
            return Arrows(keys={"0": following, "1": to(plan.other % (end + 1)), "2": None}, modulus=4)
        return Arrows(always=(following,))

    def joins(self) -> Iterator[tuple[int, int, int | None]]:
        """(source, source, target): both sources were fanned out to by the node before them."""
        for node, plan in enumerate(self.plans):
            if plan.leaves == "join" and node + 2 < len(self.plans) and not self.joins_into(node):
                yield node + 1, node + 2, node + 3 if node + 3 < len(self.plans) else None

    def joins_into(self, node: int) -> bool:
        """Return whether a node's only edge also waits for another node."""
        before = [n for n in (node - 1, node - 2) if n >= 0]
        return any(
            self.plans[n].leaves == "join" and n + 2 < len(self.plans) and not self.joins_into(n) for n in before
        )


def mixed(state: Mapping[str, Any], factor: int) -> int:
    """Return a number that depends on everything written so far."""
    return (state["x"] * 7 + state.get("acc", 0) * 3 + state.get("count", 0) + len(state.get("log", [])) * factor) % 11


def name_of(node: int | None) -> str:
    return END if node is None else f"n{node}"


ways = st.builds(Way, st.integers(1, 5), st.sampled_from([None, None, None, 0, 1]))
plans = st.builds(
    Plan,
    ways=st.lists(ways, min_size=1, max_size=3).map(tuple),
    leaves=st.sampled_from(["on", "on", "fan", "join", "skip", "loop", "beside", "unsure", "branch", "misses"]),
    other=st.integers(0, 6),
    rest=st.integers(0, 5),
    writes_acc=st.sampled_from([True, True, False]),
    skips=st.sampled_from([False, False, False, True]),
)


@st.composite
def sketches(draw: st.DrawFn) -> Sketch:
    node_plans = tuple(draw(st.lists(plans, min_size=2, max_size=5)))
    varied = draw(st.lists(st.sampled_from(range(len(node_plans))), min_size=1, max_size=3, unique=True))
    first = varied[0]
    excluded = draw(st.none() | st.tuples(st.just(first), st.integers(0, len(node_plans[first].ways) - 1)))
    if excluded is not None and len(node_plans[first].ways) == 1:
        excluded = None
    return Sketch(node_plans, tuple(varied), excluded, draw(st.integers(1, 2)), draw(st.integers(1, 2)))


# The workflow


def workflow_of(sketch: Sketch) -> Workflow:
    wf = Workflow("generated", state=State, max_steps=MAX_STEPS)
    for number, plan in enumerate(sketch.plans):
        node = wf.node(
            work_of(number, plan), name=name_of(number), variant="w0", on_error="skip" if plan.skips else "fail"
        )
        node.variants["w0"] = type(node.variants["w0"])(node.name, "w0", node.variants["w0"].fn, params(plan.ways[0]))
        for way_number, way in enumerate(plan.ways[1:], 1):
            node.variant(f"w{way_number}", **params(way))
    wf.entry(name_of(0))
    for number in range(len(sketch.plans)):
        arrows, source = sketch.arrows(number), name_of(number)
        for target in arrows.always:
            wf.edge(source, name_of(target))
        for place, (modulus, remainder, target) in enumerate(arrows.when):
            wf.edge(source, name_of(target), when=condition(modulus, remainder), priority=-place)
        for target in arrows.default:
            wf.edge(source, name_of(target), default=True)
        if arrows.keys:
            targets = {key: name_of(target) for key, target in arrows.keys.items()}
            wf.branch(source, targets, by=key_of(arrows.modulus))
    for first, other, target in sketch.joins():
        wf.edge([name_of(first), name_of(other)], name_of(target))
    return wf


def params(way: Way) -> dict[str, Any]:
    return {"factor": way.factor, "fails": way.fails}


def work_of(number: int, plan: Plan) -> Callable[..., dict[str, Any]]:
    def work(state: Any, ctx: Any, *, factor: int = 1, fails: int | None = None) -> dict[str, Any]:
        total = mixed(state, factor)
        if fails is not None and total % 4 == fails:
            raise ValueError(f"{number} of {total}")
        update = {"count": 1, "log": [f"{number}:{total}"], "luck": [ctx.rng.random()]}
        return {**update, "acc": total} if plan.writes_acc else update

    return work


def condition(modulus: int, remainder: int) -> Callable[[Any], bool]:
    return lambda state: mixed(state, 1) % modulus == remainder


def key_of(modulus: int) -> Callable[[Any], str]:
    return lambda state: str(mixed(state, 1) % modulus)


# One cell by itself


@dataclass
class Alone:
    """The result of one cell. `prefixes`: for each accepted node run, everything that led to it.

    state: None where it is not known. error: how it begins; one of these where several may come first.
    """

    status: str = "succeeded"
    state: dict[str, Any] | None = field(default_factory=dict)
    path: tuple[str, ...] = ()
    error: str | tuple[str, ...] | None = None
    prefixes: list[Any] = field(default_factory=list)


def run_alone(sketch: Sketch, choice: Mapping[int, int], x: int) -> Alone:
    """Run one cell in plain Python. Nodes of one step see the same state; what they write is joined after it."""
    state: dict[str, Any] = {"x": x}
    cell = Alone(state=state)
    step, current, waiting = 0, [0], {join: set[int]() for join in sketch.joins()}
    walked: tuple[Any, ...] = ()
    while current:
        walked = (*walked, tuple((node, choice.get(node, 0)) for node in current))
        written: dict[int, dict[str, Any]] = {}
        failed: list[str] = []
        for node in current:
            plan, total = sketch.plans[node], mixed(state, sketch.plans[node].ways[choice.get(node, 0)].factor)
            fails = plan.ways[choice.get(node, 0)].fails
            if fails is not None and total % 4 == fails:
                written[node] = {}
                if not plan.skips:
                    failed.append(f"node 'n{node}': ValueError: {node} of {total}")
                continue
            written[node] = {"count": 1, "log": [f"{node}:{total}"]} | ({"acc": total} if plan.writes_acc else {})
            cell.prefixes.append((walked[:-1], node, choice.get(node, 0)))
        if failed:
            return fail(cell, failed[0])
        both = [node for node in current if "acc" in written[node]]
        if len(both) > 1:
            return fail(cell, f"StateError: nodes 'n{both[0]}' and 'n{both[1]}' both wrote key 'acc'")
        after = dict(state)
        for update in written.values():
            after["count"] = after.get("count", 0) + update.get("count", 0)
            after["log"] = after.get("log", []) + update.get("log", [])
            after["acc"] = update.get("acc", after.get("acc"))
        after = {key: value for key, value in after.items() if value not in (None, [], 0) or key == "x" or key == "acc"}
        after = {key: value for key, value in after.items() if value is not None}
        following: set[int | None] = set()
        for node in current:
            targets = leave(sketch.arrows(node), mixed(after, 1))
            if isinstance(targets, str):
                return fail(cell, f"RoutingError: {targets.format(node=node)}")
            following |= set(targets)
            for join, sources in waiting.items():
                if node in join[:2]:
                    sources.add(node)
        for join, sources in waiting.items():
            if len(sources) == 2:
                following.add(join[2])
                sources.clear()
        step += 1
        current = sorted(node for node in following if node is not None)
        if current and step >= MAX_STEPS:
            return fail(cell, f"RoutingError: still going after {step} steps")
        cell.state = state = after
        cell.path += tuple(name_of(node) for node, _ in walked[-1])
    return cell


def fail(cell: Alone, error: str) -> Alone:
    cell.status, cell.error = "failed", error
    return cell


def leave(arrows: Arrows, mix: int) -> list[int | None] | str:
    targets = list(arrows.always)
    if arrows.keys:
        key = str(mix % arrows.modulus)
        if key not in arrows.keys:
            return f"the branch after node 'n{{node}}' returned '{key}'"
        targets.append(arrows.keys[key])
    elif arrows.when:
        true = [target for modulus, remainder, target in arrows.when if mix % modulus == remainder]
        targets += true[:1] or arrows.default
        if not targets:
            return "no edge leads on from node 'n{node}'"
    return targets


# The test


def score(case: Any, result: Any) -> dict[str, float]:
    return {"count": float(result.state.get("count", 0)), "steps": float(len(result.path))}


def summary_of(cell: Any) -> tuple[Any, ...]:
    """Return everything of a cell that sharing must not change."""
    error = None if cell.failure is None else cell.error
    return cell.case, cell.repeat, cell.combination, cell.status, cell.state, cell.path, cell.scores, error


QUICK = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)  # explaining traces every line of every thread


@settings(max_examples=examples(50), deadline=None, phases=QUICK, suppress_health_check=[HealthCheck.too_slow])
@given(sketches())
def test_the_tree_gives_each_cell_what_it_would_have_got_alone(memory_bench: Make, sketch: Sketch) -> None:
    vary = {f"n{node}": [f"w{n}" for n in range(len(sketch.plans[node].ways))] for node in sketch.varied}
    spec: dict[str, Any] = {"repeats": sketch.repeats, "evaluators": {"score": score}}
    if sketch.excluded is not None:
        node, way = sketch.excluded
        spec["exclude"] = [{f"n{node}": f"w{way}"}]
    cases = [{"id": str(x), "input": {"x": x}} for x in range(sketch.cases)]

    tree = memory_bench(workflow_of(sketch), cases, vary, **spec, run={"concurrency": 3})

    def alone(cell: Any) -> Alone:
        choice = {int(node[1:]): int(way[1:]) for node, way in cell.combination.items()}
        return run_alone(sketch, choice, int(cell.case))

    compare(tree, alone)


def compare(tree: Any, run_alone: Callable[[Any], Alone]) -> None:
    """Run a sweep with and without sharing, and compare each cell with its result alone."""
    apart = tree.without_sharing()
    try:
        assert tree.run().status == apart.run().status == "completed"
        cells = tree.cells()
        assert [summary_of(cell) for cell in cells] == [summary_of(cell) for cell in apart.cells()]

        prefixes: set[Any] = set()
        unshared = 0
        for cell in cells:
            alone = run_alone(cell)
            assert (cell.status, cell.path) == (alone.status, alone.path)
            if alone.error is not None:
                assert cell.error.startswith(alone.error)
            if alone.state is not None:
                expected = comparable(alone.state)
                assert comparable(cell.state) == expected
            if alone.error is None:
                assert cell.scores == {"score.count": expected.get("count", 0), "score.steps": len(alone.path)}
            unshared += len(alone.prefixes)
            prefixes |= {(cell.case, cell.repeat, prefix) for prefix in alone.prefixes}

        assert len(set(tree.identities)) == len(tree.identities)
        assert tree.unshared == apart.unshared == apart.executed == unshared
        assert tree.executed == len(prefixes) <= unshared
        event(f"saved {unshared > len(prefixes)}")
        event(f"statuses {sorted(tree.counts)}")
    finally:
        tree.database.close()
        apart.database.close()


def comparable(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a state that a cell alone also has."""
    return {
        key: value for key, value in checkpoints.visible_state(state).items() if key != "luck" and value not in ([], 0)
    }
