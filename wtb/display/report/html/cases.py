"""Single cases, what failed, tags, and what was run: what their templates cannot tell by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from wtb.core.classes.frozen import frozen
from wtb.display.matrix import figures
from wtb.display.report.charts.workflow_graph import MOST, picture
from wtb.display.report.html.open_cases import anchors
from wtb.display.report.html.scales import Scale, room, scale

if TYPE_CHECKING:
    from wtb.core.documents.matrix import SlicesDocument
    from wtb.core.documents.report import EvidenceDocument, TellingCase, TellingCases


SETTINGS = 20_000  # characters
_KINDS = {
    "differ": "Where combinations differ most",
    "hard": "Hard for all: the best is worse than the mean of all cases",
}


@frozen
class Worst:
    """Cases that tell most.

    Attributes:
        groups: Titles with their cases.
        on: The scale on which scores are drawn.
        style: CSS of the chart.
        digits: Decimals of scores.
        anchors: Case -> where it is opened on the page.
    """

    worst: TellingCases
    groups: Sequence[tuple[str, Sequence[TellingCase]]]
    on: Scale
    style: Markup
    digits: int
    anchors: Mapping[str, str]


def worst(document: EvidenceDocument) -> Worst:
    """Cases by the spread between combinations and by the worst mean, with what to look at."""
    cases = document["worst"]
    ends = [one["mean"] for one in cases["cases"]]
    ends += [side["score"] for one in cases["cases"] for side in (one["best"], one["worst"]) if side]
    on = scale(ends)
    groups = [(title, [one for one in cases["cases"] if one["why"] == kind]) for kind, title in _KINDS.items()]
    return Worst(
        worst=cases,
        groups=[(title, chosen) for title, chosen in groups if chosen],
        on=on,
        style=Markup("--grid:{};{}").format(on.across, room([on])),
        digits=figures.decimals(document["matrix"], cases["metric"] or ""),
        anchors=anchors(document),
    )


@frozen
class Failures:
    """largest: how many cells or scores failed for the most frequent cause."""

    largest: int


def failures(document: EvidenceDocument) -> Failures | None:
    """Causes of failed cells and scores; None where nothing failed."""
    found = document["failures"]
    counts = [one["cells"] for one in found["cells"]] + [one["scores"] for one in found["scores"]]
    return Failures(max(counts)) if counts else None


@frozen
class Tagged:
    """The matrix by tag. digits: decimals of the metric."""

    slices: SlicesDocument
    metric: str
    digits: int


def tagged(document: EvidenceDocument) -> Tagged | None:
    """The matrix by tag; None where tags tell no cases apart."""
    slices = document["matrix"].get("slices")
    if not slices:
        return None
    metric = slices["metric"]
    return Tagged(slices, metric, figures.decimals(document["matrix"], metric))


@frozen
class Origins:
    """What was run.

    Attributes:
        too_many_nodes: How many nodes there are, where that is too many to draw; else 0.
        picture: The graph, where it is drawn.
        longest: Characters of the settings that are shown.
        code: (node, variant, fingerprint).
    """

    too_many_nodes: int
    picture: str
    longest: int
    code: Sequence[tuple[str, str, str]]


def origins(document: EvidenceDocument) -> Origins:
    """Workflow, graph, code fingerprints, environment, settings, and the command."""
    found = document["provenance"]
    nodes = len(found["graph"].get("nodes", ()))
    return Origins(
        too_many_nodes=nodes if nodes > MOST else 0,
        picture=picture(found["graph"]) if 0 < nodes <= MOST else "",
        longest=SETTINGS,
        code=[
            (node, variant, code)
            for node, variants in found["fingerprints"].items()
            for variant, code in variants.items()
        ],
    )
