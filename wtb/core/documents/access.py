"""Users, teams, tokens, projects and the audit log: the documents of `wtb admin user`, `token` and others."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.values import Json

Outcome = Literal["done", "failed", "unknown"]


class AuditedCall(TypedDict):
    """A request that changes something, and how it ended.

    The outcome is unknown while the operation runs, or if its process was killed. Only names of the result are kept,
    for example the id of a sweep.
    """

    number: int
    at: str
    by: str
    via: str
    address: str | None
    token: str | None
    operation: str
    arguments: dict[str, Json]
    outcome: Outcome
    result: dict[str, Json]
    error: str | None
    ended_at: str | None


class AuditDocument(TypedDict):
    """Changes with their authors, the newest first."""

    audit: list[AuditedCall]


class AuditHead(TypedDict):
    """The last row of the log; number 0 if it is empty. `head` is both in one text, for `wtb admin audit verify`."""

    number: int
    hash: str
    head: str


class PrunedAudit(TypedDict):
    """The number of removed rows, and the last one; null if none was removed."""

    rows: int
    upto: int | None


class AuditVerification(TypedDict):
    """The result of a check of the log.

    `checked_heads` are numbers of heads that were compared with their rows, `pruned_heads` of heads whose rows are
    removed.
    """

    ok: bool
    rows: int
    first: int | None
    head: AuditHead
    checked_heads: list[int]
    pruned_heads: list[int]
    pruned: PrunedAudit | None
    problems: list[str]


class ProjectRetention(TypedDict, total=False):
    """The periods for which ended sweeps of a project are kept; missing keys follow the general policy."""

    sweeps: float | None  # in seconds; null is for ever
    keep: int


class ProjectDocument(TypedDict):
    """A project: how long its sweeps are kept, and how many sessions and sweeps it has."""

    name: str
    created_at: str
    created_by: str
    retention: NotRequired[ProjectRetention]  # of servers that know it
    sessions: int
    sweeps: int


class ProjectsDocument(TypedDict):
    """All projects, by name."""

    projects: list[ProjectDocument]


class UserDocument(TypedDict):
    """A user, and the teams that they are in."""

    name: str
    teams: list[str]
    created_at: str
    created_by: str


class UsersDocument(TypedDict):
    """All users, by name."""

    users: list[UserDocument]


class TeamDocument(TypedDict):
    """A team, and the users in it."""

    name: str
    members: list[str]
    created_at: str
    created_by: str


class TeamsDocument(TypedDict):
    """All teams, by name."""

    teams: list[TeamDocument]


class AccessDocument(TypedDict):
    """A role of a user or of a team in a project; without a project, in all projects."""

    project: str | None
    user: str | None
    team: str | None
    role: str
    created_at: str
    created_by: str


class AccessListDocument(TypedDict):
    """All roles, by project."""

    access: list[AccessDocument]


TokenState = Literal["active", "expired", "revoked"]


class TokenDocument(TypedDict):
    """A token, without its secret; `used_at` is to the minute. Without a project it is valid for all projects."""

    name: str
    state: TokenState
    scopes: list[str]
    project: NotRequired[str | None]
    user: NotRequired[str | None]
    created_at: str
    created_by: str
    expires_at: str | None
    used_at: str | None
    revoked_at: str | None


class NewTokenDocument(TokenDocument):
    """A token that was just created; it is shown once."""

    token: str


class TokensDocument(TypedDict):
    """All tokens, the newest first."""

    tokens: list[TokenDocument]


class PoliciesDocument(TypedDict):
    """The policies of a folder, which were checked; without a folder all is allowed."""

    folder: str | None
    policies: list[str]


class PolicyDecisionDocument(TypedDict):
    """The decision of policies about an act, and the policies that decided."""

    allowed: bool
    action: str
    by: str
    resource: str
    context: dict[str, str | int]
    rules: list[str]
    errors: list[str]
    why: str
