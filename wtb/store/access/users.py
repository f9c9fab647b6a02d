"""Users, teams, and the roles that they have in projects; their access tokens and sign-ins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from wtb.core.errors import ConflictError, NotFound, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.ids import new_id
from wtb.core.roles import Role
from wtb.store.access.projects import check_project, in_scope
from wtb.store.bulk import fetch_record, fetch_records, insert_missing
from wtb.store.database import Database
from wtb.store.tables.access import AccessRow, SignInRow, TeamRow, TokenRow, UserRow
from wtb.store.tables.column_types import is_ahead
from wtb.store.tables.schema import access, members, now, sign_ins, teams, tokens, users
from wtb.store.transactions import clock

_KIND = {users: "user", teams: "team"}
_COLUMNS = [access.c[name] for name in ("project", "user", "team", "role", "created_at", "created_by")]


def create_user(database: Database, name: str, by: str) -> UserRow:
    """Create a user. Raises ConflictError if the name is taken."""
    with database.write() as connection:
        _create(connection, users, name, by)
        return _user(connection, name)


def list_users(database: Database) -> list[UserRow]:
    """List users by name, with their teams."""
    with database.read() as connection:
        names = connection.scalars(sa.select(users.c.name).order_by(users.c.name)).all()
        return [_user(connection, name) for name in names]


def remove_user(database: Database, name: str) -> UserRow:
    """Remove a user with memberships, roles, tokens and sign-ins. Raises NotFound if there is none of this name."""
    with database.write() as connection:
        row = _user(connection, name)
        connection.execute(access.delete().where(access.c.user == name))
        # Revoked and not deleted: the audit log refers to tokens by their names, which must not be given again.
        active = tokens.update().where(tokens.c.user == name, tokens.c.revoked_at.is_(None))
        connection.execute(active.values(revoked_at=now()))
        connection.execute(sign_ins.delete().where(sign_ins.c.name == name))
        connection.execute(users.delete().where(users.c.name == name))
        return row


def create_team(database: Database, name: str, by: str) -> TeamRow:
    """Create a team without members. Raises ConflictError if the name is taken."""
    with database.write() as connection:
        _create(connection, teams, name, by)
        return _team(connection, name)


def list_teams(database: Database) -> list[TeamRow]:
    """List teams by name, with their members."""
    with database.read() as connection:
        names = connection.scalars(sa.select(teams.c.name).order_by(teams.c.name)).all()
        return [_team(connection, name) for name in names]


def change_team(database: Database, name: str, *, add: Sequence[str], remove: Sequence[str]) -> TeamRow:
    """Add users to a team, and remove others. Raises NotFound if there is no such team or user."""
    with database.write() as connection:
        _check(connection, teams, name)
        for user in (*add, *remove):
            _check(connection, users, user)
        # Adding a member twice changes nothing, so that a call can be repeated.
        insert_missing(connection, members, [{"team": name, "user": user} for user in add])
        connection.execute(members.delete().where(members.c.team == name, members.c.user.in_(list(remove))))
        return _team(connection, name)


def remove_team(database: Database, name: str) -> TeamRow:
    """Remove a team with its memberships and roles. Raises NotFound if there is none of this name."""
    with database.write() as connection:
        row = _team(connection, name)
        connection.execute(access.delete().where(access.c.team == name))
        connection.execute(teams.delete().where(teams.c.name == name))
        return row


def grant(
    database: Database, *, role: Role, user: str | None, team: str | None, project: str | None, by: str
) -> AccessRow:
    """Grant a user or a team a role in a project (None: in all), instead of the role that they have there.

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
        connection.execute(access.delete().where(*_match_access(user, team, project)))
        values = {"project": project or "", "user": user or "", "team": team or "", "role": role, "created_by": by}
        (row,) = fetch_records(connection, AccessRow, access.insert().values(values).returning(*_COLUMNS))
        return _read(row)


def revoke(database: Database, *, user: str | None, team: str | None, project: str | None) -> AccessRow:
    """Revoke the role of a user or a team in a project. Raises NotFound if they have none there."""
    with database.write() as connection:
        query = access.delete().where(*_match_access(user, team, project), *in_scope(connection, access))
        row = fetch_record(connection, AccessRow, query.returning(*_COLUMNS))
        if row is None:
            who = f"user {user!r}" if user is not None else f"team {team!r}"
            where = "all projects" if project is None else f"project {project!r}"
            raise NotFound(f"{who} has no role in {where}; `wtb admin access list` shows all", kind="access")
        return _read(row)


def list_access(database: Database) -> list[AccessRow]:
    """List all roles, by project."""
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
    """Return the roles of several users by their names, as `roles_of` does; unknown users have none."""
    if not names:
        return {}
    own = sa.select(access.c.user, access.c.project, access.c.role).where(access.c.user.in_(sorted(names)))
    by_team = sa.select(members.c.user, access.c.project, access.c.role).where(access.c.team == members.c.team)
    roles: dict[str, list[tuple[str | None, Role]]] = {}
    for user, project, role in database.tuples(own.union_all(by_team.where(members.c.user.in_(sorted(names))))):
        roles.setdefault(user, []).append((project or None, Role(role)))
    return roles


