"""Users, teams, and the roles that they have in projects."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import sqlalchemy as sa

from wtb.core.access.roles import Role
from wtb.core.errors import ConflictError, NotFound, did_you_mean
from wtb.store.access.projects import check_project
from wtb.store.access.scope import in_scope
from wtb.store.bulk import fetch_record, fetch_records, insert_missing
from wtb.store.database import Database
from wtb.store.tables.access import AccessRow, TeamRow, UserRow
from wtb.store.tables.schema import access, members, now, sign_ins, teams, tokens, users

_KIND = {users: "user", teams: "team"}
_COLUMNS = [access.c[name] for name in ("project", "user", "team", "role", "created_at", "created_by")]


def create_user(database: Database, name: str, by: str) -> UserRow:
    """Make a user. Raises ConflictError where there is one of this name."""
    with database.write() as connection:
        _create(connection, users, name, by)
        return _user(connection, name)


def list_users(database: Database) -> list[UserRow]:
    """List users by name, with their teams."""
    with database.read() as connection:
        names = connection.scalars(sa.select(users.c.name).order_by(users.c.name)).all()
        return [_user(connection, name) for name in names]


def remove_user(database: Database, name: str) -> UserRow:
    """Remove a user with memberships, roles, tokens and sign-ins. Raises NotFound where there is none of this name."""
    with database.write() as connection:
        row = _user(connection, name)
        connection.execute(access.delete().where(access.c.user == name))
        active = tokens.update().where(tokens.c.user == name, tokens.c.revoked_at.is_(None))
        connection.execute(active.values(revoked_at=now()))
        connection.execute(sign_ins.delete().where(sign_ins.c.name == name))
        connection.execute(users.delete().where(users.c.name == name))
        return row


def create_team(database: Database, name: str, by: str) -> TeamRow:
    """Make a team without members. Raises ConflictError where there is one of this name."""
    with database.write() as connection:
        _create(connection, teams, name, by)
        return _team(connection, name)


def list_teams(database: Database) -> list[TeamRow]:
    """List teams by name, with their members."""
    with database.read() as connection:
        names = connection.scalars(sa.select(teams.c.name).order_by(teams.c.name)).all()
        return [_team(connection, name) for name in names]


def change_team(database: Database, name: str, *, add: Sequence[str], remove: Sequence[str]) -> TeamRow:
    """Add users to a team, and remove others. Raises NotFound where there is no such team or user."""
    with database.write() as connection:
        _check(connection, teams, name)
        for user in (*add, *remove):
            _check(connection, users, user)
        insert_missing(connection, members, [{"team": name, "user": user} for user in add])
        connection.execute(members.delete().where(members.c.team == name, members.c.user.in_(list(remove))))
        return _team(connection, name)


def remove_team(database: Database, name: str) -> TeamRow:
    """Remove a team with its memberships and roles. Raises NotFound where there is none of this name."""
    with database.write() as connection:
        _check(connection, teams, name)
        row = _team(connection, name)
        connection.execute(access.delete().where(access.c.team == name))
        connection.execute(teams.delete().where(teams.c.name == name))
        return row


def grant(
    database: Database, *, role: Role, user: str | None, team: str | None, project: str | None, by: str
) -> AccessRow:
    """Give a user or a team a role in a project (None: in all), in place of the one that they have there.

    Raises:
        NotFound: If there is no such user, team or project.
    """
    with database.write() as connection:
        if user is not None:
            _check(connection, users, user)
        if team is not None:
            _check(connection, teams, team)
        if project is not None:
            check_project(connection, project)
        connection.execute(access.delete().where(*_held(user, team, project)))
        values = {"project": project or "", "user": user or "", "team": team or "", "role": role, "created_by": by}
        (row,) = fetch_records(connection, AccessRow, access.insert().values(values).returning(*_COLUMNS))
        return _read(row)


def revoke(database: Database, *, user: str | None, team: str | None, project: str | None) -> AccessRow:
    """Take back the role of a user or a team in a project. Raises NotFound where they have none there."""
    with database.write() as connection:
        query = access.delete().where(*_held(user, team, project), *in_scope(connection, access))
        row = fetch_record(connection, AccessRow, query.returning(*_COLUMNS))
        if row is None:
            who = f"user {user!r}" if user is not None else f"team {team!r}"
            where = "all projects" if project is None else f"project {project!r}"
            raise NotFound(f"{who} has no role in {where}; `wtb access list` shows all", kind="access")
        return _read(row)


def list_access(database: Database) -> list[AccessRow]:
    """List who has which role, by project."""
    query = sa.select(*_COLUMNS).where(*in_scope(database, access))
    rows = database.records(AccessRow, query.order_by(access.c.project, access.c.user, access.c.team))
    return [_read(row) for row in rows]


def roles_of(database: Database, user: str) -> list[tuple[str | None, Role]] | None:
    """Return the roles of a user, their own and those of their teams, each with its project (None: all of them).

    Returns:
        None if there is no such user.
    """
    mine = sa.select(members.c.team).where(members.c.user == user)
    query = sa.select(access.c.project, access.c.role).where(sa.or_(access.c.user == user, access.c.team.in_(mine)))
    with database.read() as connection:
        if connection.scalar(sa.select(users.c.name).where(users.c.name == user)) is None:
            return None
        return [(project or None, Role(role)) for project, role in connection.execute(query)]


def roles_of_users(database: Database, names: Collection[str]) -> dict[str, list[tuple[str | None, Role]]]:
    """Return the roles of several users by their names, as `roles_of` does; of whom there is not, none."""
    if not names:
        return {}
    own = sa.select(access.c.user, access.c.project, access.c.role).where(access.c.user.in_(sorted(names)))
    by_team = sa.select(members.c.user, access.c.project, access.c.role).where(access.c.team == members.c.team)
    found: dict[str, list[tuple[str | None, Role]]] = {}
    for user, project, role in database.tuples(own.union_all(by_team.where(members.c.user.in_(sorted(names))))):
        found.setdefault(user, []).append((project or None, Role(role)))
    return found


def _held(user: str | None, team: str | None, project: str | None) -> list[sa.ColumnElement[bool]]:
    return [access.c.user == (user or ""), access.c.team == (team or ""), access.c.project == (project or "")]


def _read(row: AccessRow) -> AccessRow:
    """What is empty in the table is None."""
    return AccessRow(
        row.project or None, row.user or None, row.team or None, Role(row.role), row.created_at, row.created_by
    )


def _create(connection: sa.Connection, table: sa.Table, name: str, by: str) -> None:
    if connection.scalar(sa.select(table.c.name).where(table.c.name == name)) is not None:
        raise ConflictError(f"there is a {_KIND[table]} {name!r} already")
    insert_missing(connection, table, [{"name": name, "created_by": by}])


def _check(connection: sa.Connection, table: sa.Table, name: str) -> None:
    if connection.scalar(sa.select(table.c.name).where(table.c.name == name)) is None:
        kind = _KIND[table]
        near = did_you_mean(name, connection.scalars(sa.select(table.c.name).limit(1000)))
        raise NotFound(f"there is no {kind} {name!r}{near}; `wtb {kind} list` shows all", kind=kind)


def _user(connection: sa.Connection, name: str) -> UserRow:
    _check(connection, users, name)
    mine = connection.scalars(sa.select(members.c.team).where(members.c.user == name).order_by(members.c.team))
    created_at, created_by = connection.execute(
        sa.select(users.c.created_at, users.c.created_by).where(users.c.name == name)
    ).one()
    return UserRow(name, created_at, created_by, list(mine))


def _team(connection: sa.Connection, name: str) -> TeamRow:
    its = connection.scalars(sa.select(members.c.user).where(members.c.team == name).order_by(members.c.user))
    created_at, created_by = connection.execute(
        sa.select(teams.c.created_at, teams.c.created_by).where(teams.c.name == name)
    ).one()
    return TeamRow(name, created_at, created_by, list(its))
