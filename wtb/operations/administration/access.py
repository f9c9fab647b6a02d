"""Access: which user or team has which role in which project, and what follows from that for whoever asks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from wtb.core.access.roles import PERMISSIONS, Permission, Role
from wtb.core.arguments.checking import checked
from wtb.core.documents.administration import AccessDocument
from wtb.core.errors import InputError, meant_or_known
from wtb.core.serialization.plain_json import iso
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.identity import Follower, Identity, Method, Projects
from wtb.operations.payers import check_unbound
from wtb.store.access import users as store
from wtb.store.database import Database
from wtb.store.tables.access import AccessRow


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
        What they have now.

    Raises:
        InputError: For an unknown role, user, team or project, or a role that lets them do more than who acts may do.
        AccessDenied: If whoever gives it acts by a token with a budget.
    """
    check_unbound(context, "gives no roles")
    role_names = [str(member) for member in Role]
    if role not in role_names:
        raise InputError(f"there is no role {role!r}{meant_or_known(role, role_names)}", argument="role")
    where = _place(context, user, team, project)
    for permission in PERMISSIONS[Role(role)]:
        if not context.identity.allows(permission, where):
            raise InputError(f"{role} there may {permission}, which is more than you may do", argument="role")
    return _document(store.grant(context.database, role=Role(role), user=user, team=team, project=where, by=context.by))


@checked
def list_access(context: Context) -> list[AccessDocument]:
    """List who has which role.

    Args:
        context: Where.

    Returns:
        A document for each role, by project; those of all projects first.
    """
    return [_document(row) for row in store.list_access(context.database)]


@checked
@audited
def revoke_access(
    context: Context, *, user: str | None = None, team: str | None = None, project: str | None = None
) -> AccessDocument:
    """Take back a role in a project.

    Args:
        context: Where.
        user: Whose.
        team: Whose, in place of a user.
        project: Where; by default the only one of who acts, else what they have in all projects.

    Returns:
        What they had.

    Raises:
        InputError: Unless one of both is named, and has a role there.
    """
    where = _place(context, user, team, project)
    return _document(store.revoke(context.database, user=user, team=team, project=where))


def identity_of_user(database: Database, name: str, method: Method, digest: str | None = None) -> Identity | None:
    """Return what a user may do now, by their own roles and those of their teams.

    Args:
        database: Where.
        name: Of the user.
        method: How it is known that it is them.
        digest: Of what shows it, if that may come to be of no more use.

    Returns:
        Who asks; None if there is no such user.
    """
    roles = store.roles_of(database, name)
    return None if roles is None else Identity(name, method, allowed(roles), digest=digest, user=name)


def still_reading(database: Database, followers: Iterable[Follower]) -> set[Follower]:
    """Return those who may still read in all projects in which they might when they began, by their roles.

    Args:
        database: Where.
        followers: Some who follow; whom no roles bound may.
    """
    all_followers = set(followers)
    roles = store.roles_of_users(database, {follower.user for follower in all_followers if follower.user is not None})
    may = {user: allowed(theirs).get(Permission.read, frozenset()) for user, theirs in roles.items()}
    return {
        follower
        for follower in all_followers
        if follower.user is None or _holds(follower.projects, may.get(follower.user, frozenset()))
    }


def _holds(before: Projects, now: Projects) -> bool:
    return now is None or (before is not None and before <= now)


def allowed(roles: Iterable[tuple[str | None, Role]]) -> dict[Permission, Projects]:
    """Return in which projects roles let somebody do what; None is all of them."""
    by_permission: dict[Permission, Projects] = {}
    for project, role in roles:
        for permission in PERMISSIONS[role]:
            before = by_permission.get(permission, frozenset())
            by_permission[permission] = None if project is None or before is None else before | {project}
    return by_permission


def narrowed(identity: Identity, scopes: Iterable[str], project: str | None) -> Identity:
    """Return somebody who may do no more than some things, in one project where it is named."""
    may: dict[Permission, Projects] = {}
    for scope in map(Permission, scopes):
        if project is None and scope in identity.may:
            may[scope] = identity.may[scope]
        elif project is not None and identity.allows(scope, project):
            may[scope] = frozenset({project})
    return replace(identity, may=may)


def _place(context: Context, user: str | None, team: str | None, project: str | None) -> str | None:
    if (user is None) == (team is None):
        raise InputError("a role is of a user or of a team: name one of them")
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