def _match_access(user: str | None, team: str | None, project: str | None) -> list[sa.ColumnElement[bool]]:
    return [access.c.user == (user or ""), access.c.team == (team or ""), access.c.project == (project or "")]


def _read(row: AccessRow) -> AccessRow:
    """Return a row with None instead of the empty texts of the table."""
    # The columns are part of the primary key, in which PostgreSQL allows no NULL.
    return AccessRow(
        row.project or None, row.user or None, row.team or None, Role(row.role), row.created_at, row.created_by
    )


def _create(connection: sa.Connection, table: sa.Table, name: str, by: str) -> None:
    if connection.scalar(sa.select(table.c.name).where(table.c.name == name)) is not None:
        raise ConflictError(f"there is a {_KIND[table]} {name!r} already")
    insert_missing(connection, table, [{"name": name, "created_by": by}])


def _check(connection: sa.Connection, table: sa.Table, name: str) -> sa.Row[Any]:
    """Return the columns of a user or a team. Raises NotFound with a near match."""
    row = connection.execute(sa.select(table).where(table.c.name == name)).first()
    if row is None:
        kind = _KIND[table]
        near = did_you_mean(name, connection.scalars(sa.select(table.c.name).limit(1000)))
        raise NotFound(f"there is no {kind} {name!r}{near}; `wtb {kind} list` shows all", kind=kind)
    return row


def _user(connection: sa.Connection, name: str) -> UserRow:
    mine = sa.select(members.c.team).where(members.c.user == name).order_by(members.c.team)
    return UserRow(**_check(connection, users, name)._mapping, teams=list(connection.scalars(mine)))


def _team(connection: sa.Connection, name: str) -> TeamRow:
    its = sa.select(members.c.user).where(members.c.team == name).order_by(members.c.user)
    return TeamRow(**_check(connection, teams, name)._mapping, members=list(connection.scalars(its)))


USED_S = 60  # precision of the last use of a token: a write for each request would be too much


def is_active() -> sa.ColumnElement[bool]:
    """Return the condition that a token was neither revoked nor has expired."""
    return sa.and_(tokens.c.revoked_at.is_(None), sa.not_(_has_expired()))


def _has_expired() -> sa.ColumnElement[bool]:
    """Return the condition that a token has expired.

    A token with an expiry that was created while the clock was ahead would live too long, so it counts as expired.
    """
    is_up = sa.or_(tokens.c.expires_at <= now(), is_ahead(tokens.c.created_at))
    return sa.and_(tokens.c.expires_at.is_not(None), is_up)


@frozen
class NewToken:
    """A token to be stored.

    Attributes:
        name: Its name.
        digest: SHA-256 of the token, in hexadecimal digits.
        scopes: The permissions of its holder.
        by: The caller that creates it.
        project: The project to which it is limited; None for all.
        user: The user whose roles bound it; None for no user.
        expires_s: Seconds until it expires; None for never.
    """

    name: str
    digest: str
    scopes: Sequence[str]
    by: str
    project: str | None = None
    user: str | None = None
    expires_s: float | None = None


def create_token(database: Database, new: NewToken, also: Callable[[sa.Connection], None]) -> TokenRow:
    """Store a token by its digest.

    Args:
        database: The database.
        new: The token.
        also: Writes more in the same transaction.

    Raises:
        NotFound: If there is no such project or user.
        ConflictError: If there is, or was, a token of this name.
    """
    name, project = new.name, new.project
    expires_at = None if new.expires_s is None else now() + new.expires_s
    columns: dict[str, Any] = {
        "id": new_id(),
        "name": name,
        "digest": new.digest,
        "scopes": list(new.scopes),
        "created_by": new.by,
    }
    columns |= {"expires_at": expires_at, "project": project, "user": new.user}
    query = tokens.insert().values(columns).returning(tokens)
    try:
        with database.write() as connection:
            if project is not None:
                check_project(connection, project)
            if new.user is not None:
                _check_user(connection, new.user)
            (row,) = fetch_records(connection, TokenRow, query)
            also(connection)
            return row
    except IntegrityError:
        raise ConflictError(f"there is, or was, a token {name!r}; choose another name") from None


def list_tokens(database: Database) -> list[TokenRow]:
    """List all tokens, the newest first."""
    return database.records(
        TokenRow, sa.select(tokens).where(*in_scope(database, tokens)).order_by(tokens.c.created_at.desc(), tokens.c.id)
    )


def expired_tokens(database: Database) -> frozenset[str]:
    """Return the ids of the tokens that have expired by the database's clock."""
    return frozenset(database.scalars(sa.select(tokens.c.id).where(_has_expired(), *in_scope(database, tokens))))


def revoke_token(database: Database, name: str) -> TokenRow:
    """Revoke a token, if it is active. Raises NotFound if there is none of this name."""
    with database.write() as connection:
        query = tokens.update().where(tokens.c.name == name, *in_scope(connection, tokens))
        query = query.values(revoked_at=sa.func.coalesce(tokens.c.revoked_at, now()))
        for row in fetch_records(connection, TokenRow, query.returning(tokens)):
            return row
        raise _no_token(connection, name)


