"""A metric over time: the shipped combination and the baseline from sweep to sweep, and where code changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from wtb.core import texts
from wtb.display.matrix.summary import ARROWS
from wtb.display.report.html import layout
from wtb.display.report.html.markup import Scale, block, cannot_tell, frame, name, note, scale, section, shape, text

LABELS = 6  # dates under the chart
BESIDE = 4  # pixels by which the two combinations are off their place, so that neither interval hides the other


def timeline(document: Mapping[str, Any]) -> str:
    """A chart for each metric; in words why there is none."""
    found, matrix = document["history"], document["matrix"]
    if found["because"]:
        return (
            section("history", "History", note(f"No history yet: {text(found['because'])}."))
            if matrix["metrics"]
            else ""
        )
    legend = "Mean and 95% interval: ◆ the combination that leads now"
    legend += ". " if matrix["baseline"] is None else ", □ the baseline. "
    legend += "▲ the code of a node changed."
    if found["left_out"]:
        legend += f" Left out: {texts.plural(found['left_out'], 'sweep')} over another number of cases."
    charts = [_chart(matrix, metric, found) for metric in layout.metrics(matrix)]
    return section("history", "History", *charts, note(legend), _changes(found["sweeps"]))


def _chart(matrix: dict[str, Any], metric: str, found: Mapping[str, Any]) -> str:
    series = found["metrics"][metric]["series"]
    points = [point for one in series for point in one["points"] if point]
    better = found["metrics"][metric]["better"]
    title = f"<h3>{name(metric)} <small>{ARROWS[better]} {better} is better</small></h3>"
    if not points:
        return title + cannot_tell(f"nothing is scored by {metric}")
    y = scale([end for point in points for end in (point["mean"], *(point["ci"] or ()))], 5)
    times = [datetime.fromisoformat(one["at"]) for one in found["sweeps"]]
    x = Scale(-0.5, len(times) - 0.5, (), 0)
    drawn = [
        f'<line class="change" x1="{x.at(i)}%" x2="{x.at(i)}%" y1="0" y2="100%"/>'
        for i, one in enumerate(found["sweeps"])
        if one["code_changed"]
    ]
    for which, one in reversed(list(enumerate(series))):
        kind = "square" if one["combination"] == matrix["baseline"] else "diamond"
        beside = (2 * which - 1) * BESIDE if len(series) > 1 else 0
        drawn.append(f'<g transform="translate({beside} 0)">{"".join(_series(one["points"], kind, x, y, which))}</g>')
    marks = "".join(
        f'<span class="changed" style="left:{x.at(i)}%" title="{text(", ".join(one["code_changed"]))}">▲</span>'
        for i, one in enumerate(found["sweeps"])
        if one["code_changed"]
    )
    every = max(1, -(-len(times) // LABELS))
    labels = "".join(
        f'<span style="left:{x.at(i)}%">{_date(time, times)}</span>'
        for i, time in enumerate(times)
        if (len(times) - 1 - i) % every == 0
    )
    inside = f'<svg role="img" aria-label="{text(metric)} over time">{"".join(drawn)}</svg>{marks}'
    return title + frame(x, y, inside, ("", metric), block("div", labels, "axis", 'aria-hidden="true"'))


def _series(points: Sequence[Mapping[str, Any] | None], kind: str, x: Scale, y: Scale, which: int) -> list[str]:
    drawn = []
    for i, (one, after) in enumerate(zip(points, [*points[1:], None], strict=True)):
        if one is None:
            continue
        at, middle = x.at(i), y.up(one["mean"])
        if after is not None:
            to = f'x2="{x.at(i + 1)}%" y2="{y.up(after["mean"])}%"'
            drawn.append(f'<line class="way s{which}" x1="{at}%" y1="{middle}%" {to}/>')
        if one["ci"]:
            low, high = (y.up(end) for end in one["ci"])
            drawn.append(f'<line class="ci s{which}" x1="{at}%" x2="{at}%" y1="{low}%" y2="{high}%"/>')
        drawn.append(shape(kind, at, f"{middle}%", f"{one['mean']:.4g}"))
    return drawn


def _date(time: datetime, times: Sequence[datetime]) -> str:
    same_day = len({f"{one:%Y-%m-%d}" for one in times}) == 1
    return f"{time:%H:%M}" if same_day else f"{time:%b} {time.day}"


def _changes(sweeps: Sequence[Mapping[str, Any]]) -> str:
    changed = [one for one in sweeps if one["code_changed"]]
    if not changed:
        return note("No node's code changed between them.")
    items = "".join(
        f"<li>{datetime.fromisoformat(one['at']):%Y-%m-%d %H:%M} UTC, sweep {text(one['sweep'])}: "
        f"code of {', '.join(name(node, 40) for node in one['code_changed'][:10])} changed</li>"
        for one in changed[-10:]
    )
    return block("ul", items, "note")
