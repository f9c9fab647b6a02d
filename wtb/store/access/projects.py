"""Projects: what sessions, sweeps and access belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from wtb.core.arguments.checking import checked
from wtb.core.errors import ConflictError, InputError, NotFound, did_you_mean
from wtb.core.ids import DEFAULT_PROJECT
from wtb.store.access.scope import in_scope, scope_of
from wtb.store.bulk import fetch_record, insert_missing
from wtb.store.database import Database
from wtb.store.tables.access import ProjectRow
from wtb.store.tables.schema import projects, sessions, sweeps

if TYPE_CHECKING:
    from wtb.core.documents.administration import ProjectRetention


def create_project(database: Database, name: str, by: str) -> ProjectRow:
    """Make a project. Raises ConflictError where there is one of this name."""
    with database.write() as connection:
        if connection.scalar(sa.select(projects.c.name).where(projects.c.name == name)) is not None:
            raise ConflictError(f"there is a project {name!r} already")
        insert_missing(connection, projects, [{"name": name, "created_by": by}])
    return find_project(database, name)


def list_projects(database: Database) -> list[ProjectRow]:
    """List projects by name."""
    return database.records(ProjectRow, _select().where(*in_scope(database, projects)).order_by(projects.c.name))


def change_retention(database: Database, name: str, retention: ProjectRetention) -> ProjectRow:
    """Say how long finished sweeps of a project are kept. Raises NotFound with a near match."""
    with database.write() as connection:
        check_project(connection, name)
        connection.execute(projects.update().where(projects.c.name == name).values(retention=retention or None))
    return find_project(database, name)


def retentions(connection: sa.Connection) -> dict[str, ProjectRetention]:
    """Return what projects say, by name; those for which the policy holds are left out."""
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
        named: The one that its file names, if it does.
        of_session: That of its session. The sessions of the default project are open to sweeps of all others.

    Raises:
        InputError: If the project is not that of the session.
        NotFound: If there is no such project, for whoever is limited to some.
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
    """Make a project that somebody named, unless it is there; who is limited to projects can name no others.

    Raises:
        NotFound: If they named another.
    """
    if scope_of(connection).projects is not None:
        check_project(connection, name)
    else:
        insert_missing(connection, projects, [{"name": name, "created_by": "WTB"}])


def check_project(connection: sa.Connection, name: str) -> None:
    """Raises NotFound where there is no project of this name."""
    query = sa.select(projects.c.name).where(projects.c.name == name, *in_scope(connection, projects))
    if connection.scalar(query) is None:
        raise _no_project(connection, name)


def _no_project(connection: sa.Connection, name: str) -> NotFound:
    known = connection.scalars(sa.select(projects.c.name).where(*in_scope(connection, projects)).limit(1000))
    text = f"there is no project {name!r}{did_you_mean(name, known)}; `wtb project list` shows all"
    return NotFound(text, kind="project")


def _select() -> sa.Select[tuple[str, float, str, ProjectRetention | None, int, int]]:
    def count(table: sa.Table) -> sa.ScalarSelect[int]:
        return sa.select(sa.func.count()).where(table.c.project == projects.c.name).scalar_subquery()

    return sa.select(projects, count(sessions).label("sessions"), count(sweeps).label("sweeps"))
