"""Figures over time of nodes that run for long."""

from __future__ import annotations

from wtb.core.arguments.checking import checked
from wtb.core.documents.costs import AllSeriesDocument
from wtb.core.errors import InputError, meant_or_known
from wtb.display.views.node_metrics import metrics_document
from wtb.operations.context import Context
from wtb.store.read.references import find_target


@checked
def series(context: Context, ref: str, name: str | None = None) -> AllSeriesDocument:
    """Return what nodes recorded with `ctx.metric`, and the memory and CPU that they used.

    Args:
        context: Where.
        ref: A sweep or an execution, which is taken with what led to it: its id, the beginning of it, or a sweep's
            name.
        name: Only series of this name: that of a metric, rss, cpu, files or processes.

    Returns:
        `series`: each with its node run, execution, case, node, name, unit and points.

    Raises:
        InputError: If there is no such sweep, execution or series.
    """
    target = find_target(context.database, ref)
    document = metrics_document(context.database, target.row)
    if name is not None:
        names = sorted({recorded["name"] for recorded in document["series"]})
        if name not in names:
            what = meant_or_known(name, names) if names else "; nothing was recorded over time"
            raise InputError(f"there is no series {name!r}{what}")
        document["series"] = [recorded for recorded in document["series"] if recorded["name"] == name]
    return document
