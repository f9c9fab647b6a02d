"""The report as one HTML file that needs nothing else: no network, no font, and scripts only for what is extra."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, cast

from markupsafe import Markup

from wtb.core.classes.frozen import frozen
from wtb.display import failure_causes
from wtb.display.matrix import gates, people
from wtb.display.report.charts.fork_tree import sharing
from wtb.display.report.charts.heatmap import heatmap
from wtb.display.report.charts.intervals import intervals
from wtb.display.report.charts.pareto import fronts
from wtb.display.report.charts.timeline import timeline
from wtb.display.report.html import environment
from wtb.display.report.html.cases import failures, origins, tagged, worst
from wtb.display.report.html.effects import effects, pairs
from wtb.display.report.html.head import head
from wtb.display.report.html.open_cases import opened
from wtb.display.report.html.people import labelled

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from wtb.core.documents.common import NodeRunCounts
    from wtb.core.documents.matrix import MatrixDocument
    from wtb.core.documents.report import EvidenceDocument


# The context of a section's template, whose fields are the names that it uses, or None where it has nothing to show.
Contextual = Callable[["EvidenceDocument"], "DataclassInstance | None"]


@frozen
class NodeRuns:
    """Node runs of each node."""

    by_node: Mapping[str, NodeRunCounts]


def _node_runs(document: EvidenceDocument) -> NodeRuns | None:
    by_node = document["matrix"]["node_runs"]["by_node"]
    return NodeRuns(by_node) if by_node else None


@frozen
class Causes:
    """Why cells failed, a line for each cause."""

    lines: Sequence[str]


def _causes(document: EvidenceDocument) -> Causes | None:
    matrix = document["matrix"]
    if not matrix["failures"]["causes"]:
        return None
    return Causes(failure_causes.lines(matrix["failures"], matrix["sweep"]["id"]))


Sections = Mapping[str, tuple[str, Contextual]]  # their titles in the navigation, and what fills in their templates
_OF_BOTH: Sections = {
    "matrix": ("Matrix", heatmap),
    "intervals": ("Intervals", intervals),
    "people": ("People", labelled),
    "slices": ("By tag", tagged),
    "cost": ("Cost", fronts),
}
SECTIONS: Sections = {
    **_OF_BOTH,
    "effects": ("Effects", effects),
    "pairs": ("Pairs", pairs),
    "tree": ("Sharing", sharing),
    "cases": ("Cases", worst),
    "opened": ("Side by side", opened),
    "failures": ("Failures", failures),
    "history": ("History", timeline),
    "origins": ("What was run", origins),
}
_OF_MATRIX: Sections = {**_OF_BOTH, "nodes": ("Node runs", _node_runs), "causes": ("Failures", _causes)}


@frozen
class ScriptedViews:
    """Sections of the page that a script draws.

    Attributes:
        titles: Their headings by their ids. The script draws each into the element `ID-view`.
        places: The section before which each stands, by its id, if the page has that section.
        script: The script, which may not contain the end of a script.
        data: JSON, which the script finds in the element `views-data`.
    """

    titles: Mapping[str, str]
    places: Mapping[str, str]
    script: str
    data: str

    def section(self, anchor: str) -> Markup:
        """A section as HTML. The first one has the data, which cannot end the element that they stand in."""
        text = Markup(
            '<section id="{0}"><h2>{1}</h2><div id="{0}-view"></div><noscript>This part needs JavaScript.</noscript>'
            "{2}</section>"
        )
        data = Markup('<script type="application/json" id="views-data">{}</script>')
        is_first = anchor == next(iter(self.titles))
        kept = data.format(Markup(self.data.replace("<", "\\u003c"))) if is_first else ""
        return text.format(anchor, self.titles[anchor], kept)


def render(document: EvidenceDocument, views: ScriptedViews | None = None) -> str:
    """The page of a report.

    Args:
        document: What `wtb.display.report.evidence.gather` found.
        views: What it shows besides.

    Returns:
        HTML.
    """
    return _page(document, "report", SECTIONS, views)


def render_matrix(matrix: MatrixDocument) -> str:
    """The page of a matrix: the parts of a report that need nothing else."""
    read = {"matrix": matrix, "gates": gates.found_in(matrix), "people": people.found_in(matrix)}
    document = cast("EvidenceDocument", read)  # all that these sections read
    return _page(document, "matrix", _OF_MATRIX)


def section(anchor: str, document: EvidenceDocument) -> Markup:
    """A section of a page as HTML; empty where it has nothing to show."""
    _, contextual = {**SECTIONS, **_OF_MATRIX}[anchor]
    if (context := contextual(document)) is None:
        return Markup()
    return Markup(environment.render(f"{anchor}.html", document=document, matrix=document["matrix"], **vars(context)))


def _page(document: EvidenceDocument, kind: str, sections: Sections, views: ScriptedViews | None = None) -> str:
    style, script = (
        files(__package__).joinpath("templates", f"report.{suffix}").read_text("utf-8") for suffix in ("css", "js")
    )
    # Only these very scripts may run, and nothing may be fetched, whatever a name or message contains.
    scripts = [script] if views is None else [script, views.script]
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "script-src " + " ".join(f"'sha256-{digest}'" for digest in digests)
    )
    made = [(anchor, title, section(anchor, document)) for anchor, (title, _) in sections.items()]
    shown = [one for one in made if one[2]]
    if views is not None:
        for anchor, title in views.titles.items():
            place = next((number for number, one in enumerate(shown) if one[0] == views.places[anchor]), len(shown))
            shown.insert(place, (anchor, title, views.section(anchor)))
    return environment.render(
        "page.html",
        kind=kind,
        matrix=document["matrix"],
        made_at=document.get("made_at"),
        policy=Markup(policy),
        style=Markup(style),
        scripts=[Markup(one) for one in scripts],
        embedded="" if views is None else "views",
        sections=shown,
        **vars(head(document)),
    )
