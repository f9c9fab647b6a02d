"""How the nodes of graphs lead on, for plans, pictures and breakpoints: nothing runs by it."""

from __future__ import annotations

import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from langgraph.constants import END, START

from wtb.authoring.edges import Branch, Edge
from wtb.core.classes.frozen import frozen
from wtb.integrations.langgraph.authoring.nodes import Graph, full_name, function_of


@frozen
class Arrows:
    """The edges between the nodes of graphs, those of graphs within graphs included.

    graphs: by what their nodes' names begin with. outermost: those of them that are in no other.
    """

    graphs: Mapping[str, Graph]
    outermost: Collection[str]

    def edges(self) -> Iterator[Edge]:
        for name, graph in self.graphs.items():
            straight = [((start,), end) for start, end in sorted(_builder(graph).edges)]
            for starts, end in [*straight, *sorted(_builder(graph).waiting_edges)]:
                sources = tuple(tail for start in starts if start != START for tail in self.tails(name, start))
                yield from (Edge(sources, head) for head in self.leads_to(name, end) if sources)

    def branches(self) -> Iterator[Branch]:
        for name, graph in self.graphs.items():
            for start, by, ends, _ in _conditional(graph):
                for source in self.tails(name, start) if start != START else ():
                    yield Branch(source, {label: head for label, end in ends for head in self.leads_to(name, end)}, by)
            for start, by, targets in _unannotated(graph):
                to = {head: head for end in targets for head in self.leads_to(name, end)}
                yield from (Branch(source, to, by) for source in self._within(name, start))

    def sent_to(self, nodes: Collection[str]) -> frozenset[str]:
        """Of these nodes, those that may have no task in a step that leads to them, or several."""
        places = [
            full_name(name, end)
            for name, graph in self.graphs.items()
            for _, _, ends, sends in _conditional(graph)
            if sends
            for _, end in ends
        ]
        places += [
            full_name(name, end)
            for name, graph in self.graphs.items()
            for _, _, ends in _unannotated(graph)
            for end in ends
        ]
        return frozenset(one for one in nodes if any(f"{one}.".startswith(f"{to}.") for to in places))

    def interrupts(self) -> Iterator[str]:
        """Where graphs were compiled to be interrupted, as breakpoints are written."""
        for name, graph in self.graphs.items():
            everywhere = [place for place in graph.nodes if place != START and not graph.nodes[place].is_error_handler]
            for place in everywhere if graph.interrupt_before_nodes == "*" else graph.interrupt_before_nodes:
                yield from (f"before {node}" for node in self.leads_to(name, place))
            for place in everywhere if graph.interrupt_after_nodes == "*" else graph.interrupt_after_nodes:
                yield from (f"after {node}" for node in self.tails(name, place))

    def heads(self, name: str) -> list[str]:
        """The nodes that a graph may begin with."""
        graph = self.graphs[name]
        places = [end for start, end in sorted(_builder(graph).edges) if start == START]
        places += [end for start, _, ends, _ in _conditional(graph) if start == START for _, end in ends]
        return list(dict.fromkeys(head for place in places for head in self.leads_to(name, place)))

    def leads_to(self, name: str, place: str) -> list[str]:
        """The nodes that are next where an edge leads to a place in a graph."""
        if place == END:  # of a graph within another: what follows is led to from its tails
            return [END] if name in self.outermost else []
        full = full_name(name, place)
        return self.heads(full) if full in self.graphs else [full]

    def tails(self, name: str, place: str) -> list[str]:
        """The nodes after which a place in a graph is done: itself, or the last ones of the graph that it is."""
        full = full_name(name, place)
        if full not in self.graphs:
            return [full]
        inner = self.graphs[full]
        leads = {start for start, end in _builder(inner).edges if end != END}
        leads |= {start for starts, _ in _builder(inner).waiting_edges for start in starts}
        leads |= {start for start, _, ends, _ in _conditional(inner) if all(end != END for _, end in ends)}
        last = [one for one, node in inner.nodes.items() if one not in {*leads, START} and not node.is_error_handler]
        return [tail for one in last for tail in self.tails(full, one)]

    def _within(self, name: str, place: str) -> Iterator[str]:
        """The nodes that a place in a graph is: itself, or those of the graph that it is."""
        full = full_name(name, place)
        if full not in self.graphs:
            yield full
            return
        for inner, node in self.graphs[full].nodes.items():
            if inner != START and not node.is_error_handler:
                yield from self._within(full, inner)

    @property
    def is_open(self) -> bool:
        """Return True if the edges do not determine how often nodes run.

        Conditions decide where a graph begins, nodes wait until nothing else is to be done, or those of a graph within
        take their steps beside others.
        """
        within = len(self.graphs) > len(self.outermost)
        return any(
            START in _builder(graph).branches
            or any(spec.defer for spec in _builder(graph).nodes.values())
            or (within and _parts(graph))
            for graph in self.graphs.values()
        )


def _builder(graph: Graph) -> Any:
    return graph.builder  # type: ignore[attr-defined]


def _conditional(graph: Graph) -> Iterator[tuple[str, Any, list[tuple[str, str]], bool]]:
    """The conditional edges of a graph: from where, decided by what, and (label, target) of where to.

    The last says whether it may lead to none of them, or to one several times.
    """
    builder = _builder(graph)
    anywhere = [(place, place) for place in (*builder.nodes, END)]
    for start, branches in builder.branches.items():
        for branch in branches.values():
            ends = anywhere if branch.ends is None else [(str(label), end) for label, end in branch.ends.items()]
            by = function_of(branch.path)
            yield start, by, ends, not _names_one(by)
    for place, spec in builder.nodes.items():
        if spec.ends:  # where its Command may lead
            yield place, function_of(spec.runnable), [(end, end) for end in spec.ends], True


def _unannotated(graph: Graph) -> Iterator[tuple[str, Any, list[str]]]:
    """From where, decided by what, and where to a Command may lead that no annotation names.

    A node that nothing leads to can only be reached so: from any node that does not say where its Commands lead.
    """
    builder = _builder(graph)
    led_to = {end for _, end in (*builder.edges, *builder.waiting_edges)}
    led_to |= {end for _, _, ends, _ in _conditional(graph) for _, end in ends}
    steps = {place: spec for place, spec in builder.nodes.items() if not spec.is_error_handler}
    if unreached := [place for place in steps if place not in led_to]:
        for place, spec in steps.items():
            if others := [one for one in unreached if one != place and not spec.ends]:
                yield place, function_of(spec.runnable), others


def _names_one(by: Any) -> bool:
    """Return True if the function of a conditional edge is annotated to return one name."""
    try:
        annotation = typing.get_type_hints(by).get("return")
    except (TypeError, NameError):  # a runnable, or what cannot be resolved
        return False
    return annotation is str or (
        typing.get_origin(annotation) is typing.Literal and all(isinstance(a, str) for a in typing.get_args(annotation))
    )


def _parts(graph: Graph) -> bool:
    """Whether several nodes may follow one, so that those of a graph within take steps beside others."""
    builder = _builder(graph)
    starts = [start for start, _ in builder.edges]
    return len(starts) > len(set(starts))
