"""A workflow in a terminal: its nodes in the order of the graph, with their variants, and where each leads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.cells import cell_len

from wtb.core import texts
from wtb.core.frozen import frozen
from wtb.core.texts import printable
from wtb.core.values import Params
from wtb.display.tables import facts, grid, wrapped

if TYPE_CHECKING:
    from wtb.core.documents import workflows as documents

Parameters = Mapping[str, Mapping[str, Params]]


@frozen
class _Arrow:
    """A way out of a node, and when it is taken."""

    target: str
    when: str = ""


def listed(document: documents.WorkflowsDocument, width: int, color: bool = False) -> str:
    """Registered workflows and where they are imported from."""
    rows = [[workflow["name"], workflow["path"]] for workflow in document["workflows"]]
    return grid(["workflow", "import path"], rows, width, color=color)


def list_published(document: documents.PublicationsDocument, width: int, color: bool = False) -> str:
    """Show what workers publish: workflows and evaluators, by whom, and what cannot be imported."""
    publications = [*document["workflows"], *document["evaluators"]]
    if not publications:
        return "no worker publishes anything: register workflows in the wtb.toml of a worker\n"
    rows = [
        [
            publication["kind"],
            publication["name"],
            publication["published_by"] or "",
            texts.moment(publication["published_at"] or publication["failed_at"]),
        ]
        for publication in publications
    ]
    notes = [
        f"{publication['failed_by']}: {publication['error']}" if publication["error"] else ""
        for publication in publications
    ]
    return grid(["kind", "name", "by", "since"], rows, width, notes=notes, color=color)


def draw_published(document: documents.PublishedWorkflowDocument, width: int, color: bool = False) -> str:
    """Draw as text what workers publish of a workflow."""
    description = document["description"]
    if description is None:
        return f"{printable(document['name'])}: {document['failed_by']} cannot import it: {document['error']}\n"
    parameters = {
        node: {name: variant["params"] | variant["shown"] for name, variant in described["variants"].items()}
        for node, described in description["nodes"].items()
    }
    return draw(description["graph"], parameters, width, color)


def draw(graph: documents.WorkflowDocument, parameters: Parameters, width: int, color: bool = False) -> str:
    """The graph as text. `parameters`: node -> variant -> what its callable takes, with the values in force."""
    version = f" (version {graph['version']})" if graph["version"] else ""
    lines = [_bold(printable(graph["name"]), color) + version]
    if graph["description"]:
        lines += wrapped(graph["description"], width)
    if metadata := graph.get("metadata"):
        lines += wrapped(texts.metadata(metadata), width)
    order = _order(graph)
    lines += ["", f"start ─▶ {', '.join(map(printable, graph['entries']))}"]
    for node in order:
        lines += ["", *_node(graph, node, order, parameters.get(node, {}), width, color)]
    state = [(f"  {key}", _type(schema)) for key, schema in graph["state"].items()]
    text = "\n".join(lines) + "\n"
    return text + ("\nstate\n" + facts(state, width) if state else "")


def _order(graph: documents.WorkflowDocument) -> list[str]:
    """Nodes in the order in which they can be reached first, those that wait for others after them."""
    seen: list[str] = []
    todo = list(graph["entries"])
    while todo:
        node = todo.pop(0)
        if node in seen or node == "END":
            continue
        seen.append(node)
        todo += [arrow.target for arrow in _arrows(graph, node)]
    return seen + [node["name"] for node in graph["nodes"] if node["name"] not in seen]


def _arrows(graph: documents.WorkflowDocument, node: str) -> list[_Arrow]:
    arrows = []
    for edge in sorted(graph["edges"], key=lambda edge: -edge["priority"]):
        if node not in edge["from"]:
            continue
        other_sources = [name for name in edge["from"] if name != node]
        when = ""
        if other_sources:
            when = f"once {' and '.join(other_sources)} {'has' if len(other_sources) == 1 else 'have'} run too"
        elif edge["when"]:
            when = f"when {_condition(edge['when'])}" + (f", priority {edge['priority']}" if edge["priority"] else "")
        elif edge["default"]:
            when = "otherwise"
        arrows.append(_Arrow(edge["to"], when))
    for branch in graph["branches"]:
        if branch["from"] == node:
            by = _condition(branch["by"])
            arrows += [_Arrow(target, f"when {by} is {key!r}") for key, target in branch["to"].items()]
            arrows += [_Arrow(branch["default"], f"when {by} is anything else")] if branch["default"] else []
    return arrows or [_Arrow("END")]


def _condition(name: str | None) -> str:
    return name if name and name != "<lambda>" else "a condition holds"


def _node(
    graph: documents.WorkflowDocument,
    name: str,
    order: list[str],
    parameters: Mapping[str, Params],
    width: int,
    color: bool,
) -> list[str]:
    node = next(candidate for candidate in graph["nodes"] if candidate["name"] == name)
    rules = _rules(node)
    lines = [_bold(printable(name), color) + (f"  ({rules})" if rules else "")]
    named = [(variant, _variant_name(variant, node)) for variant in node["variants"]]
    indent = min(26, max(cell_len(variant_name) for _, variant_name in named) + 2)
    for variant, variant_name in named:
        words_ = _about(variant, parameters.get(variant["name"], variant["params"]))
        text_lines = wrapped(words_, width, "│" + " " * (indent + 1)) if words_ else [""]
        gap = " " * max(2, indent - cell_len(variant_name))
        # The name of the variant takes the place of the indent in the first line.
        first = text_lines[0][indent + 2 :]
        lines.append(f"│ {variant_name}{gap}{first}".rstrip())
        lines += text_lines[1:]
    arrows = _arrows(graph, name)
    names = [_target(arrow.target, name, order) for arrow in arrows]
    room = max(map(cell_len, names)) + 2
    for number, (arrow, target) in enumerate(zip(arrows, names, strict=True)):
        corner = "└─▶" if number == len(arrows) - 1 else "├─▶"
        lines.append(texts.cut(f"{corner} {target:<{room}}{arrow.when}".rstrip(), width))
    return lines


def _target(target: str, node: str, order: list[str]) -> str:
    # An arrow upwards marks the way back of a loop.
    if target in order and order.index(target) <= order.index(node):
        return f"{printable(target)} ↑"
    return "end" if target == "END" else printable(target)


def _variant_name(variant: documents.VariantDocument, node: documents.NodeDocument) -> str:
    marks = [
        *(["default"] if variant["name"] == node["default"] != "default" else []),
        *([] if variant["active"] else ["inactive"]),
    ]
    return printable(variant["name"]) + (f" ({', '.join(marks)})" if marks else "")


def _about(variant: documents.VariantDocument, parameters: Params) -> str:
    arguments = " ".join(f"{name}={argument!r}" for name, argument in parameters.items())
    return "  ".join(part for part in (variant["description"], arguments and f"[{arguments}]") if part)


def _rules(node: documents.NodeDocument) -> str:
    return ", ".join(
        rule
        for rule, holds in (
            (f"{node['retries']} retries" if node["retries"] > 1 else "1 retry", node["retries"]),
            (f"timeout {node['timeout']:g} s" if node["timeout"] else "", node["timeout"]),
            ("skipped where it fails", node["on_error"] == "skip"),
            ("durable", node["durable"]),
        )
        if holds
    )


def _type(key: documents.StateKey) -> str:
    return f"{key['type']}" + (f", joined by {key['reducer']}" if key["reducer"] else "")


def _bold(text: str, color: bool) -> str:
    return f"\x1b[1m{text}\x1b[0m" if color else text
