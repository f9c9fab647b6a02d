"""A workflow's graph as a picture: nodes by how far they are from the entry, edges that go back below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.display.report.html.markup import note, scrolled, text

WIDE, HIGH, APART, BELOW = 148, 44, 56, 18  # pixels: a box, and what is between boxes
MOST = 60  # nodes
_END = "END"

Graph = Mapping[str, Any]


def picture(graph: Graph) -> str:
    """SVG of its own size; in words where there are too many nodes."""
    nodes = {node["name"]: node for node in graph.get("nodes", ())}
    if len(nodes) > MOST:
        return note(f"{len(nodes)} nodes: too many to draw; <code>wtb graph</code> lists them.")
    arrows = _arrows(graph)
    layers = _layers(list(graph.get("entries", ())), [*nodes, _END], arrows)
    tallest = max(len(layer) for layer in layers)
    back = any(_is_back(layers, a, b) for a, b, _ in arrows)
    height = tallest * (HIGH + BELOW) + (24 if back else 4)
    place: dict[str, tuple[float, float]] = {}
    for column, layer in enumerate(layers):
        top = (tallest - len(layer)) * (HIGH + BELOW) / 2 + 2
        for row, one in enumerate(layer):
            place[one] = (2 + column * (WIDE + APART), top + row * (HIGH + BELOW))
    width = max(x for x, _ in place.values()) + WIDE + 4
    bottom = max(y for _, y in place.values()) + HIGH
    drawn = [_arrow(place, a, b, said, bottom) for a, b, said in arrows if a in place and b in place]
    drawn += [_box(nodes.get(one), one, *place[one]) for one in place]
    tip = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"'
    head = f'<marker id="tip" {tip}><path d="M0 0 8 4 0 8z"/></marker>'
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    inside = f"<defs>{head}</defs>{''.join(drawn)}"
    return scrolled(f'<svg class="graph" {size} role="img" aria-label="graph">{inside}</svg>')


def _arrows(graph: Graph) -> list[tuple[str, str, str]]:
    """(from, to, when it is taken; empty where always). A node without a way out leads to the end."""
    found = []
    for edge in graph.get("edges", ()):
        said = "if " + edge["when"] if edge["when"] else "otherwise" if edge["default"] else ""
        found += [(source, edge["to"], said.replace("<lambda>", "…")) for source in edge["from"]]
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


def _box(node: Mapping[str, Any] | None, called: str, x: float, y: float) -> str:
    middle = x + WIDE / 2
    if node is None:
        drawn = f'<rect x="{x}" y="{y + 8}" width="52" height="{HIGH - 16}" rx="14"/>'
        return f'<g>{drawn}<text x="{x + 26}" y="{y + HIGH / 2 + 4}">end</text></g>'
    count = len(node["variants"])
    variants = node["variants"][0]["name"] if count == 1 else f"{count} variants"
    return (
        f'<g><title>{text(called)}</title><rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="6"/>'
        f'<text class="node" x="{middle}" y="{y + 19}">{text(called, 18)}</text>'
        f'<text x="{middle}" y="{y + 35}">{text(variants, 20)}</text></g>'
    )


def _arrow(place: Mapping[str, tuple[float, float]], a: str, b: str, said: str, bottom: float) -> str:
    (x1, y1), (x2, y2) = place[a], place[b]
    start, end = (x1 + WIDE, y1 + HIGH / 2), (x2, y2 + HIGH / 2)
    kind = ' class="maybe"' if said else ""
    if x2 <= x1:  # round again
        low = bottom + 40  # of what bends it; the curve itself comes three quarters of the way down
        x1, x2 = x1 + WIDE / 2, x2 + WIDE / 2
        path = f"M{x1} {y1 + HIGH}C{x1} {low} {x2} {low} {x2} {y2 + HIGH}"
        middle = ((x1 + x2) / 2, bottom + 26)
    else:
        bend = (start[0] + end[0]) / 2
        path = f"M{start[0]} {start[1]}C{bend} {start[1]} {bend} {end[1]} {end[0]} {end[1]}"
        middle = (bend, (start[1] + end[1]) / 2 - 5)
    label = f'<text class="when" x="{middle[0]}" y="{middle[1]}"><title>{text(said)}</title>{text(said, 12)}</text>'
    return f'<path{kind} d="{path}" marker-end="url(#tip)"/>{label if said else ""}'
