"""The report as one HTML file that needs nothing else: no network, no font, and scripts only for what is extra."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from wtb.display.report.charts.fork_tree import sharing
from wtb.display.report.charts.heatmap import heatmap
from wtb.display.report.charts.intervals import intervals
from wtb.display.report.charts.pareto import fronts
from wtb.display.report.charts.timeline import timeline
from wtb.display.report.html import summary
from wtb.display.report.html.cases import failures, worst
from wtb.display.report.html.effects import effects, pairs
from wtb.display.report.html.markup import text
from wtb.display.report.html.open_cases import opened
from wtb.display.report.html.provenance import origins
from wtb.display.report.html.slices import tagged

_SECTIONS = {
    "matrix": ("Matrix", heatmap),
    "intervals": ("Intervals", intervals),
    "slices": ("By tag", tagged),
    "cost": ("Cost", fronts),
    "effects": ("Effects", effects),
    "pairs": ("Pairs", pairs),
    "tree": ("Sharing", sharing),
    "cases": ("Cases", worst),
    "opened": ("Side by side", opened),
    "failures": ("Failures", failures),
    "history": ("History", timeline),
    "origins": ("What was run", origins),
}


def render(document: Mapping[str, Any]) -> str:
    """The page of what `wtb.display.report.evidence.gather` found."""
    matrix = document["matrix"]
    style, script = (files(__package__).joinpath(f"report.{kind}").read_text("utf-8") for kind in ("css", "js"))
    # Only this very script may run, and nothing may be fetched, whatever a name or message contains.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        f"script-src 'sha256-{digest}'"
    )
    made = {anchor: draw(document) for anchor, (_, draw) in _SECTIONS.items()}
    links = "".join(f'<a href="#{anchor}">{_SECTIONS[anchor][0]}</a>' for anchor, drawn in made.items() if drawn)
    sweep = matrix["sweep"]
    top = (
        f'<nav aria-label="Parts"><div>{links}</div>'
        '<button type="button" id="theme" hidden aria-label="Light or dark">◐</button></nav>'
    )
    again = f"<code>wtb report {text(sweep['id'])} --format json</code>"
    made_at = f"made {text(document['made_at'])}"
    foot = f"<footer>WTB report of sweep {text(sweep['id'])}, {made_at}. The same as data: {again}</footer>"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<link rel="icon" href="data:,">',
            f"<title>{text(sweep['name'], 100)}: report</title>",
            f"<style>{style}</style></head>",
            "<body>",
            top,
            "<main>",
            summary.head(document),
            summary.gates(document["gates"]),
            summary.warnings(matrix),
            summary.took(document),
            *filter(None, made.values()),
            foot,
            "</main>",
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )
