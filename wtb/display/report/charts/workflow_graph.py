"""A workflow's graph as a picture: nodes by how far they are from the entry, edges that go back below."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from wtb.display.report.html.environment import render

if TYPE_CHECKING:
    from wtb.core.documents.workflows.graphs import WorkflowDocument

WIDE, HIGH, APART, BELOW = 148, 44, 56, 18  # pixels: a box, and what is between boxes
MOST = 60  # nodes
_END = "END"


class _Arrow(NamedTuple):
    """An arrow between two boxes: its path, when it is taken, and where that stands."""

    path: str
    when: str
    x: float
    y: float


def picture(graph: WorkflowDocument) -> Markup:
    """SVG of its own size."""
    nodes = {node["name"]: node for node in graph.get("nodes", ())}
    arrows = _arrows(graph)
    layers = _layers(list(graph.get("entries", ())), [*nodes, _END], arrows)
    tallest = max(len(layer) for layer in layers)
    place: dict[str, tuple[float, float]] = {}
    for column, layer in enumerate(layers):
        top = (tallest - len(layer)) * (HIGH + BELOW) / 2 + 2
        for row, one in enumerate(layer):
            place[one] = (2 + column * (WIDE + APART), top + row * (HIGH + BELOW))
    bottom = max(y for _, y in place.values()) + HIGH
    drawn = [_arrow(place[a], place[b], when, bottom) for a, b, when in arrows if a in place and b in place]
    boxes = [{"node": nodes.get(one), "x": x, "y": y, "width": WIDE, "height": HIGH} for one, (x, y) in place.items()]
    width = max(x for x, _ in place.values()) + WIDE + 4
    height = tallest * (HIGH + BELOW) + (24 if any(_is_back(layers, a, b) for a, b, _ in arrows) else 4)
    return Markup(render("graph.html", arrows=drawn, boxes=boxes, width=width, height=height))


def _arrows(graph: WorkflowDocument) -> list[tuple[str, str, str]]:
    """(from, to, when it is taken; empty where always). A node without a way out leads to the end."""
    found = []
    for edge in graph.get("edges", ()):
        when = "if " + edge["when"] if edge["when"] else "otherwise" if edge["default"] else ""
        found += [(source, edge["to"], when.replace("<lambda>", "…")) for source in edge["from"]]
    for branch in graph.get("branches", ()):
        found += [(branch["from"], to, str(key)) for key, to in branch["to"].items()]
        found += [(branch["from"], branch["default"], "otherwise")] if branch["default"] else []
    sources = {source for source, _, _ in found}
    found += [(node["name"], _END, "") for node in graph.get("nodes", ()) if node["name"] not in sources]
    return found


def _layers(entries: list[str], nodes: list[str], arrows: list[tuple[str, str, str]]) -> list[list[str]]:
    """Nodes by the longest way to them that does not go round."""
    depth: dict[str, int] = {}

    def walk(node: str, at: int, behind: frozenset[str]) -> None:
        if node in behind or depth.get(node, -1) >= at:
            return
        depth[node] = at
        for source, target, _ in arrows:
            if source == node:
                walk(target, at + 1, behind | {node})

    for entry in entries:
        walk(entry, 0, frozenset())
    last = max(depth.values(), default=0)
    if _END in depth:
        depth[_END] = last = max(last, *(at + 1 for node, at in depth.items() if node != _END))
    layers: list[list[str]] = [[] for _ in range(last + 1)]
    for node in nodes:
        if node in depth:
            layers[depth[node]].append(node)
    return [layer for layer in layers if layer] or [[_END]]


def _is_back(layers: list[list[str]], a: str, b: str) -> bool:
    at = {node: column for column, layer in enumerate(layers) for node in layer}
    return at.get(b, 0) <= at.get(a, -1)


def _arrow(start: tuple[float, float], end: tuple[float, float], when: str, bottom: float) -> _Arrow:
    (x1, y1), (x2, y2) = start, end
    if x2 <= x1:  # round again
        low = bottom + 40  # of what bends it; the curve itself comes three quarters of the way down
        x1, x2 = x1 + WIDE / 2, x2 + WIDE / 2
        path = f"M{x1} {y1 + HIGH}C{x1} {low} {x2} {low} {x2} {y2 + HIGH}"
        return _Arrow(path, when, (x1 + x2) / 2, bottom + 26)
    x1, y1, y2 = x1 + WIDE, y1 + HIGH / 2, y2 + HIGH / 2
    bend = (x1 + x2) / 2
    path = f"M{x1} {y1}C{bend} {y1} {bend} {y2} {x2} {y2}"
    return _Arrow(path, when, bend, (y1 + y2) / 2 - 5)
