"""Rows of who may ask for what, and what was asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wtb.core.access.roles import Role
from wtb.store.rows.record import Record

if TYPE_CHECKING:
    from wtb.core.documents.administration import ProjectRetention


class ProjectRow(Record):
    """A project. retention: of its finished sweeps, where the policy does not hold; sessions, sweeps: how many."""

    name: str
    created_at: float
    created_by: str
    retention: ProjectRetention | None
    sessions: int
    sweeps: int


class TokenRow(Record):
    """A token, by its digest.

    Attributes:
        scopes: What its holder may do, by the names of `Permission`.
        project: Where; None for everywhere.
        user: Whose roles bound it; None for nobody's.
        used_at: When it was last used, to the minute.
    """

    id: str
    name: str
    digest: str
    scopes: Sequence[str]
    created_at: float
    created_by: str
    expires_at: float | None
    used_at: float | None
    revoked_at: float | None
    project: str | None
    user: str | None


class UserRow(Record):
    """Somebody who may be given roles. teams: the names of those that they are in."""

    name: str
    created_at: float
    created_by: str
    teams: Sequence[str]


class TeamRow(Record):
    """Users that may be given roles together. members: their names."""

    name: str
    created_at: float
    created_by: str
    members: Sequence[str]


class AccessRow(Record):
    """A role of a user or of a team in a project; None stands for all projects."""

    project: str | None
    user: str | None
    team: str | None
    role: Role
    created_at: float
    created_by: str


class IdempotencyKeyRow(Record):
    """A key of a request that changed something.

    Attributes:
        digest: Of who asks and the key.
        request: Digest of what was asked for.
        status: Of the answer; None until there is one.
        body: Of the answer, JSON.
        projects: Of which its answer may tell, as `wtb.projects` says them.
    """

    digest: str
    request: str
    created_at: float
    status: int | None
    location: str | None
    body: str | None
    projects: str


class OperationRow(Record):
    """An operation that takes longer than a request.

    Attributes:
        name: In the registry.
        by: Who asked for it.
        projects: Of which it may tell, as `projects_setting` says them.
        key: Digest of who asked, of their Idempotency-Key and of what they asked.
        lease_until: Until when its server lives, unless it says so again.
        status: Of the answer; None until there is one.
        body: Of the answer, JSON.
    """

    id: str
    name: str
    by: str
    projects: str
    key: str | None
    began_at: float
    lease_until: float
    ended_at: float | None
    status: int | None
    location: str | None
    body: str | None


class SignInRow(Record):
    """A browser that somebody signed in from, by the digest of what it sends.

    Attributes:
        kind: Whose it is: the `operator`'s, of whoever has a `token`, or of whom a `provider` knows.
        source: Digest of the token by which they signed in, or of whom the provider knows.
        name: What events call whom a provider knows.
        scopes: What they may do, by the names of `Permission`.
        address: From where; None where that is not known.
        used_at: When it was last used, to the minute.
    """

    id: str
    digest: str
    kind: str
    source: str
    name: str | None
    scopes: Sequence[str] | None
    address: str | None
    created_at: float
    used_at: float
    expires_at: float


class AuditRow(Record):
    """A row of the audit log.

    Attributes:
        call: Of the row that an operation began to change something with, and of the one of its end.
        arguments: JSON; None in the second row of a call.
        outcome: None where it has begun to change something.
        result: JSON, of what names it.
    """

    number: int
    at: float
    call: str
    by: str
    via: str
    address: str | None
    token: str | None
    operation: str
    arguments: str | None
    outcome: str | None
    result: str | None
    error: str | None
    hash: str
