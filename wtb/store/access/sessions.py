"""Sessions: the owners of sweeps, with quotas of disk, memory, node runs and money."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from wtb.core.arguments import Count, Money, Whole, check_fields, checked
from wtb.core.errors import ConflictError, InputError, NotFound, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.ids import DEFAULT_PROJECT, new_id
from wtb.store.access.budgets import Key, create_budgets, set_budgets
from wtb.store.access.projects import check_project, in_scope, scope_of
from wtb.store.bulk import fetch_record, fetch_records, insert_missing
from wtb.store.database import DEFAULT_SESSION, Database
from wtb.store.tables.schema import now, sessions
from wtb.store.tables.sweeps import SessionRow
from wtb.store.transactions import Scope

NAMES = "1 to 64 letters, digits, '.', '_' or '-', not beginning with '.' or '-'"  # they name directories, too
_DELETED = "the session was deleted meanwhile; `wtb admin session list` shows all"
_MOST_METADATA = 64  # names a session
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


@frozen
class Quota:
    """The quota of a session: bytes on disk, node runs at a time, US dollars and tokens in all, and bytes of memory.

    None is no limit.

    Raises:
        InputError: For an amount that is not positive.
    """

    disk: Whole | None = None
    node_runs: Count | None = None
    usd: Money | None = None
    tokens: Whole | None = None
    memory: Whole | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def of(cls, stored: Mapping[str, float | None] | None) -> Quota:
        """Return the quota from the value of its column."""
        names = {field.name for field in fields(cls)}
        amounts = {key: amount for key, amount in (stored or {}).items() if key in names}
        return cls(**amounts)  # type: ignore[arg-type]  # which are whole is checked when it is made

    def budgets(self, session_id: str) -> dict[Key, float | None]:
        """Return the limits that are budgets on the ledger."""
        return {("session", session_id, "", "usd"): self.usd, ("session", session_id, "", "tokens"): self.tokens}

    def stored(self) -> dict[str, float] | None:
        """Return the value of its column, without keys that have no limit."""
        return {key: amount for key, amount in asdict(self).items() if amount is not None} or None


def session_name(name: str | None = None) -> str:
    """Return the session to use: the named one, else `WTB_SESSION`, else the default one."""
    return name or os.environ.get("WTB_SESSION") or DEFAULT_SESSION


def is_name(name: str) -> bool:
    """Return whether a session, or a token, may have this name."""
    return _NAME.fullmatch(name) is not None


@checked
def check_name(name: str) -> None:
    """Raise InputError if a session must not have this name."""
    if not is_name(name):
        raise InputError(f"{name!r} cannot be the name of a session; expected {NAMES}")


def find_session(database: Database, name: str) -> SessionRow:
    """Return the row of a session by its name. Raises InputError with a near match."""
    with database.read() as connection:
        return _find(connection, sa.select(sessions), name)


def named_session(database: Database, session: str | None = None) -> str:
    """Return the name of the session to use, as `session_name` does.

    For callers that are limited to one project, the default session is that of the project, which the first sweep
    makes.
    """
    name, allowed = session_name(session), database.scope.projects
    if name != DEFAULT_SESSION or allowed is None or len(allowed) != 1 or DEFAULT_PROJECT in allowed:
        return name
    own = sa.select(sessions.c.name).where(sessions.c.id == _default_id(*allowed))
    return database.scalar(own) or name


def check_open(database: Database, name: str, project: str | None = None) -> None:
    """Raise InputError or ConflictError if a session takes no new sweeps, as submitting a sweep to it does."""
    with database.read() as connection:
        own = _own_project(connection, name, project)
        if own is None or connection.scalar(sa.select(sessions.c.id).where(sessions.c.id == _default_id(own))):
            session_to_submit_to(connection, name, project)


def session_to_submit_to(connection: sa.Connection, name: str, project: str | None = None) -> SessionRow:
    """Return a session that takes new sweeps; it cannot be deleted before this transaction ends.

    Args:
        connection: In a transaction. If it writes, it makes the default session of a project that has none.
        name: Its name. For callers that are limited to projects, the default session is that of their project.
        project: The project that the sweep names, if it does.

    Raises:
        InputError: For an unknown session, or if the default session may be that of several projects.
        ConflictError: For an archived one.
    """
    own = _own_project(connection, name, project)
    if own is not None:
        name = _default_of(connection, own)
    # A shared lock: submissions do not wait for each other, and a deletion waits for all of them.
    row = _find(connection, sa.select(sessions).with_for_update(read=True, key_share=True), name)
    return _open(row)


def session_of_submission(connection: sa.Connection, session_id: str) -> SessionRow:
    """Return the session of a submission that has begun, as `session_to_submit_to` does, even if it was renamed.

    Raises:
        InputError: If it was deleted.
        ConflictError: For an archived one.
    """
    query = sa.select(sessions).where(sessions.c.id == session_id).with_for_update(read=True, key_share=True)
    row = fetch_record(connection, SessionRow, query)
    if row is None:
        raise InputError(_DELETED)
    return _open(row)


def _open(row: SessionRow) -> SessionRow:
    """Return a session that takes new sweeps. Raises ConflictError for an archived one."""
    name = row.name
    if row.archived_at is not None:
        raise ConflictError(
            f"session {name!r} is archived, so it accepts no new sweeps; reopen it with `wtb admin session archive "
            f"{shlex.quote(name)} --undo`"
        )
    return row


def _own_project(connection: sa.Connection, name: str, project: str | None = None) -> str | None:
    """Return the project whose default session a name stands for; None if it is the name of a session.

    Raises:
        InputError: If it may stand for several projects.
        NotFound: If there is no such project.
    """
    allowed = scope_of(connection).projects
    if name != DEFAULT_SESSION or allowed is None or DEFAULT_PROJECT in allowed:
        return None
    if project is None and len(allowed) > 1:
        listed = ", ".join(sorted(allowed)[:5])
        raise InputError(
            f"the sweep names neither a session nor a project, and you may submit in several projects ({listed}); name "
            "one of them as `project` in the sweep file, or a session"
        )
    own_project = project if project is not None else next(iter(allowed), None)
    if own_project is not None:
        check_project(connection, own_project)
    return own_project


def _default_of(connection: sa.Connection, project: str) -> str:
    """Return the name of a project's default session; create the session if there is none.

    It is called like the project, unless that is no name for a session or another session has it.
    """
    id = _default_id(project)
    query = sa.select(sessions.c.name).where(sessions.c.id == id)
    called = [project] if is_name(project) and project.lower() != DEFAULT_SESSION else []
    for name in (*called, f"{(*called, 'project')[0][:50]}-{id[-12:]}"):
        # Read again after the insert: another process may have made it, or a
        # session of another project may have the name.
        if (existing := connection.scalar(query)) is not None:
            return str(existing)
        insert_missing(connection, sessions, [{"id": id, "name": name, "project": project}])
    return str(connection.scalar(query))


def _default_id(project: str) -> str:
    return f"project-{hashlib.sha256(project.encode()).hexdigest()[:20]}"


def _find(connection: sa.Connection, query: sa.Select[Any], name: str) -> SessionRow:
    row = fetch_record(connection, SessionRow, query.where(sessions.c.name == name, *in_scope(connection, sessions)))
    if row is not None:
        return row
    raise no_session(
        name, connection.scalars(sa.select(sessions.c.name).where(*in_scope(connection, sessions)).limit(1000))
    )


def no_session(name: str, names: Iterable[str] = ()) -> InputError:
    """Return the error for a session that does not exist, with a near match."""
    near = did_you_mean(name, names)
    how = (
        f"`wtb admin session create {shlex.quote(name)}` makes it"
        if is_name(name)
        else "`wtb admin session list` shows all"
    )
    return NotFound(f"there is no session {name!r}{f'{near} ({how})' if near else f'; {how}'}", kind="session")


def create(
    database: Database,
    name: str,
    quota: Quota | None = None,
    *,
    owner: str | None = None,
    metadata: Mapping[str, str] | None = None,
    project: str = DEFAULT_PROJECT,
) -> SessionRow:
    """Create a session.

    Raises:
        InputError: For a bad name.
        NotFound: For an unknown project.
        ConflictError: If another session has the name.
    """
    check_name(name)
    id, quota = new_id(), quota or Quota()
    row: dict[str, Any] = {"id": id, "name": name, "quota": quota.stored(), "project": project, "owner": owner}
    row["metadata"] = _changed_metadata({}, metadata or {})
    try:
        with database.write() as connection:
            check_project(connection, project)
            same = connection.scalar(_same_name(name))
            if same is None:
                create_budgets(connection, quota.budgets(id))
                return fetch_records(connection, SessionRow, sessions.insert().values(row).returning(sessions))[0]
    except IntegrityError:  # another process made it between the two statements
        same = name
    if same == name:
        raise ConflictError(
            f"there is a session {name!r} already; `wtb admin session change {shlex.quote(name)}` changes its quota"
        )
    raise _differs_by_case(same)


def _same_name(name: str) -> sa.Select[Any]:
    """Return the query for a session whose name differs by case at most, because directories may be named by
    sessions.
    """
    return sa.select(sessions.c.name).where(sa.func.lower(sessions.c.name) == name.lower())


def _differs_by_case(same: str) -> ConflictError:
    return ConflictError(f"there is a session {same!r} already, and names must differ by more than case")


def rename(database: Database, session_id: str, name: str) -> bool:
    """Rename a session, even while its sweeps run: everything else refers to its id.

    Returns:
        True if the name has changed.

    Raises:
        InputError: For a bad name.
        ConflictError: For the default session, or if another session has the name.
    """
    check_name(name)
    check_not_default(session_id, "renamed")
    try:
        with database.write() as connection:
            row = locked_session(connection, session_id)
            same = connection.scalar(_same_name(name).where(sessions.c.id != session_id))
            if same is None:
                connection.execute(sessions.update().where(sessions.c.id == session_id).values(name=name))
                return row.name != name
    except IntegrityError:  # another process took the name between the two statements
        same = name
    if same == name:
        raise ConflictError(f"there is a session {name!r} already; expected a name that no session has")
    raise _differs_by_case(same)


def current_name(database: Database, session_id: str) -> str:
    """Return the name of a session, which may have been renamed; its id if it is gone."""
    return str(database.scalar(sa.select(sessions.c.name).where(sessions.c.id == session_id)) or session_id)


def change(
    database: Database,
    session_id: str,
    limits: Mapping[str, float | None] | None = None,
    *,
    owner: str | None = None,
    metadata: Mapping[str, str | None] | None = None,
) -> Quota:
    """Change the quota, the owner and the metadata of a session: all of it, or nothing.

    Args:
        database: The database.
        session_id: The session.
        limits: By their name in `Quota`; None removes one, others stay.
        owner: Another owner; empty for none, None to leave it.
        metadata: Texts by name; None removes one, others stay.

    Returns:
        The whole quota.

    Raises:
        InputError: If a limit is out of range, or below the amount spent, or if the session would have too many
            names of metadata or does not exist.
    """
    changes = limits or {}
    with database.write() as connection:
        row = locked_session(connection, session_id)
        quota = Quota.of({**(row.quota or {}), **changes})
        # Only budgets whose limits change, so that an owner can be changed
        # even if an old limit is below the amount spent.
        set_budgets(connection, {key: size for key, size in quota.budgets(session_id).items() if key[3] in changes})
        values: dict[str, Any] = {"quota": quota.stored()}
        if owner is not None:
            values["owner"] = owner or None
        if metadata is not None:
            values["metadata"] = _changed_metadata(row.metadata or {}, metadata)
        connection.execute(sessions.update().where(sessions.c.id == session_id).values(values))
    return quota


def _changed_metadata(before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str] | None:
    """Return the value of the column after changes. Raises InputError."""
    merged = {name: text for name, text in {**before, **changes}.items() if text is not None}
    if len(merged) > _MOST_METADATA:
        raise InputError(f"{len(merged):,} names of metadata; expected at most {_MOST_METADATA}")
    return merged or None


def archive(database: Database, session_id: str) -> bool:
    """Archive a session, which then takes no new sweeps. Returns True if this call did. Raises ConflictError."""
    check_not_default(session_id, "archived")
    return _set_archived(database, session_id, now(), sessions.c.archived_at.is_(None))


def unarchive(database: Database, session_id: str) -> bool:
    """Accept new sweeps again. Returns True if this call made the change."""
    return _set_archived(database, session_id, None, sessions.c.archived_at.is_not(None))


def _set_archived(database: Database, session_id: str, at: Any, where: sa.ColumnElement[bool]) -> bool:
    return database.execute(sessions.update().where(sessions.c.id == session_id, where).values(archived_at=at)) > 0


def check_not_default(session_id: str, what: str) -> None:
    """Raise ConflictError for the default session, which cannot be archived or deleted."""
    if session_id == DEFAULT_SESSION:
        raise ConflictError(f"the session {DEFAULT_SESSION!r} cannot be {what}: sweeps without a session belong to it")


def quota_of(database: Database, session_id: str) -> Quota:
    """Return the quota of a session."""
    return Quota.of(database.scalar(sa.select(sessions.c.quota).where(sessions.c.id == session_id)))


def locked_session(connection: sa.Connection, session_id: str, *, to_delete: bool = False) -> SessionRow:
    """Return the row of a session, locked until this transaction ends. Raises InputError."""
    # Rows that refer to it may still be inserted, unless it is to be deleted. SQLite has one writer anyhow.
    query = sa.select(sessions).where(sessions.c.id == session_id).with_for_update(key_share=not to_delete)
    row = fetch_record(connection, SessionRow, query)
    if row is None:
        raise InputError(_DELETED)
    return row


def birth(database: Database) -> float | None:
    """Return when the first session was made, and so the database, whatever the caller is limited to."""
    return database.within(Scope()).scalar(sa.select(sa.func.min(sessions.c.created_at)))
