"""What was spent, and for what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from wtb.core.arguments.checking import checked
from wtb.core.documents.costs import CostsDocument
from wtb.core.errors import InputError, meant_or_known
from wtb.display.views.costs import costs_document
from wtb.operations.context import Context
from wtb.store.access.projects import find_project
from wtb.store.read.costs import DIMENSIONS, Which
from wtb.store.read.references import find


@checked
def costs(
    context: Context,
    ref: str | None = None,
    by: Sequence[str] = (),
    *,
    since: datetime | None = None,
    project: str | None = None,
) -> CostsDocument:
    """Return what was spent, the dearest first. Failed attempts and what was deleted since are included.

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
