"""The graph of a workflow: its validation, and which nodes come next. Pure: no I/O, nothing is stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from wtb.authoring.edges import END, Branch, Edge
from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.classes.frozen import frozen
from wtb.core.errors import RoutingError, did_you_mean
from wtb.core.serialization.plain_json import storable

LONGEST_NAME = 200  # what a column has room for
_MAX_TEXT = 1000  # characters of what a branch returned


@frozen(slots=True)
class Tried:
    """An edge that a decision was about.

    Attributes:
        to: The node that it leads to.
        when: The name of its condition, or its key of a branch; None for a default.
        is_taken: Whether the execution took it.
    """

    to: str
    when: str | None
    is_taken: bool


@frozen(slots=True)
class Decision:
    """Why an execution went where it went: from `node` to `to`, by branch `key` or by a condition.

    tried: the edges up to the one that was taken, in the order in which they were tried; of a branch all.
    """

    node: str
    to: str
    key: str | None
    why: str
    tried: tuple[Tried, ...] = ()


@frozen(slots=True)
class Route:
    """What follows a step: the next nodes in order of declaration, and who has arrived at which join."""

    next: tuple[str, ...]
    arrived: Mapping[str, tuple[str, ...]]
    decisions: tuple[Decision, ...] = ()


@frozen(slots=True)
class _Exits:
    """What leads on from one node: edges from it alone, branches, and the joins that wait for it among others."""

    always: tuple[str, ...]
    conditional: tuple[Edge, ...]
    default: str | None
    branches: tuple[Branch, ...]
    joins: tuple[str, ...]

    @classmethod
    def of(cls, workflow: WorkflowFacts, node: str) -> _Exits:
        single = [edge for edge in workflow.edges if edge.sources == (node,)]
        conditional = sorted((edge for edge in single if edge.when is not None), key=lambda edge: -edge.priority)
        return cls(
            tuple(edge.target for edge in single if edge.when is None and not edge.default),
            tuple(conditional),
            next((edge.target for edge in single if edge.default), None),
            tuple(branch for branch in workflow.branches if branch.source == node),
            tuple(_join_name(edge) for edge in workflow.edges if _is_join(edge) and node in edge.sources),
        )


class Routes:
    """The edges of a workflow as steps follow them. What is added to the workflow later is not seen."""

    def __init__(self, workflow: WorkflowFacts) -> None:
        self.entry = Route(_in_order(workflow, workflow.entries), {})
        self._exits = {node: _Exits.of(workflow, node) for node in workflow.nodes}
        self._joins = {_join_name(edge): edge for edge in workflow.edges if _is_join(edge)}
        self._places = {node: place for place, node in enumerate(workflow.nodes)}

    def after(self, ran: Sequence[str], arrived: Mapping[str, tuple[str, ...]], state: Any) -> Route:
        """Follow the edges out of the nodes that `ran` in one step, on the state joined after it.

        Raises RoutingError naming the node from which nothing leads on, or whose branch returned an unknown key.
        """
        following: set[str] = set()
        decisions: list[Decision] = []
        for node in ran:
            exits = self._exits[node]
            following.update(exits.always)
            if exits.branches or exits.conditional or exits.default is not None:
                following.update(_decide(node, exits, state, decisions))
        if self._joins:
            arrived = self._arrive(ran, arrived, following)
        following &= self._places.keys()
        return Route(tuple(sorted(following, key=self._places.__getitem__)), arrived, tuple(decisions))

    def _arrive(
        self, ran: Sequence[str], arrived: Mapping[str, tuple[str, ...]], following: set[str]
    ) -> dict[str, tuple[str, ...]]:
        """Who has arrived at which join that still waits; the targets of those that are complete are `following`."""
        waiting = {join: set(sources) for join, sources in arrived.items()}
        for node in ran:
            for join in self._exits[node].joins:
                waiting.setdefault(join, set()).add(node)
        for join, edge in self._joins.items():
            if waiting.get(join, set()) >= set(edge.sources):
                following.add(edge.target)
                del waiting[join]
        return {join: tuple(sorted(sources)) for join, sources in waiting.items() if sources}


def _decide(node: str, exits: _Exits, state: Any, decisions: list[Decision]) -> list[str]:
    """The targets of a node's branches, and of the condition that is true or of the default."""
    targets = [_follow_branch(branch, state, decisions) for branch in exits.branches]
    if not exits.conditional and exits.default is None:
        return targets
    target = _choose(node, exits, state, decisions)
    if target is not None:
        targets.append(target)
    elif not targets and not exits.always and not exits.joins:
        raise RoutingError(
            f"no edge leads on from node {node!r}: none of its conditions is true and it has no default edge"
        )
    return targets


def _choose(node: str, exits: _Exits, state: Any, decisions: list[Decision]) -> str | None:
    edges: list[Tried] = []
    for edge in exits.conditional:
        assert edge.when is not None
        why = storable(str(getattr(edge.when, "__name__", "condition")), _MAX_TEXT)
        if edge.when(state):
            followed = Tried(edge.target, why, True)
            decisions.append(Decision(node, edge.target, None, f"{why} is true", (*edges, followed)))
            return edge.target
        edges.append(Tried(edge.target, why, False))
    if exits.default is not None:
        followed = Tried(exits.default, None, True)
        decisions.append(Decision(node, exits.default, None, "no condition is true", (*edges, followed)))
    return exits.default


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
    key_text, reason = storable(str(key), _MAX_TEXT), storable(f"{why} returned {key!r}", _MAX_TEXT)
    edges = [Tried(end, storable(name, _MAX_TEXT), name == key) for name, end in branch.targets.items()]
    if branch.default is not None:
        edges.append(Tried(branch.default, None, key not in branch.targets))
    decisions.append(Decision(branch.source, target, key_text, reason, tuple(edges)))
    return target


