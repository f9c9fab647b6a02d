"""What of a database somebody is limited to: some projects. Every query that finds a thing by its name asks here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from wtb.store.tables.schema import (
    access,
    approvals,
    baselines,
    budgets,
    checkpoints,
    executions,
    projects,
    schedules,
    sessions,
    sweeps,
    tokens,
    uploads,
)

if TYPE_CHECKING:
    from wtb.store.database import Database
    from wtb.store.transactions import Scope

_BY_NAME = {
    access: access.c.project,
    projects: projects.c.name,
    sessions: sessions.c.project,
    sweeps: sweeps.c.project,
    tokens: tokens.c.project,
    uploads: uploads.c.project,
}
_BY_SWEEP = (executions, checkpoints, approvals)
_BY_SESSION = (baselines, schedules)


def in_scope(place: Database | sa.Connection, table: sa.Table) -> Sequence[sa.ColumnElement[bool]]:
    """Return the conditions for rows that they are of projects which somebody may see.

    Other rows are reached from these, by ids that only they give away.

    Args:
        place: A database, or a connection of it.
        table: Where things are found by what people call them.

    Returns:
        At most one condition; none for whoever may see all.
    """
    allowed = scope_of(place).projects
    return () if allowed is None else (_condition(table, allowed),)


def scope_of(place: Database | sa.Connection) -> Scope:
    """Return what of a database, or of a connection of it, somebody is limited to."""
    if isinstance(place, sa.Connection):
        scope: Scope = place.get_execution_options()["wtb_scope"]
        return scope
    return place.scope


def _condition(table: sa.Table, allowed: frozenset[str]) -> sa.ColumnElement[bool]:
    names = sorted(allowed)
    if table in _BY_NAME:
        column: sa.ColumnElement[Any] = _BY_NAME[table]
        return column.in_(names)
    if table is budgets:
        return _of_budgets(names)
    owner = sweeps if table in _BY_SWEEP else sessions
    if table not in (*_BY_SWEEP, *_BY_SESSION):
        raise KeyError(f"no rule says whose rows of {table.name} are")
    reference = table.c.sweep_id if owner is sweeps else table.c.session_id
    return reference.in_(sa.select(owner.c.id).where(owner.c.project.in_(names)))


def _of_budgets(names: Sequence[str]) -> sa.ColumnElement[bool]:
    owners = {"project": projects.c.name, "session": sessions.c.id, "sweep": sweeps.c.id, "token": tokens.c.name}
    owned = [sa.select(sa.literal(scope), key).where(_BY_NAME[key.table].in_(names)) for scope, key in owners.items()]
    return sa.tuple_(budgets.c.scope, budgets.c.key).in_(sa.union_all(*owned))
