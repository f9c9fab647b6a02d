"""Single cases: those that tell most, and what failed, grouped by cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.core import texts
from wtb.display.matrix import summary
from wtb.display.report.html import layout
from wtb.display.report.html.markup import (
    Scale,
    axis,
    block,
    cannot_tell,
    grid,
    name,
    note,
    room,
    scale,
    section,
    shape,
    text,
)
from wtb.display.report.html.open_cases import anchors

_KINDS = {
    "differ": "Where combinations differ most",
    "hard": "Hard for all: the best is worse than the mean of all cases",
}


def worst(document: Mapping[str, Any]) -> str:
    """Cases by the spread between combinations and by the worst mean, with what to look at."""
    found, matrix = document["worst"], document["matrix"]
    if found["because"]:
        return section("cases", "Cases", cannot_tell(found["because"]))
    ends = [one["mean"] for one in found["cases"]]
    ends += [one[key]["score"] for one in found["cases"] for key in ("best", "worst") if one[key]]
    on = scale(ends)
    digits = summary.decimals(matrix, found["metric"])
    legend = (
        f"By {text(found['metric'])}: ● best and ○ worst combination of the case, | mean of all. "
        "<code>wtb diff</code> shows where the two part, and in what they end."
    )
    parts, places = [note(legend)], anchors(document)
    for kind, title in _KINDS.items():
        chosen = [one for one in found["cases"] if one["why"] == kind]
        if chosen:
            rows = [
                block(
                    "div", ["<span></span>", axis(on), f'<span class="faint">{layout.nodes(matrix)}</span>'], "row axes"
                )
            ]
            rows += [_case(matrix, one, on, digits, places.get(one["case"])) for one in chosen]
            parts += [f"<h3>{title}</h3>", block("div", rows, "intervals cases", f'style="{grid(on)};{room([on])}"')]
    return section("cases", "Cases", *parts)


def _case(matrix: dict[str, Any], one: Mapping[str, Any], on: Scale, digits: int, place: str | None) -> str:
    middle = on.at(one["mean"])
    drawn = f'<line class="cap" x1="{middle}%" x2="{middle}%" y1="20%" y2="80%"/>'
    mean = summary.number(one["mean"], digits)
    told = f"all {one['n']} score {mean}" if one["n"] > 1 else mean
    if one["best"]:
        ends = [one[key]["score"] for key in ("best", "worst")]
        high, low = (on.at(end) for end in ends)
        best, worst = (summary.number(end, digits) for end in ends)
        between = f'<line class="ci" x1="{low}%" x2="{high}%" y1="50%" y2="50%"/>'
        drawn = between + drawn + shape("ring", low) + shape("dot", high)
        told = (
            f"<b>{best}</b> {layout.label(matrix, one['best']['combination'])}<br>"
            f"<b>{worst}</b> {layout.label(matrix, one['worst']['combination'])}"
            f"<br>{_parted(one)}"
        )
    plot = f'<svg class="plot" aria-hidden="true">{drawn}</svg>'
    who = name(one["case"], 80)
    who = f'<a href="#{place}">{who}</a>' if place else who  # where it is opened
    return block("div", [f'<span class="who">{who}</span>', plot, f'<span class="told">{told}</span>'], "row")


def _parted(one: Mapping[str, Any]) -> str:
    if one["parted"] is None:
        return f'<span class="faint">{text(one["because"] or "")}</span>'
    command = f"wtb diff {one['best']['execution']} {one['worst']['execution']}"
    return f'<span class="faint">first different at {name(one["parted"], 60)}</span><br><code>{text(command)}</code>'


def failures(document: Mapping[str, Any]) -> str:
    """Causes, the most frequent first; a sentence where nothing failed."""
    found, matrix = document["failures"], document["matrix"]
    most = max((one.get("cells", one.get("scores")) for key in ("cells", "scores") for one in found[key]), default=0)
    if not most:
        return ""
    items = [_failure(matrix, one, most) for one in found["cells"]]
    items += [_score(matrix, one, most) for one in found["scores"]]
    more = (
        note(f"{found['left_out']} rarer causes: <code>wtb show SWEEP --cells --failed</code>")
        if found["left_out"]
        else ""
    )
    return section("failures", "Failures by cause", block("ul", items, "causes"), more)


def _failure(matrix: dict[str, Any], one: Mapping[str, Any], most: int) -> str:
    where = f"{name(one['node'])}: " if one["node"] else ""
    aside = f", {one['set_aside']:,} of them set aside" if one["set_aside"] else ""
    example = one["example"]
    shown_by = f" <code>{text('wtb show ' + example['execution'])}</code>" if example["execution"] else ""
    told = text(layout.concerned(matrix, one["combinations"]), 400) + aside
    told += f"; such as case {name(example['case'], 80)}{shown_by}"
    what = f"{where}<b>{text(one['type'] or 'no error was recorded')}</b> {text(one['message'] or '')}"
    return _cause(what, texts.plural(one["cells"], "cell"), told, one["cells"] / most)


def _score(matrix: dict[str, Any], one: Mapping[str, Any], most: int) -> str:
    what = f"scoring by {name(one['metric'])}: {text(one['message'])}"
    told = text(layout.concerned(matrix, one["combinations"]), 400)
    return _cause(what, texts.plural(one["scores"], "score"), told, one["scores"] / most)


def _cause(what: str, count: str, told: str, share: float) -> str:
    bar = f'<span class="share"><i style="width:{100 * share:.1f}%"></i></span>'
    return f'<li><b class="count">{count}</b>{bar}<p dir="auto">{what}</p><p class="faint">{told}</p></li>'
