"""Single cases, what failed, tags, and what was run: what their templates cannot tell by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from markupsafe import Markup

from wtb.display.matrix import figures
from wtb.display.report.charts.workflow_graph import MOST, picture
from wtb.display.report.html.open_cases import anchors
from wtb.display.report.html.scales import room, scale

if TYPE_CHECKING:
    from wtb.core.documents.plan import WorkflowDocument
    from wtb.core.documents.report import EvidenceDocument


SETTINGS = 20_000  # characters
_KINDS = {
    "differ": "Where combinations differ most",
    "hard": "Hard for all: the best is worse than the mean of all cases",
}


def worst(document: EvidenceDocument) -> dict[str, Any]:
    """Cases by the spread between combinations and by the worst mean, with what to look at."""
    cases = document["worst"]
    ends = [one["mean"] for one in cases["cases"]]
    ends += [side["score"] for one in cases["cases"] for side in (one["best"], one["worst"]) if side]
    on = scale(ends)
    groups = [(title, [one for one in cases["cases"] if one["why"] == kind]) for kind, title in _KINDS.items()]
    return {
        "worst": cases,
        "groups": [(title, chosen) for title, chosen in groups if chosen],
        "on": on,
        "style": Markup("--grid:{};{}").format(on.across, room([on])),
        "digits": figures.decimals(document["matrix"], cases["metric"] or ""),
        "anchors": anchors(document),
    }


def failures(document: EvidenceDocument) -> dict[str, Any] | None:
    """Causes of failed cells and scores; None where nothing failed."""
    found = document["failures"]
    counts = [one["cells"] for one in found["cells"]] + [one["scores"] for one in found["scores"]]
    return {"largest": max(counts)} if counts else None


def tagged(document: EvidenceDocument) -> dict[str, Any] | None:
    """The matrix by tag; None where tags tell no cases apart."""
    slices = document["matrix"].get("slices")
    if not slices:
        return None
    metric = slices["metric"]
    return {"slices": slices, "metric": metric, "digits": figures.decimals(document["matrix"], metric)}


def origins(document: EvidenceDocument) -> dict[str, Any]:
    """Workflow, graph, code fingerprints, environment, settings, and the command."""
    found = document["provenance"]
    nodes = len(found["graph"].get("nodes", ()))
    return {
        "too_many_nodes": nodes if nodes > MOST else 0,
        "picture": picture(cast("WorkflowDocument", found["graph"])) if 0 < nodes <= MOST else "",
        "longest": SETTINGS,
        "code": [
            (node, variant, code)
            for node, variants in found["fingerprints"].items()
            for variant, code in variants.items()
        ],
    }
