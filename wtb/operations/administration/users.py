"""Users and teams: who may be given roles."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.core.arguments.checking import checked
from wtb.core.documents.administration import TeamDocument, UserDocument
from wtb.core.errors import InputError
from wtb.core.serialization.plain_json import iso
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.payers import check_unbound
from wtb.store.access import users as store
from wtb.store.tables.access import TeamRow, UserRow


@checked
@audited
def create_user(context: Context, name: str) -> UserDocument:
    """Make a user, who may be given roles.

    Args:
        context: Where.
        name: 1 to 200 printable characters without spaces, such as a mail address: what they sign in as, and what
            events call them.

    Returns:
        Their document.

    Raises:
        InputError: For a bad name.
        ConflictError: If there is one of this name.
    """
    _check_name(name)
    return _user(store.create_user(context.database, name, context.by))


@checked
def list_users(context: Context) -> list[UserDocument]:
    """List users with their teams.

    Args:
        context: Where they are.

    Returns:
        A document for each, by name.
    """
    return [_user(row) for row in store.list_users(context.database)]


@checked
@audited
def remove_user(context: Context, name: str) -> UserDocument:
    """Remove a user with their roles and tokens; what they did stays under their name.

    Args:
        context: Where they are.
        name: Their name.

    Returns:
        Their document, as it was.

    Raises:
        InputError: If there is no such user.
    """
    return _user(store.remove_user(context.database, name))


@checked
@audited
def create_team(context: Context, name: str) -> TeamDocument:
    """Make a team, whose members have its roles.

    Args:
        context: Where.
        name: As that of a user.

    Returns:
        Its document.

    Raises:
        InputError: For a bad name.
        ConflictError: If there is one of this name.
    """
    _check_name(name)
    return _team(store.create_team(context.database, name, context.by))


@checked
def list_teams(context: Context) -> list[TeamDocument]:
    """List teams with their members.

    Args:
        context: Where they are.

    Returns:
        A document for each, by name.
    """
    return [_team(row) for row in store.list_teams(context.database)]


@checked
@audited
def change_team(context: Context, name: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> TeamDocument:
    """Add users to a team, and remove others.

    Args:
        context: Where it is.
        name: Its name.
        add: The names of users that are in it from now on.
        remove: The names of users that are not in it any more.

    Returns:
        Its document.

    Raises:
        InputError: If there is no such team or user.
        AccessDenied: If whoever adds somebody acts by a token with a budget.
    """
    if add:
        check_unbound(context, "gives no roles")
    return _team(store.change_team(context.database, name, add=add, remove=remove))


@checked
@audited
def remove_team(context: Context, name: str) -> TeamDocument:
    """Remove a team with its roles; its members stay.

    Args:
        context: Where it is.
        name: Its name.

    Returns:
        Its document, as it was.

    Raises:
        InputError: If there is no such team.
    """
    return _team(store.remove_team(context.database, name))


def _check_name(name: str) -> None:
    if not (0 < len(name) <= 200 and name.isprintable() and " " not in name):
        raise InputError(f"{name!r}: expected a name of 1 to 200 printable characters without spaces", argument="name")


def _user(row: UserRow) -> UserDocument:
    return {
        "name": row.name,
        "teams": list(row.teams),
        "created_at": str(iso(row.created_at)),
        "created_by": row.created_by,
    }


def _team(row: TeamRow) -> TeamDocument:
    return {
        "name": row.name,
        "members": list(row.members),
        "created_at": str(iso(row.created_at)),
        "created_by": row.created_by,
    }
