"""The graph of a workflow: its validation, the nodes that come next, and the same as data for display."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import orjson

from wtb.authoring.nodes import Node, Variant
from wtb.authoring.workflow_facts import END, Branch, Edge, WorkflowFacts
from wtb.core.errors import RoutingError, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import storable, unstorable
from wtb.core.values import Json, Params

if TYPE_CHECKING:
    from wtb.core.documents.workflows import NodeDocument, WorkflowDocument

LONGEST_NAME = 200  # what a column has room for
_MAX_TEXT = 1000  # characters of the return value of a branch


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
    """The reason of a routing decision: from `node` to `to`, by branch `key` or by a condition.

    `tried` lists the edges up to the taken one, in the order in which they were tried; for a branch all of them.
    """

    node: str
    to: str
    key: str | None
    why: str
    tried: tuple[Tried, ...] = ()


@frozen(slots=True)
class Route:
    """The result of a routing step: the next nodes in order of declaration, and the arrivals at joins."""

    next: tuple[str, ...]
    arrived: Mapping[str, tuple[str, ...]]
    decisions: tuple[Decision, ...] = ()


@frozen(slots=True)
class _Exits:
    """The exits of a node: edges from it alone, branches, and joins that wait for it among others."""

    always: tuple[str, ...]
    conditional: tuple[Edge, ...]
    default: str | None
    branches: tuple[Branch, ...]
    joins: tuple[str, ...]

    @classmethod
    def of(cls, workflow: WorkflowFacts, node: str) -> _Exits:
        single = [edge for edge in workflow.edges if edge.sources == (node,)]
        # The sort is stable: among equal priorities, the order of declaration decides.
        conditional = sorted((edge for edge in single if edge.when is not None), key=lambda edge: -edge.priority)
        return cls(
            tuple(edge.target for edge in single if edge.when is None and not edge.default),
            tuple(conditional),
            next((edge.target for edge in single if edge.default), None),
            tuple(branch for branch in workflow.branches if branch.source == node),
            tuple(_join_name(edge) for edge in workflow.edges if _is_join(edge) and node in edge.sources),
        )


class Routes:
    """The edges of a workflow in the form in which steps follow them. Later additions to the workflow do not count."""

    def __init__(self, workflow: WorkflowFacts) -> None:
        self.entry = Route(_in_order(workflow, workflow.entries), {})
        self._exits = {node: _Exits.of(workflow, node) for node in workflow.nodes}
        self._joins = {_join_name(edge): edge for edge in workflow.edges if _is_join(edge)}
        self._places = {node: place for place, node in enumerate(workflow.nodes)}

    def after(self, ran: Sequence[str], arrived: Mapping[str, tuple[str, ...]], state: Any) -> Route:
        """Follow the edges out of the nodes that `ran` in one step, on the state joined after it.

        Raises RoutingError with the node that has no exit, or whose branch returned an unknown key.
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
        # END is no node, so it drops out here.
        following &= self._places.keys()
        return Route(tuple(sorted(following, key=self._places.__getitem__)), arrived, tuple(decisions))

    def _arrive(
        self, ran: Sequence[str], arrived: Mapping[str, tuple[str, ...]], following: set[str]
    ) -> dict[str, tuple[str, ...]]:
        """Return the arrivals at joins that still wait. Adds the targets of complete joins to `following`."""
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
    """Return the targets of a node's branches, and of the true condition or the default."""
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
    """Return whether the path depends on the state, so that the number of node runs can only be bounded ahead."""
    conditions = any(e.when is not None or e.default for e in workflow.edges)
    return bool(workflow.branches) or conditions or workflow.is_open


def successors(workflow: WorkflowFacts) -> dict[str, set[str]]:
    """Map each node to nodes that may come directly after it (END included). A node without edges leads to END."""
    after: dict[str, set[str]] = {name: set() for name in workflow.nodes}
    for source, target in _arrows(workflow):
        after.setdefault(source, set()).add(target)
    for targets in after.values():
        if not targets:
            targets.add(END)
    return after


def queue_of(workflow: WorkflowFacts, nodes: Iterable[str]) -> str | None:
    """Return the queue of a step: that of its first node with one; None for the default queue."""
    queues = (workflow.nodes[node].rules.queue for node in nodes)
    return next((queue for queue in queues if queue is not None), None)


def reachable(after: Mapping[str, Iterable[str]], start: Iterable[str]) -> set[str]:
    """Return all nodes that can be reached from `start`, which is included."""
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
    """Return all problems of the graph, as messages."""
    problems_found = list(_name_problems(workflow))
    # With unknown names, the questions below would only repeat the problem in other words.
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
        problems_found.append(f"the loop of {', '.join(map(repr, stuck))} has no exit; add an edge to END")
    else:
        problems_found += _endless(workflow)
    return problems_found


