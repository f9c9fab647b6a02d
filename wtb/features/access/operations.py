"""Access: users, teams and their roles in projects, and the tokens of a server."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from wtb.core.arguments import Amounts, Seconds, checked
from wtb.core.documents.access import (
    AccessDocument,
    NewTokenDocument,
    TeamDocument,
    TokenDocument,
    TokenState,
    UserDocument,
)
from wtb.core.errors import InputError, did_you_mean, meant_or_known
from wtb.core.roles import PERMISSIONS, Role
from wtb.core.serialization.plain_json import iso
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.identity import digest_of
from wtb.operations.payers import check_unbound
from wtb.operations.registry import Permission
from wtb.store.access import users as stored_tokens
from wtb.store.access import users as stored_users
from wtb.store.access.budgets import KINDS, Key, create_budgets
from wtb.store.access.sessions import NAMES, Quota, is_name
from wtb.store.tables.access import AccessRow, TeamRow, TokenRow, UserRow


@checked
@audited
def grant_access(
    context: Context, role: str, *, user: str | None = None, team: str | None = None, project: str | None = None
) -> AccessDocument:
    """Give a user or a team a role in a project, in place of the one that they have there.

    Args:
        context: Where.
        role: viewer, runner, approver, maintainer or admin.
        user: To whom.
        team: To whom, in place of a user.
        project: Where; by default the only one of who acts, else all projects, also those that are made later.

    Returns:
        The role that they have now.

    Raises:
        InputError: For an unknown role, user, team or project, or a role that lets them do more than who acts may do.
        AccessDenied: If whoever gives it acts by a token with a budget.
    """
    check_unbound(context, "gives no roles")
    role_names = [str(member) for member in Role]
    if role not in role_names:
        raise InputError(f"there is no role {role!r}{meant_or_known(role, role_names)}", argument="role")
    where = _place(context, user, team, project)
    # Nobody grants more than they may do themselves, or a grant would be a way around their own role.
    for permission in PERMISSIONS[Role(role)]:
        if not context.identity.allows(permission, where):
            raise InputError(f"{role} there has permission {permission}, which you do not have", argument="role")
    return _document(
        stored_users.grant(context.database, role=Role(role), user=user, team=team, project=where, by=context.by)
    )


@checked
def list_access(context: Context) -> list[AccessDocument]:
    """List roles of users and teams.

    Args:
        context: Where.

    Returns:
        A document for each role, by project; those of all projects first.
    """
    return [_document(row) for row in stored_users.list_access(context.database)]


@checked
@audited
def revoke_access(
    context: Context, *, user: str | None = None, team: str | None = None, project: str | None = None
) -> AccessDocument:
    """Revoke a role in a project.

    Args:
        context: Where.
        user: Whose.
        team: Whose, in place of a user.
        project: Where; by default the only one of who acts, else what they have in all projects.

    Returns:
        The role that they had.

    Raises:
        InputError: Unless one of both is named, and has a role there.
    """
    where = _place(context, user, team, project)
    return _document(stored_users.revoke(context.database, user=user, team=team, project=where))


def _place(context: Context, user: str | None, team: str | None, project: str | None) -> str | None:
    if (user is None) == (team is None):
        raise InputError("a role needs one holder; expected a user or a team")
    return project if context.database.scope.projects is None else context.project_name(project)


def _document(row: AccessRow) -> AccessDocument:
    return {
        "project": row.project,
        "user": row.user,
        "team": row.team,
        "role": str(row.role),
        "created_at": str(iso(row.created_at)),
        "created_by": row.created_by,
    }


@checked
@audited
def create_user(context: Context, name: str) -> UserDocument:
    """Create a user, to whom you can grant roles.

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
    return _user(stored_users.create_user(context.database, name, context.by))


@checked
def list_users(context: Context) -> list[UserDocument]:
    """List users with their teams.

    Args:
        context: Where they are.

    Returns:
        A document for each, by name.
    """
    return [_user(row) for row in stored_users.list_users(context.database)]


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
    return _user(stored_users.remove_user(context.database, name))


