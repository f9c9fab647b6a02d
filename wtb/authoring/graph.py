"""The graph of a workflow: its validation, and which nodes come next. Pure: no I/O, nothing is stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wtb.authoring.edges import END, Branch, Edge, Structure
from wtb.core.errors import RoutingError, did_you_mean
from wtb.core.serialization.plain_json import storable

LONGEST_NAME = 200  # what a column has room for
_SHOWN = 1000  # characters of what a branch returned


@dataclass(frozen=True, slots=True)
class Decision:
    """Why an execution went where it went: from `node` to `to`, by branch `key` or by a condition."""

    node: str
    to: str
    key: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Route:
    """What follows a step: the next nodes in order of declaration, and who has arrived at which join."""

    next: tuple[str, ...]
    arrived: Mapping[str, tuple[str, ...]]
    decisions: tuple[Decision, ...] = ()


def entry_route(workflow: Structure) -> Route:
    return Route(_in_order(workflow, workflow.entries), {})


def route(workflow: Structure, ran: Sequence[str], arrived: Mapping[str, tuple[str, ...]], state: Any) -> Route:
    """Follow the edges out of the nodes that `ran` in one step, on the state joined after it.

    Raises RoutingError naming the node from which nothing leads on, or whose branch returned an unknown key.
    """
    following: list[str] = []
    decisions: list[Decision] = []
    waiting = {join: set(sources) for join, sources in arrived.items()}
    for node in ran:
        for edge in workflow.edges:
            if len(edge.sources) > 1 and node in edge.sources:
                waiting.setdefault(_join_name(edge), set()).add(node)
        targets, decided = _leave(workflow, node, state)
        following += targets
        decisions += decided
    for edge in workflow.edges:
        name = _join_name(edge)
        if len(edge.sources) > 1 and waiting.get(name, set()) >= set(edge.sources):
            following.append(edge.target)
            del waiting[name]
    still = {join: tuple(sorted(sources)) for join, sources in waiting.items() if sources}
    return Route(_in_order(workflow, following), still, tuple(decisions))


def _leave(workflow: Structure, node: str, state: Any) -> tuple[list[str], list[Decision]]:
    single = [e for e in workflow.edges if e.sources == (node,)]
    branches = [b for b in workflow.branches if b.source == node]
    targets = [e.target for e in single if e.when is None and not e.default]
    decisions: list[Decision] = []
    for branch in branches:
        targets.append(_follow_branch(branch, state, decisions))
    if len(targets) < len(single) + len(branches):
        chosen = _choose(node, single, state, decisions)
        if chosen is not None:
            targets.append(chosen)
        elif not targets and not any(node in e.sources for e in workflow.edges if len(e.sources) > 1):
            raise RoutingError(
                f"no edge leads on from node {node!r}: none of its conditions is true and it has no default edge"
            )
    return targets, decisions


def _choose(node: str, edges: Iterable[Edge], state: Any, decisions: list[Decision]) -> str | None:
    conditional = sorted((e for e in edges if e.when is not None), key=lambda e: -e.priority)
    for edge in conditional:
        assert edge.when is not None
        if edge.when(state):
            why = storable(str(getattr(edge.when, "__name__", "condition")), _SHOWN)
            decisions.append(Decision(node, edge.target, None, f"{why} is true"))
            return edge.target
    for edge in edges:
        if edge.default:
            decisions.append(Decision(node, edge.target, None, "no condition is true"))
            return edge.target
    return None


def _follow_branch(branch: Branch, state: Any, decisions: list[Decision]) -> str:
    key = branch.by(state)
    target = branch.targets.get(key) if isinstance(key, str) else None
    if target is None:
        if branch.default is None:
            near = did_you_mean(key, branch.targets) if isinstance(key, str) else ""
            raise RoutingError(
                f"the branch after node {branch.source!r} returned {key!r}{near}"
                f" (its keys: {', '.join(branch.targets)})"
            )
        target = branch.default
    why = getattr(branch.by, "__name__", "branch")
    shown, reason = storable(str(key), _SHOWN), storable(f"{why} returned {key!r}", _SHOWN)
    decisions.append(Decision(branch.source, target, shown, reason))
    return target


def _in_order(workflow: Structure, names: Iterable[str]) -> tuple[str, ...]:
    wanted = set(names)
    return tuple(name for name in workflow.nodes if name in wanted)


def _join_name(edge: Edge) -> str:
    return f"{'+'.join(edge.sources)}>{edge.target}"


def is_conditional(workflow: Structure) -> bool:
    """Return whether the path depends on the state, so that node runs can only be bounded before they are done."""
    conditions = any(e.when is not None or e.default for e in workflow.edges)
    return bool(workflow.branches) or conditions or workflow.is_open


def successors(workflow: Structure) -> dict[str, set[str]]:
    """Node -> nodes that may come directly after it (END included); a node with no edge leads to END."""
    after: dict[str, set[str]] = {name: set() for name in workflow.nodes}
    for source, target in _arrows(workflow):
        after.setdefault(source, set()).add(target)
    for targets in after.values():
        if not targets:
            targets.add(END)
    return after


def queue_of(workflow: Structure, nodes: Iterable[str]) -> str | None:
    """The queue that a step asks for: of the first of its nodes that names one; None is the default one."""
    asked = (workflow.nodes[node].rules.queue for node in nodes)
    return next((queue for queue in asked if queue is not None), None)


def reachable(after: Mapping[str, Iterable[str]], start: Iterable[str]) -> set[str]:
    """All nodes reached from `start`, which is included."""
    seen: set[str] = set()
    todo = list(start)
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += after.get(node, ())
    return seen


def _arrows(workflow: Structure) -> Iterator[tuple[str, str]]:
    for edge in workflow.edges:
        for source in edge.sources:
            yield source, edge.target
    for branch in workflow.branches:
        for target in (*branch.targets.values(), *([branch.default] if branch.default else [])):
            yield branch.source, target


def problems(workflow: Structure) -> list[str]:
    """Everything that is wrong with the graph, in words."""
    found = list(_name_problems(workflow))
    if found or not workflow.nodes:
        return found or ["has no nodes"]
    after = successors(workflow)
    seen = reachable(after, workflow.entries)
    found += [f"node {n!r} cannot be reached from the entry" for n in workflow.nodes if n not in seen]
    before: dict[str, set[str]] = defaultdict(set)
    for source, targets in after.items():
        for target in targets:
            before[target].add(source)
    ending = reachable(before, [END])
    stuck = [n for n in workflow.nodes if n not in ending]
    if stuck:
        found.append(f"the loop of {', '.join(map(repr, stuck))} has no way out: add an edge to END")
    else:
        found += _endless(workflow)
    return found


def odd_names(workflow: Structure) -> Iterator[str]:
    """Names that no table has room for, or that no message could show."""
    named = [("its name", workflow.name), *((f"node {name!r:.60}", name) for name in workflow.nodes)]
    for node in workflow.nodes.values():
        named += [(f"node {node.name!r:.60}, variant {name!r:.60}", name) for name in node.variants]
    for what, name in named:
        if not (0 < len(name) <= LONGEST_NAME and name.isprintable()):
            yield f"{what}: expected a name of 1 to {LONGEST_NAME} printable characters"
    if len(workflow.version) > LONGEST_NAME or not workflow.version.isprintable():
        yield f"its version: expected at most {LONGEST_NAME} printable characters"


def _name_problems(workflow: Structure) -> Iterator[str]:
    if not workflow.entries:
        yield "has no entry: call entry(node)"
    names = workflow.nodes.keys()
    for entry in workflow.entries:
        if entry not in names:
            yield f"the entry {entry!r} is not a node{did_you_mean(entry, names)}"
    for source, target in _arrows(workflow):
        if source not in names:
            yield f"an edge leaves {source!r}, which is not a node{did_you_mean(source, names)}"
        if target != END and target not in names:
            yield f"an edge from {source!r} leads to {target!r}, which is not a node{did_you_mean(target, names)}"
    for branch in workflow.branches:
        if not branch.targets:
            yield f"the branch after {branch.source!r} has no keys"
        keys: Iterable[object] = branch.targets
        for key in keys:
            if not isinstance(key, str):
                yield f"the branch after {branch.source!r} has the key {key!r}; expected text"
    for edge in workflow.edges:
        if len(set(edge.sources)) < len(edge.sources):
            yield f"the edge from {list(edge.sources)} names a node twice"
        if edge.default and not any(e.when for e in workflow.edges if e.sources == edge.sources):
            yield f"the default edge {edge.sources[0]!r} -> {edge.target!r} has no conditional edge beside it"


def _endless(workflow: Structure) -> list[str]:
    """Loops made of unconditional edges alone, which run for ever whatever the state is."""
    always: dict[str, set[str]] = defaultdict(set)
    for edge in workflow.edges:
        if len(edge.sources) == 1 and edge.when is None and not edge.default:
            always[edge.sources[0]].add(edge.target)
    for node in workflow.nodes:
        if node in reachable(always, always[node]):
            return [f"the loop through {node!r} has no way out: its edges are all unconditional"]
    return []