def odd_names(workflow: WorkflowFacts) -> Iterator[str]:
    """Yield problems of names that are too long for tables, or that messages cannot show."""
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
    for entry_node in workflow.entries:
        if entry_node not in names:
            yield f"the entry {entry_node!r} is not a node{did_you_mean(entry_node, names)}"
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
    """Return the problem of a loop of unconditional edges only, which would run for ever."""
    always: dict[str, set[str]] = defaultdict(set)
    for edge in workflow.edges:
        if len(edge.sources) == 1 and edge.when is None and not edge.default:
            always[edge.sources[0]].add(edge.target)
    for node in workflow.nodes:
        if node in reachable(always, always[node]):
            return [f"the loop through {node!r} has no way out: its edges are all unconditional"]
    return []


class _Metadata(TypedDict, total=False):
    metadata: dict[str, Json]


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of a function in an annotation: another one in each process


def outline_digest(workflow: WorkflowFacts) -> str:
    """Return the SHA-256 of all facts about a workflow that are neither code nor parameters of the sweep."""
    # Without the name: a node process imports it by path, and it may be registered under another name.
    graph = {**graph_snapshot(workflow), "name": None}
    described = [graph, workflow.max_steps, _callable_name(workflow.resources)]
    return hashlib.sha256(orjson.dumps(described, option=orjson.OPT_SORT_KEYS)).hexdigest()


def graph_snapshot(workflow: WorkflowFacts) -> WorkflowDocument:
    """Make the graph as data, for display and comparison, with functions by name."""
    return {
        "name": workflow.name,
        "version": workflow.version,
        "description": workflow.description,
        **_metadata(workflow),
        "state": {
            key.name: {"type": key.type_name or type_name(key.annotation), "reducer": _callable_name(key.reducer)}
            for key in workflow.schema.keys.values()
        },
        "entries": list(workflow.entries),
        "nodes": [_node_snapshot(node) for node in workflow.nodes.values()],
        "edges": [
            {
                "from": list(edge.sources),
                "to": "END" if edge.target == END else edge.target,
                "when": _callable_name(edge.when),
                "priority": edge.priority,
                "default": edge.default,
            }
            for edge in workflow.edges
        ],
        "branches": [
            {
                "from": branch.source,
                "by": _callable_name(branch.by),
                "to": {key: "END" if t == END else t for key, t in branch.targets.items()},
                "default": "END" if branch.default == END else branch.default,
            }
            for branch in workflow.branches
        ],
    }


def variant_parameters(workflow: WorkflowFacts) -> dict[str, dict[str, Params]]:
    """Return the parameters of each variant's callable, by node: its defaults, and the values of the variant."""
    return {
        node.name: {variant.name: _parameters(variant) for variant in node.variants.values()}
        for node in workflow.nodes.values()
    }


def _parameters(variant: Variant) -> Params:
    signature = inspect.signature(variant.fn).parameters.values() if callable(variant.fn) else ()
    defaults = {p.name: p.default for p in signature if p.kind is p.KEYWORD_ONLY and p.default is not p.empty}
    return {**defaults, **variant.params}


def _metadata(workflow: WorkflowFacts) -> _Metadata:
    """Return its metadata. Without any there is no key, so that ids of such workflows stay the same."""
    return {"metadata": dict(workflow.metadata)} if workflow.metadata else {}


def _node_snapshot(node: Node) -> NodeDocument:
    rules = node.rules
    return {
        "name": node.name,
        "default": node.default,
        "retries": rules.retries,
        "timeout": rules.timeout,
        "on_error": rules.on_error,
        "durable": rules.durable,
        "variants": [
            {
                "name": variant.name,
                "description": variant.description,
                "params": {name: _param(argument) for name, argument in variant.params.items()},
                "active": variant.active,
            }
            for variant in node.variants.values()
        ],
    }


def _param(argument: Any) -> Any:
    plain = isinstance(argument, str | int | float | bool | type(None)) and unstorable(argument) is None
    return argument if plain else storable(repr(argument))


def type_name(annotation: Any) -> str:
    """Return the name of a type for people."""
    return annotation.__name__ if isinstance(annotation, type) else _ADDRESS.sub("", str(annotation))


def _callable_name(fn: Any) -> str | None:
    return None if fn is None else getattr(fn, "__name__", type(fn).__name__)
