"""The fork tree: each node run that combinations share is one box, as high as the combinations that it serves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from wtb.core import texts
from wtb.display.report.html import layout
from wtb.display.report.html.markup import block, cannot_tell, name, note, scrolled, section, text


def sharing(document: Mapping[str, Any]) -> str:
    """What was run once for many, by node, and what that saved."""
    found, matrix = document["tree"], document["matrix"]
    if not found["nodes"]:
        return section("tree", "Tree", cannot_tell(found["because"] or "no node has run yet"))
    executed, unshared = (sum(node[key] for node in found["nodes"]) for key in ("executed", "unshared"))
    saved = f"{texts.plural(executed, 'node run')} did the work of {unshared:,}"
    saved += f": {1 - executed / unshared:.0%} saved." if unshared > executed else "; nothing was shared."
    legend = "Left to right: the nodes as they ran. A box is what runs together: as high as the combinations it serves."
    levels = found["levels"]
    parts = [f"<p>{saved}</p>"]
    if levels:
        parts += [_tree(matrix, found), note(legend)]
    else:
        parts.append(_flat(found))
    folded = found["folded"]
    if folded:
        said = ", ".join(
            f"{one['node']} ({texts.plural(one['prefixes'], 'prefix').replace('prefixs', 'prefixes')})"
            for one in folded
        )
        parts.append(note(f"Too many to draw: {text(said, 1000)}."))
    if found["because"]:
        parts.append(note(f"Note: {text(found['because'])}."))
    return section("tree", "What was shared", *parts)


def _tree(matrix: dict[str, Any], found: Mapping[str, Any]) -> str:
    levels = found["levels"]
    leaves = levels[-1]["prefixes"]
    place = {number: row for row, leaf in enumerate(leaves) for number in leaf["combinations"]}
    totals = {node["node"]: node for node in found["nodes"]}
    most = max(1, len(matrix["rows"]))
    cells = []
    for column, level in enumerate(levels, 1):
        node = totals[level["node"]]
        kept = node["executed"] / node["unshared"] if node["unshared"] else 0.0
        said = f"{node['executed']:,} of {node['unshared']:,} runs" if node["unshared"] else "no run succeeded"
        cells.append(
            f'<div class="top" style="grid-area:1/{column}"><b>{name(level["node"], 40)}</b>'
            f'<span class="share" title="run"><i style="width:{100 * kept:.1f}%"></i></span>'
            f"<small>{said}</small></div>"
        )
        for one in level["prefixes"]:
            rows = {place[number] for number in one["combinations"]}
            cells.append(_box(one, column, min(rows) + 2, len(rows), most))
    widths = f"grid-template-columns:repeat({len(levels)},minmax(5.5rem,1fr))"
    return scrolled(f'<div class="tree" style="{widths}">{"".join(cells)}</div>')


def _box(one: Mapping[str, Any], column: int, row: int, height: int, most: int) -> str:
    count = len(one["combinations"])
    times = one["unshared"] / one["executed"] if one["executed"] else 0.0
    shade = 100 * math.log(max(1.0, times)) / math.log(most) if most > 1 else 0.0
    said = f"{texts.plural(one['executed'], 'run')} for {texts.plural(count, 'combination')}"
    tag = f"<small>×{times:.3g}</small>" if times > 1 else ""
    variant = name(one["variant"], 40) if one["variant"] else "<i>never reached</i>"
    style = f"grid-area:{row}/{column}/span {height};--v:{min(100.0, shade):.0f}"
    title = f"{text(one['variant'] or '')}: {said}"
    return f'<div class="box" style="{style}" title="{title}"><span>{variant}{tag}</span></div>'


def _flat(found: Mapping[str, Any]) -> str:
    """By node and variant, where runs form no tree that could be drawn."""
    cells = []
    for node in found["nodes"]:
        boxes = "".join(
            f"<li>{name(one['variant'], 40)} <small>{one['executed']:,} of {one['unshared']:,} runs</small></li>"
            for one in node["variants"][: layout.TOP]
        )
        cells.append(f'<div class="flat"><b>{name(node["node"], 40)}</b><ul>{boxes}</ul></div>')
    return block("div", cells, "columns")
