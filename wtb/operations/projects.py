"""Projects, which own sessions, sweeps and access."""

from __future__ import annotations

from wtb.config.retention_policy import read_age
from wtb.core.arguments import FromZero, checked
from wtb.core.documents.access import ProjectDocument, ProjectRetention
from wtb.core.errors import InputError
from wtb.core.serialization.plain_json import iso
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.store.access import projects as store
from wtb.store.tables.access import ProjectRow


@checked
@audited
def create_project(context: Context, name: str) -> ProjectDocument:
    """Make a project. The first sweep that names one makes it, too, unless its submitter is limited to others.

    Args:
        context: Where.
        name: 1 to 200 printable characters. It stays its name for ever.

    Returns:
        Its document.

    Raises:
        InputError: For a bad name.
        ConflictError: If there is one of this name.
    """
    check_name(name)
    return _document(store.create_project(context.database, name, context.by))


@checked
@audited
def change_project(
    context: Context, name: str, *, sweeps: str | None = None, keep: FromZero | None = None, clear: bool = False
) -> ProjectDocument:
    """Say how long finished sweeps of a project are kept, in place of what the policy says.

    Args:
        context: Where it is.
        name: Its name.
        sweeps: An age such as 90d, or never; None for what it was.
        keep: As many of the newest of each name stay, whatever their age; None for what it was.
        clear: Forget what was said before.

    Returns:
        Its document.

    Raises:
        InputError: If there is no such project, or for an age that is none.
    """
    retention: ProjectRetention = {} if clear else {**(store.find_project(context.database, name).retention or {})}
    if sweeps is not None:
        retention["sweeps"] = read_age("sweeps", sweeps)
    if keep is not None:
        retention["keep"] = keep
    return _document(store.change_retention(context.database, name, retention))


@checked
def list_projects(context: Context) -> list[ProjectDocument]:
    """List projects with how many sessions and sweeps they have.

    Args:
        context: Where they are.

    Returns:
        A document for each that the caller may see, by name.
    """
    return [_document(row) for row in store.list_projects(context.database)]


@checked
def describe_project(context: Context, name: str) -> ProjectDocument:
    """Show a project: how many sessions and sweeps it has.

    Args:
        context: Where it is.
        name: Its name.

    Returns:
        Its document.

    Raises:
        InputError: If there is no such project.
    """
    return _document(store.find_project(context.database, name))


def check_name(name: str) -> None:
    """Raise InputError for names that a sweep file would reject, too."""
    if not (0 < len(name.strip()) == len(name) <= 200 and name.isprintable()):
        raise InputError(f"project {name!r}: expected a name of 1 to 200 printable characters", argument="name")


def _document(row: ProjectRow) -> ProjectDocument:
    return {
        "name": row.name,
        "created_at": str(iso(row.created_at)),
        "created_by": row.created_by,
        "retention": row.retention or {},
        "sessions": row.sessions,
        "sweeps": row.sweeps,
    }