def check_token(connection: sa.Connection, name: str) -> None:
    """Raise NotFound if there is no token of this name."""
    if connection.scalar(sa.select(tokens.c.id).where(tokens.c.name == name, *in_scope(connection, tokens))) is None:
        raise _no_token(connection, name)


def _check_user(connection: sa.Connection, name: str) -> None:
    if connection.scalar(sa.select(users.c.name).where(users.c.name == name)) is None:
        raise NotFound(f"there is no user {name!r}; `wtb admin user list` shows all", kind="user")


def _no_token(connection: sa.Connection, name: str) -> NotFound:
    near = did_you_mean(
        name, connection.scalars(sa.select(tokens.c.name).where(*in_scope(connection, tokens)).limit(1000))
    )
    return NotFound(f"there is no token {name!r}{near}; `wtb admin token list` shows all", kind="token")


def use_token(database: Database, digest: str) -> TokenRow | None:
    """Return the token with a digest, if it is active, and record its use."""
    # Read first: most uses are within `USED_S` of the last one, and need no writing transaction.
    with database.read() as connection:
        row = fetch_record(connection, TokenRow, sa.select(tokens).where(tokens.c.digest == digest, is_active()))
        at = clock(connection)
    if row is not None and (row.used_at is None or not at - USED_S <= row.used_at <= at):
        database.execute(tokens.update().where(tokens.c.id == row.id).values(used_at=now()))
    return row


def active_digests(database: Database, digests: Collection[str]) -> set[str]:
    """Return the digests whose tokens are active."""
    return set(database.scalars(sa.select(tokens.c.digest).where(tokens.c.digest.in_(list(digests)), is_active())))


MOST_S = 14 * 86_400.0  # after this time people sign in again, even if they are active
OF_PROVIDER_S = 12 * 3600.0  # sooner, because a provider may have revoked their access
IDLE_S = 86_400.0

_OF_TOKEN = sign_ins.outerjoin(tokens, tokens.c.digest == sign_ins.c.source)
# A sign-in that was stored or used while the clock was ahead would live too long.
_IS_LASTING = sa.and_(
    sign_ins.c.expires_at > now(),
    sign_ins.c.used_at > now() - IDLE_S,
    sa.not_(is_ahead(sign_ins.c.created_at)),
    sa.not_(is_ahead(sign_ins.c.used_at)),
)
_IS_ACTIVE = sa.and_(_IS_LASTING, sa.or_(sign_ins.c.kind != "token", is_active()))


@frozen(slots=True)
class NewSignIn:
    """A sign-in to be stored.

    Attributes:
        kind: Its origin: `operator` of the server, `token`, or `provider`.
        digest: The digest of the browser's secret.
        source: The digest of the token, whose end also ends the sign-in; or of the provider's user.
        address: The address of the client.
        name: The name of the provider's user in events.
        scopes: The permissions.
    """

    kind: str
    digest: str
    source: str
    address: str | None = None
    name: str | None = None
    scopes: Sequence[str] | None = None


def add_sign_in(database: Database, new: NewSignIn) -> SignInRow:
    """Store a sign-in, and remove expired ones.

    Args:
        database: The database.
        new: The sign-in.

    Returns:
        The stored row.
    """
    lasts_s = OF_PROVIDER_S if new.kind == "provider" else MOST_S
    values = asdict(new) | {"id": new_id(), "expires_at": now() + lasts_s}
    query = sign_ins.insert().values(values).returning(sign_ins)
    with database.write() as connection:
        connection.execute(sign_ins.delete().where(sa.not_(_IS_LASTING)))
        sign_in = fetch_record(connection, SignInRow, query)
    assert sign_in is not None
    return sign_in


def use_sign_in(database: Database, digest: str) -> tuple[SignInRow, TokenRow | None] | None:
    """Find an active sign-in, and record its use.

    Returns:
        The sign-in with its token, if it is of one; None if there is none.
    """
    query = sa.select(sign_ins).select_from(_OF_TOKEN).where(sign_ins.c.digest == digest, _IS_ACTIVE)
    with database.read() as connection:
        row = fetch_record(connection, SignInRow, query)
        if row is None:
            return None
        token = fetch_record(connection, TokenRow, sa.select(tokens).where(tokens.c.digest == row.source))
        at = clock(connection)
    if not at - USED_S <= row.used_at <= at:
        database.execute(sign_ins.update().where(sign_ins.c.id == row.id).values(used_at=now()))
    return row, token


def end_sign_in(database: Database, digest: str) -> None:
    """End a sign-in, if there is one."""
    database.execute(sign_ins.delete().where(sign_ins.c.digest == digest))


def active_sign_ins(database: Database, digests: Collection[str]) -> set[str]:
    """Return the digests whose sign-ins are active."""
    query = sa.select(sign_ins.c.digest).select_from(_OF_TOKEN)
    return set(database.scalars(query.where(sign_ins.c.digest.in_(list(digests)), _IS_ACTIVE)))
