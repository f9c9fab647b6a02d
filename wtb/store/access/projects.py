"""Projects, to which sessions, sweeps and access belong, and the scope of a caller: its projects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from wtb.core.arguments import checked
from wtb.core.errors import ConflictError, InputError, NotFound, did_you_mean
from wtb.core.ids import DEFAULT_PROJECT
from wtb.store.bulk import fetch_record, insert_missing
from wtb.store.database import Database
from wtb.store.tables.access import ProjectRow
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
    from wtb.core.documents.access import ProjectRetention
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
    """Return the condition that rows belong to projects which the caller may see.

    Other rows are reached from these, by ids that only these rows contain.

    Args:
        place: A database, or a connection of it.
        table: A table in which things are found by their names.

    Returns:
        At most one condition; none for callers that may see all.
    """
    allowed = scope_of(place).projects
    return () if allowed is None else (_condition(table, allowed),)


def scope_of(place: Database | sa.Connection) -> Scope:
    """Return the scope of a database, or of a connection of it."""
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
    # A table without a rule must not become visible to everybody by an oversight.
    if table not in (*_BY_SWEEP, *_BY_SESSION):
        raise KeyError(f"no rule defines who may read rows of {table.name}")
    reference = table.c.sweep_id if owner is sweeps else table.c.session_id
    return reference.in_(sa.select(owner.c.id).where(owner.c.project.in_(names)))


def _of_budgets(names: Sequence[str]) -> sa.ColumnElement[bool]:
    owners = {"project": projects.c.name, "session": sessions.c.id, "sweep": sweeps.c.id, "token": tokens.c.name}
    owned = [sa.select(sa.literal(scope), key).where(_BY_NAME[key.table].in_(names)) for scope, key in owners.items()]
    return sa.tuple_(budgets.c.scope, budgets.c.key).in_(sa.union_all(*owned))


def create_project(database: Database, name: str, by: str) -> ProjectRow:
    """Create a project. Raises ConflictError if the name is taken."""
    with database.write() as connection:
        if connection.scalar(sa.select(projects.c.name).where(projects.c.name == name)) is not None:
            raise ConflictError(f"there is a project {name!r} already")
        insert_missing(connection, projects, [{"name": name, "created_by": by}])
    return find_project(database, name)


def list_projects(database: Database) -> list[ProjectRow]:
    """List projects by name."""
    return database.records(ProjectRow, _select().where(*in_scope(database, projects)).order_by(projects.c.name))


def change_retention(database: Database, name: str, retention: ProjectRetention) -> ProjectRow:
    """Set how long ended sweeps of a project are kept. Raises NotFound with a near match."""
    with database.write() as connection:
        check_project(connection, name)
        connection.execute(projects.update().where(projects.c.name == name).values(retention=retention or None))
    return find_project(database, name)


def retentions(connection: sa.Connection) -> dict[str, ProjectRetention]:
    """Return the retention of projects by name, without projects that follow the general policy."""
    query = sa.select(projects.c.name, projects.c.retention).where(projects.c.retention.is_not(None))
    return {name: retention for name, retention in connection.execute(query)}  # noqa: C416 (rows are no pairs to mypy)


@checked
def find_project(database: Database, name: str) -> ProjectRow:
    """Return a project. Raises NotFound with a near match."""
    with database.read() as connection:
        query = _select().where(projects.c.name == name, *in_scope(connection, projects))
        row = fetch_record(connection, ProjectRow, query)
        if row is None:
            raise _no_project(connection, name)
    return row


def project_to_submit_to(connection: sa.Connection, named: str | None, of_session: str) -> str:
    """Return the project of a sweep.

    Args:
        connection: In the transaction that submits it.
        named: The project that its file names, if it does.
        of_session: The project of its session. The sessions of the default project are open to sweeps of all others.

    Raises:
        InputError: If the project is not that of the session.
        NotFound: If there is no such project, for callers that are limited to some.
    """
    project = choose_project(named, of_session)
    if project != of_session:
        ensure_project(connection, project)
    return project


def choose_project(named: str | None, of_session: str) -> str:
    """Return the project of a sweep, as `project_to_submit_to` does, whether or not it exists. Raises InputError."""
    if named is None or named == of_session:
        return of_session
    if of_session != DEFAULT_PROJECT:
        raise InputError(
            f"the sweep is of project {named!r}, and its session of project {of_session!r}: name a session of {named!r}"
        )
    return named


def ensure_project(connection: sa.Connection, name: str) -> None:
    """Create a project that a caller named, unless it exists; callers that are limited to projects cannot name others.

    Raises:
        NotFound: If such a caller named another project.
    """
    # A caller that is limited to projects must not widen its own limits by creating one.
    if scope_of(connection).projects is not None:
        check_project(connection, name)
    else:
        insert_missing(connection, projects, [{"name": name, "created_by": "WTB"}])


def check_project(connection: sa.Connection, name: str) -> None:
    """Raise NotFound if there is no project of this name."""
    query = sa.select(projects.c.name).where(projects.c.name == name, *in_scope(connection, projects))
    if connection.scalar(query) is None:
        raise _no_project(connection, name)


def _no_project(connection: sa.Connection, name: str) -> NotFound:
    names = connection.scalars(sa.select(projects.c.name).where(*in_scope(connection, projects)).limit(1000))
    text = f"there is no project {name!r}{did_you_mean(name, names)}; `wtb admin project list` shows all"
    return NotFound(text, kind="project")


def _select() -> sa.Select[tuple[str, float, str, ProjectRetention | None, int, int]]:
    def count(table: sa.Table) -> sa.ScalarSelect[int]:
        return sa.select(sa.func.count()).where(table.c.project == projects.c.name).scalar_subquery()

    return sa.select(projects, count(sessions).label("sessions"), count(sweeps).label("sweeps"))
