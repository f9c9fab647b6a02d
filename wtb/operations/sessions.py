"""Sessions: owners of sweeps, with limits on disk, memory, node runs and money."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

from wtb.core.arguments import Amounts, Text, Texts, checked
from wtb.core.documents.administration import OneSessionDocument, SessionDocument
from wtb.core.errors import InputError, meant_or_known
from wtb.core.frozen import frozen
from wtb.display.views.sessions import session_details, session_documents
from wtb.execution.runtime.upkeep import clean
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.garbage_collection import Collected, free_unreferenced
from wtb.store import process_identity
from wtb.store.access import sessions as store
from wtb.store.access import usage
from wtb.store.access.sessions import Quota
from wtb.store.files import safe_directories
from wtb.store.housekeeping import contents as file_store
from wtb.store.housekeeping import deletion

Owner = Annotated[str, Text(200)]
NewOwner = Annotated[str, Text(200, may_be_empty=True)]


@checked
@audited
def create_session(
    context: Context,
    name: str,
    quota: Quota | None = None,
    *,
    owner: Owner | None = None,
    metadata: Texts | None = None,
    project: str | None = None,
) -> OneSessionDocument:
    """Create a session.

    Args:
        context: Where.
        name: 1 to 64 letters, digits, `.`, `_` or `-`, different from others' by more than case.
        quota: What it may use; None for no limits.
        owner: Who is responsible for it, such as a user, a team or an address.
        metadata: What else is to be kept with it: texts by name.
        project: The project that it belongs to; by default the only one of who acts, else `default`.

    Returns:
        The session, as `describe_session` does.

    Raises:
        InputError: For a bad name, or an unknown project.
        ConflictError: If there is one of that name.
    """
    # None removes a text of an existing session; a new one has none to remove.
    texts = {key: text for key, text in (metadata or {}).items() if text is not None}
    store.create(context.database, name, quota, owner=owner, metadata=texts, project=context.project_name(project))
    return describe_session(context, name)


@checked
@audited
def change_session(
    context: Context,
    name: str,
    limits: Amounts | None = None,
    *,
    owner: NewOwner | None = None,
    metadata: Texts | None = None,
) -> Quota:
    """Change a session's quota, owner and metadata. Runs that have begun keep the slots that they took.

    Args:
        context: Where it is.
        name: The session's name.
        limits: By their name in `Quota`; None lifts one, those left out stay.
        owner: Another owner; empty for none.
        metadata: Texts by name; None removes one, those left out stay.

    Returns:
        The whole quota.

    Raises:
        InputError: For an unknown session or limit, one out of range, or usd or tokens below what is spent.
    """
    quota_names = [field.name for field in fields(Quota)]
    limits = limits or {}
    for limit in limits:
        if limit not in quota_names:
            raise InputError(f"a session has no quota of {limit!r}{meant_or_known(limit, quota_names)}")
    Quota.of(limits)  # refused whatever the rest of the quota is
    id = store.find_session(context.database, name).id
    return store.change(context.database, id, limits, owner=owner, metadata=metadata)


@checked
@audited
def rename_session(context: Context, name: str, to: str) -> OneSessionDocument:
    """Rename a session, even while its sweeps run. Sweep files and `WTB_SESSION` keep the old name.

    Args:
        context: Where it is.
        name: The session's name.
        to: The new one: 1 to 64 letters, digits, `.`, `_` or `-`, different from others' by more than case.

    Returns:
        The session, as `describe_session` does.

    Raises:
        InputError: If there is no such session, or for a bad name.
        ConflictError: For the default session, or if another session has the name.
    """
    store.rename(context.database, store.find_session(context.database, name).id, to)
    return describe_session(context, to)


@checked
def list_sessions(context: Context, *, archived: bool = False) -> list[SessionDocument]:
    """List sessions with their usage and quotas.

    Args:
        context: Where they are.
        archived: Those that are archived, too.

    Returns:
        A document for each, by name.
    """
    return session_documents(context.database, archived=archived)


@checked
def describe_session(context: Context, name: str) -> OneSessionDocument:
    """Return a session with its sweeps by status, what it uses, and who holds its slots.

    Args:
        context: Where it is.
        name: Its name.

    Returns:
        Its document.

    Raises:
        InputError: If there is no such session.
    """
    project = store.find_session(context.database, name).project
    return session_details(context.database, name, context.workspaces.of_project(project).root)


@checked
@audited
def archive_session(context: Context, name: str, *, undo: bool = False) -> bool:
    """Let a session take no new sweeps; those that it has can be read and resumed.

    Args:
        context: Where it is.
        name: The session's name.
        undo: Let it take new sweeps again.

    Returns:
        Whether that is a change.

    Raises:
        InputError: If there is no such session.
        ConflictError: For the default session.
    """
    change = store.unarchive if undo else store.archive
    return change(context.database, store.find_session(context.database, name).id)


@frozen
class DeletedSession:
    """The session that `delete_session` removed, or would remove, with what belonged to it.

    Attributes:
        name: The session's name.
        sweeps: How many it had.
        cells: How many its sweeps had.
        disk_bytes: Of its files.
        freed: What was freed with it; files that other sessions have stay, and those stored within the last hour.
            None if it had no sweeps.
    """

    name: str
    sweeps: int
    cells: int
    disk_bytes: int
    freed: Collected | None = None


@checked
def preview_delete_session(context: Context, name: str) -> DeletedSession:
    """Return what `delete_session` would remove, for who has to confirm it.

    Args:
        context: Where it is.
        name: Its name.

    Returns:
        How many sweeps and cells it has, and how much of the disk.

    Raises:
        InputError: If there is no such session.
        ConflictError: For the default session.
    """
    row = store.find_session(context.database, name)
    deletion.check_deletable(row.id)
    used = usage.usage(context.database, row.id)
    return DeletedSession(name, used.sweeps, used.cells, used.disk_bytes)


@checked
@audited
def delete_session(context: Context, name: str) -> DeletedSession:
    """Delete a session with its sweeps and their files, permanently. What other sessions have too stays there.

    Args:
        context: Where it is.
        name: The session's name.

    Returns:
        What was removed, and what was freed.

    Raises:
        InputError: If there is no such session.
        ConflictError: For the default session, or if a process may be running a sweep of it.
    """
    database, home = context.database, context.workspaces
    files = home.files
    preview = preview_delete_session(context, name)
    clean(database, home.root)  # node processes of dead runners are found by the runners' rows
    if preview.disk_bytes and files.top.is_dir() and not file_store.other_owners(database, files):
        file_store.mark(database, files)  # once they are deleted, no row would say that these files are this database's
    session_id = store.find_session(database, name).id
    # Read before the rows are deleted: afterwards nothing names these directories.
    own = [home.of_project(project).root / id for id, project in deletion.sweeps_of(database, session_id)]
    removed = deletion.delete_session(database, session_id, may_live=process_identity.may_live)
    for directory in (*own, _directory(context, name)):
        safe_directories.remove_tree(directory)
    freed = free_unreferenced(context) if removed["sweeps"] else None
    return replace(preview, sweeps=removed["sweeps"], cells=removed["cells"], freed=freed)


def _directory(context: Context, name: str) -> Path:
    """Return the directory of attempts of a session in earlier releases."""
    store.check_name(name)  # what is removed must not lie elsewhere
    return context.workspaces.root / name