@checked
@audited
def create_team(context: Context, name: str) -> TeamDocument:
    """Create a team, whose members have its roles.

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
    return _team(stored_users.create_team(context.database, name, context.by))


@checked
def list_teams(context: Context) -> list[TeamDocument]:
    """List teams with their members.

    Args:
        context: Where they are.

    Returns:
        A document for each, by name.
    """
    return [_team(row) for row in stored_users.list_teams(context.database)]


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
    return _team(stored_users.change_team(context.database, name, add=add, remove=remove))


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
    return _team(stored_users.remove_team(context.database, name))


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


PREFIX = "wtb_"  # by which programs that look for secrets in files know it
_BYTES = 20  # 160 random bits


@checked
@audited
def create_token(
    context: Context,
    name: str,
    *,
    scopes: Sequence[str] = ("read",),
    project: str | None = None,
    user: str | None = None,
    budget: Amounts | None = None,
    expires_s: Seconds | None = None,
) -> NewTokenDocument:
    """Make a token, by which its holder may ask a server. The database keeps a digest of it.

    Args:
        context: Where.
        name: What events and lists call it: 1 to 64 letters, digits, `.`, `_` or `-`. No two have one name, ever.
        scopes: Its permissions: read, submit, steer, answer, administer. None of them implies another.
        project: All that it is good for; by default the only one of who acts, else all projects.
        user: Whose roles bound it, for as long as they have them; by default nobody's.
        budget: The most that what is submitted with it may spend, by kind: usd, tokens or node_runs.
        expires_s: Seconds from now on until it is of no more use; by default for ever.

    Returns:
        Its document, and the token, which is shown nowhere else.

    Raises:
        InputError: For a bad name, an unknown scope, project or user, no scope, or more than whoever makes it may do.
        ConflictError: If there is, or was, one of this name.
        AccessDenied: If whoever makes it acts by a token with a budget.
    """
    if not is_name(name):
        raise InputError(f"{name!r} cannot be the name of a token; expected {NAMES}", argument="name")
    check_unbound(context, "makes no tokens")
    token = PREFIX + secrets.token_urlsafe(_BYTES)
    limits = _limits(name, budget or {})
    where = _project(context, project)
    new = stored_tokens.NewToken(name, digest_of(token), _scopes(scopes), context.by, where, user, expires_s)
    _check_allowed(context, new)
    # The token and its budget are one transaction: a token without its budget could spend without a limit.
    row = stored_tokens.create_token(context.database, new, lambda connection: create_budgets(connection, limits))
    return {"token": token, **_token_document(row)}


@checked
def list_tokens(context: Context) -> list[TokenDocument]:
    """List access tokens with their permissions and last use.

    Args:
        context: Where they are.

    Returns:
        A document for each, the newest first; the tokens themselves are known to their holders alone.
    """
    expired = stored_tokens.expired_tokens(context.database)
    return [_token_document(row, has_expired=row.id in expired) for row in stored_tokens.list_tokens(context.database)]


@checked
@audited
def revoke_token(context: Context, name: str) -> TokenDocument:
    """Let a token be of no more use; what it has open ends within a second.

    Args:
        context: Where it is.
        name: Its name.

    Returns:
        Its document.

    Raises:
        InputError: If there is none of this name.
    """
    return _token_document(stored_tokens.revoke_token(context.database, name))


def _scopes(scopes: Sequence[str]) -> list[str]:
    permissions = [str(permission) for permission in Permission]
    for scope in scopes:
        if scope not in permissions:
            near = did_you_mean(scope, permissions)
            raise InputError(f"{scope!r} is not a scope{near} (they are: {', '.join(permissions)})", argument="scopes")
    if not scopes:
        raise InputError(f"there is no scope; expected some of: {', '.join(permissions)}", argument="scopes")
    return [scope for scope in permissions if scope in scopes]


def _project(context: Context, project: str | None) -> str | None:
    mine = context.database.scope.projects
    return project if mine is None else context.project_name(project)


def _limits(name: str, budget: Mapping[str, float | None]) -> dict[Key, float | None]:
    for kind in budget:
        if kind not in KINDS:
            raise InputError(f"there are no budgets of {kind!r}{meant_or_known(kind, KINDS)}", argument="budget")
    Quota.of(budget)  # the quota of a session takes the same amounts
    return {("token", name, "", kind): amount for kind, amount in budget.items()}


def _check_allowed(context: Context, new: stored_tokens.NewToken) -> None:
    """Raise InputError if a token would have more permissions than its maker."""
    for scope in new.scopes:
        if not context.identity.allows(Permission(scope), new.project):
            raise InputError(f"a token with permission {scope} there would exceed your own permissions")


def _token_document(row: TokenRow, *, has_expired: bool = False) -> TokenDocument:
    state: TokenState = "active"
    if row.revoked_at is not None:
        state = "revoked"
    elif has_expired:
        state = "expired"
    return {
        "name": row.name,
        "state": state,
        "scopes": list(row.scopes),
        "project": row.project,
        "user": row.user,
        "created_at": str(iso(row.created_at)),
        "created_by": row.created_by,
        "expires_at": iso(row.expires_at),
        "used_at": iso(row.used_at),
        "revoked_at": iso(row.revoked_at),
    }
