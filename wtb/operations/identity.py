"""Identities of actors: their names, how they authenticated, and their permissions by project."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from wtb.core.frozen import frozen
from wtb.core.roles import PERMISSIONS, Permission, Role, attributed, is_within
from wtb.store.access import users
from wtb.store.database import Database

Projects = frozenset[str] | None  # names; None: all projects, also those that are made later


class Method(StrEnum):
    """The method by which somebody authenticated."""

    operator = "operator"  # they have the database, or the server's own token
    token = "token"  # one of `wtb admin token create`
    cookie = "cookie"  # they signed in


class Follower(NamedTuple):
    """The owner of a stream.

    Attributes:
        digest: The digest of their token or cookie.
        user: The user whose roles limit it, if any.
        projects: The projects that they could read when it began.
    """

    digest: str
    user: str | None
    projects: Projects


@frozen
class Identity:
    """An authenticated actor.

    Their permissions map each permission to projects: the roles of the user and their teams, limited by their token.
    `Context.acting_as` returns a context in which only these projects exist; a request for anything else gets the same
    response as if it did not exist.

    Attributes:
        name: Their name in events; None for the operator, for whom events name the user of the process.
        method: How they authenticated.
        may: Permission -> projects; permissions that they have nowhere are left out.
        token: The name of their token, if it is one of the database's. Its budgets limit their submissions.
        digest: The digest of that token.
        user: The user whose roles limit it, if any.
        made_by: The maker of a user's token, if that was somebody else, who may have kept it.
    """

    name: str | None
    method: Method
    may: Mapping[Permission, Projects]
    token: str | None = None
    digest: str | None = None
    user: str | None = None
    made_by: str | None = None

    @property
    def attribution(self) -> str | None:
        """Name in events, approvals and the audit log, with the maker of their token if that was somebody else."""
        if self.name is None or self.made_by is None:
            return self.name
        return attributed(self.name, self.made_by)

    @property
    def follower(self) -> Follower | None:
        """Owner of their streams, for as long as their read permission lasts; None for the operator."""
        if self.digest is None:
            return None
        return Follower(self.digest, self.user, self.may.get(Permission.read, frozenset()))

    @property
    def key(self) -> str | None:
        """Key by which their requests are counted together; None for the operator, who has the database itself."""
        return self.name or self.digest

    def refusal(self, needs: Permission, *, everywhere: bool = False) -> str | None:
        """Return the reason why they lack a permission in every project; None if they have it in any.

        Args:
            needs: The required permission.
            everywhere: True for operations on all projects at once, such as collecting garbage.
        """
        if needs not in self.may:
            return f"{self.name!r} may {', '.join(sorted(self.may)) or 'nothing'}; this takes the scope {needs}"
        if everywhere and self.may[needs] is not None:
            return f"{self.name!r} is limited to projects, and this is about all of them"
        return None

    def allows(self, permission: Permission, project: str | None) -> bool:
        """Return whether they may do something in a project; None stands for all projects."""
        if permission not in self.may:
            return False
        projects = self.may[permission]
        return projects is None or project in projects


OPERATOR = Identity(None, Method.operator, dict.fromkeys(Permission, None))


def identity_of_user(database: Database, name: str, method: Method, digest: str | None = None) -> Identity | None:
    """Return the identity of a user, with the permissions of their own roles and those of their teams.

    Args:
        database: The database.
        name: The name of the user.
        method: How the user was authenticated.
        digest: The digest of the proof, if it can be revoked.

    Returns:
        The identity; None if there is no such user.
    """
    roles = users.roles_of(database, name)
    return None if roles is None else Identity(name, method, allowed(roles), digest=digest, user=name)


def still_reading(database: Database, followers: Iterable[Follower]) -> set[Follower]:
    """Return the followers who may still read all projects that they could read when they began.

    Args:
        database: The database.
        followers: The followers; those without a user are not limited by roles.
    """
    all_followers = set(followers)
    roles = users.roles_of_users(database, {follower.user for follower in all_followers if follower.user is not None})
    may = {user: allowed(theirs).get(Permission.read, frozenset()) for user, theirs in roles.items()}
    return {
        follower
        for follower in all_followers
        if follower.user is None or is_within(follower.projects, may.get(follower.user, frozenset()))
    }


def allowed(roles: Iterable[tuple[str | None, Role]]) -> dict[Permission, Projects]:
    """Return in which projects roles grant each permission; None is all of them."""
    by_permission: dict[Permission, Projects] = {}
    for project, role in roles:
        for permission in PERMISSIONS[role]:
            before = by_permission.get(permission, frozenset())
            by_permission[permission] = None if project is None or before is None else before | {project}
    return by_permission


def narrowed(identity: Identity, scopes: Iterable[str], project: str | None) -> Identity:
    """Return an identity with some permissions only, in one project if it is named."""
    may: dict[Permission, Projects] = {}
    for scope in map(Permission, scopes):
        if project is None and scope in identity.may:
            may[scope] = identity.may[scope]
        elif project is not None and identity.allows(scope, project):
            may[scope] = frozenset({project})
    return replace(identity, may=may)


def digest_of(token: str) -> str:
    """Return the stored digest of a token. Tokens are random throughout, so a fast hash suffices."""
    return hashlib.sha256(token.encode()).hexdigest()