def _in_order(workflow: WorkflowFacts, names: Iterable[str]) -> tuple[str, ...]:
    included = set(names)
    return tuple(name for name in workflow.nodes if name in included)


def _is_join(edge: Edge) -> bool:
    return len(edge.sources) > 1


def _join_name(edge: Edge) -> str:
    return f"{'+'.join(edge.sources)}>{edge.target}"


def is_conditional(workflow: WorkflowFacts) -> bool:
    """Return whether the path depends on the state, so that node runs can only be bounded before they are done."""
    conditions = any(e.when is not None or e.default for e in workflow.edges)
    return bool(workflow.branches) or conditions or workflow.is_open


def successors(workflow: WorkflowFacts) -> dict[str, set[str]]:
    """Node -> nodes that may come directly after it (END included); a node with no edge leads to END."""
    after: dict[str, set[str]] = {name: set() for name in workflow.nodes}
    for source, target in _arrows(workflow):
        after.setdefault(source, set()).add(target)
    for targets in after.values():
        if not targets:
            targets.add(END)
    return after


def queue_of(workflow: WorkflowFacts, nodes: Iterable[str]) -> str | None:
    """The queue that a step asks for: of the first of its nodes that names one; None is the default one."""
    queues = (workflow.nodes[node].rules.queue for node in nodes)
    return next((queue for queue in queues if queue is not None), None)


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


def _arrows(workflow: WorkflowFacts) -> Iterator[tuple[str, str]]:
    for edge in workflow.edges:
        for source in edge.sources:
            yield source, edge.target
    for branch in workflow.branches:
        for target in (*branch.targets.values(), *([branch.default] if branch.default else [])):
            yield branch.source, target


def problems(workflow: WorkflowFacts) -> list[str]:
    """Everything that is wrong with the graph, in words."""
    problems_found = list(_name_problems(workflow))
    if problems_found or not workflow.nodes:
        return problems_found or ["has no nodes"]
    after = successors(workflow)
    seen = reachable(after, workflow.entries)
    problems_found += [f"node {n!r} cannot be reached from the entry" for n in workflow.nodes if n not in seen]
    before: dict[str, set[str]] = defaultdict(set)
    for source, targets in after.items():
        for target in targets:
            before[target].add(source)
    ending = reachable(before, [END])
    stuck = [n for n in workflow.nodes if n not in ending]
    if stuck:
        problems_found.append(f"the loop of {', '.join(map(repr, stuck))} has no way out: add an edge to END")
    else:
        problems_found += _endless(workflow)
    return problems_found


def odd_names(workflow: WorkflowFacts) -> Iterator[str]:
    """Names that no table has room for, or that no message could show."""
    named = [("its name", workflow.name), *((f"node {name!r:.60}", name) for name in workflow.nodes)]
    for node in workflow.nodes.values():
        named += [(f"node {node.name!r:.60}, variant {name!r:.60}", name) for name in node.variants]
    for what, name in named:
        if not (0 < len(name) <= LONGEST_NAME and name.isprintable()):
            yield f"{what}: expected a name of 1 to {LONGEST_NAME} printable characters"
    if len(workflow.version) > LONGEST_NAME or not workflow.version.isprintable():
        yield f"its version: expected at most {LONGEST_NAME} printable characters"


def _name_problems(workflow: WorkflowFacts) -> Iterator[str]:
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
    yield from _branch_problems(workflow)
    yield from _edge_problems(workflow)


def _branch_problems(workflow: WorkflowFacts) -> Iterator[str]:
    for branch in workflow.branches:
        if not branch.targets:
            yield f"the branch after {branch.source!r} has no keys"
        keys: Iterable[object] = branch.targets
        for key in keys:
            if not isinstance(key, str):
                yield f"the branch after {branch.source!r} has the key {key!r}; expected text"


def _edge_problems(workflow: WorkflowFacts) -> Iterator[str]:
    for edge in workflow.edges:
        if len(set(edge.sources)) < len(edge.sources):
            yield f"the edge from {list(edge.sources)} names a node twice"
        if edge.default and not any(e.when for e in workflow.edges if e.sources == edge.sources):
            yield f"the default edge {edge.sources[0]!r} -> {edge.target!r} has no conditional edge beside it"


def _endless(workflow: WorkflowFacts) -> list[str]:
    """Loops made of unconditional edges alone, which run for ever whatever the state is."""
    always: dict[str, set[str]] = defaultdict(set)
    for edge in workflow.edges:
        if len(edge.sources) == 1 and edge.when is None and not edge.default:
            always[edge.sources[0]].add(edge.target)
    for node in workflow.nodes:
        if node in reachable(always, always[node]):
            return [f"the loop through {node!r} has no way out: its edges are all unconditional"]
    return []
