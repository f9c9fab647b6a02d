"""The costs of sweeps and executions and what they were spent for, and the series that nodes record over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from wtb.core.arguments import checked
from wtb.core.documents.plan import AllSeriesDocument, CostsDocument
from wtb.core.errors import InputError, meant_or_known
from wtb.display.views.costs import costs_document, metrics_document
from wtb.operations.context import Context
from wtb.store.access.projects import find_project
from wtb.store.read.costs import DIMENSIONS, Which
from wtb.store.read.details import find, find_target


@checked
def costs(
    context: Context,
    ref: str | None = None,
    by: Sequence[str] = (),
    *,
    since: datetime | None = None,
    project: str | None = None,
) -> CostsDocument:
    """Return what was spent, the dearest first. Failed attempts and deleted sweeps are included.

    Args:
        context: Where.
        ref: A sweep or an execution: its id, the beginning of it, or a sweep's name. None for all sweeps.
        by: Of project, session, sweep, workflow, node, variant, model and tool; by default sweep, or of one sweep or
            execution node and variant. By tool the rows are of calls of tools.
        since: Only attempts that began then or later.
        project: Only of this project.

    Returns:
        by, since, rows and total; US dollars, tokens, attempts and calls of each.

    Raises:
        InputError: If there is no such sweep, execution or project, or for what costs cannot be shown by.
    """
    dimensions = list(dict.fromkeys(by)) or (["sweep"] if ref is None else ["node", "variant"])
    for name in dimensions:
        if name not in DIMENSIONS:
            raise InputError(f"costs are not shown by {name!r}{meant_or_known(name, DIMENSIONS)}")
    if {"model", "tool"} <= set(dimensions):
        raise InputError("costs are shown by model or by tool: a call is of one of them")
    database = context.database
    # Found before anything is summed, so that a misspelt name is an error and not a table without rows.
    target = None if ref is None else find(database, ref)
    if project is not None:
        find_project(database, project)
    which = Which(
        sweep_id=target.id if target is not None and target.kind == "sweep" else None,
        execution_id=target.id if target is not None and target.kind == "execution" else None,
        project=project,
        since=None if since is None else since.timestamp(),
    )
    return costs_document(database, dimensions, which)


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
