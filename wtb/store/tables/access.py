"""The tables of projects, users, tokens, sign-ins, requests, uploads, and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from wtb.core.roles import Role
from wtb.store.tables.column_types import (
    Count,
    Digest,
    Id,
    Json,
    Row,
    Seconds,
    column,
    metadata,
    now,
    project_column,
    ref,
)

if TYPE_CHECKING:
    from wtb.core.documents.access import ProjectRetention


class ProjectRow(Row):
    """A project, with the retention of its ended sweeps if it has one of its own, and its numbers of sessions and
    sweeps.
    """

    __tablename__ = "projects"
    name: str = column(sa.String(200), primary_key=True)
    created_at: float = column(Seconds, server_default=now())
    created_by: str = column(sa.String(255))
    retention: ProjectRetention | None = column(Json, comment="of finished sweeps, where the policy does not hold")
    sessions: int
    sweeps: int


projects = ProjectRow.__table__


class TokenRow(Row):
    """A token, by its digest.

    Attributes:
        scopes: The permissions of its holder, by the names of `Permission`.
        project: The project to which it is limited; None for all.
        user: The user whose roles bound it; None for no user.
        used_at: When it was last used, to the minute.
    """

    __tablename__ = "tokens"
    id: str = column(Id, primary_key=True)
    # Names of revoked tokens stay taken, because events and the audit log refer to tokens by name.
    name: str = column(sa.String(64), unique=True, comment="also of those revoked: events name it")
    digest: str = column(sa.String(64), unique=True, comment="SHA-256 of the token, which is not kept")
    scopes: Sequence[str] = column(Json, comment="what its holder may do, by name")
    created_at: float = column(Seconds, server_default=now())
    created_by: str = column(sa.String(200))
    expires_at: float | None = column(Seconds)
    used_at: float | None = column(Seconds, comment="when it was last used, to the minute")
    revoked_at: float | None = column(Seconds)
    project: str | None = column(sa.String(200), comment="all that it is good for; null: all projects")
    user: str | None = column(sa.String(255), comment="whose roles bound what it is good for; null: nobody's")
    __table_args__ = (sa.Index("ix_tokens_project", "project"),)


tokens = TokenRow.__table__


class UserRow(Row):
    """A person who may have roles, with the names of their teams."""

    __tablename__ = "users"
    name: str = column(sa.String(255), primary_key=True)
    created_at: float = column(Seconds, server_default=now())
    created_by: str = column(sa.String(255))
    teams: Sequence[str]


users = UserRow.__table__


class TeamRow(Row):
    """Users that may have roles together, by their names."""

    __tablename__ = "teams"
    name: str = column(sa.String(200), primary_key=True)
    created_at: float = column(Seconds, server_default=now())
    created_by: str = column(sa.String(255))
    members: Sequence[str]


teams = TeamRow.__table__

members = sa.Table(
    "members",
    metadata,
    sa.Column("team", sa.String(200), sa.ForeignKey("teams.name", ondelete="CASCADE"), primary_key=True),
    sa.Column("user", sa.String(255), sa.ForeignKey("users.name", ondelete="CASCADE"), primary_key=True, index=True),
)


# A row has a user or a team; the other column is empty, because a key allows no null.
class AccessRow(Row):
    """A role of a user or of a team in a project; None stands for all projects."""

    __tablename__ = "access"
    project: str | None = column(sa.String(200), primary_key=True, comment="empty: all projects")
    user: str | None = column(sa.String(255), primary_key=True, server_default="")
    team: str | None = column(sa.String(200), primary_key=True, server_default="")
    role: Role = column(sa.String(10))
    created_at: float = column(Seconds, server_default=now())
    created_by: str = column(sa.String(255))
    __table_args__ = (
        # Exactly one of the two.
        sa.CheckConstraint("""("user" = '') <> (team = '')""", name="holder"),
        sa.CheckConstraint(f"role IN ({', '.join(repr(str(role)) for role in Role)})", name="role"),
    )


access = AccessRow.__table__


class SignInRow(Row):
    """A browser from which somebody signed in, by the digest of its secret.

    Attributes:
        kind: Its origin: `operator`, `token`, or `provider`.
        source: The digest of the token, or of the provider's user.
        name: The name of the provider's user in events.
        scopes: The permissions, by the names of `Permission`.
        address: The address of the client; None if unknown.
        used_at: When it was last used, to the minute.
    """

    __tablename__ = "sign_ins"
    id: str = column(Id, primary_key=True)
    digest: str = column(sa.String(64), unique=True, comment="SHA-256 of the cookie, which is not kept")
    kind: str = column(sa.String(8))
    source: str = column(sa.String(64), comment="digest of their token, or of whom a provider knows")
    name: str | None = column(sa.String(200), comment="of whom a provider knows")
    scopes: Sequence[str] | None = column(Json, comment="what they may do")
    address: str | None = column(sa.String(64), comment="from where")
    created_at: float = column(Seconds, server_default=now())
    used_at: float = column(Seconds, server_default=now(), comment="to the minute")
    expires_at: float = column(Seconds)
    __table_args__ = (
        sa.CheckConstraint("kind IN ('operator', 'token', 'provider')", name="kind"),
        sa.CheckConstraint("(kind = 'provider') = (name IS NOT NULL AND scopes IS NOT NULL)", name="name"),
    )


sign_ins = SignInRow.__table__


class AuditRow(Row):
    """A row of the audit log.

    Attributes:
        call: Pairs the rows of the beginning and the end of an operation.
        arguments: JSON; None in the second row of a call.
        outcome: None in the row of the beginning.
        result: JSON with the names of the results.
    """

    __tablename__ = "audit"
    number: int = column(sa.BigInteger, primary_key=True, autoincrement=False, comment="without gaps")
    at: float = column(Seconds)
    call: str = column(Id, index=True, comment="of the row that it began with and the one of its end")
    by: str = column(sa.String(255))
    via: str = column(sa.String(255), comment="command or route")
    address: str | None = column(sa.String(64), comment="from where; null: this machine")
    token: str | None = column(sa.String(64), comment="name of the token")
    operation: str = column(sa.String(64))
    arguments: str | None = column(sa.Text, comment="JSON; null in the second row of a call")
    outcome: str | None = column(sa.String(8), comment="null: it has begun to change something")
    result: str | None = column(sa.Text, comment="JSON: what names it, such as an id")
    error: str | None = column(sa.Text)
    hash: str = column(sa.String(64), comment="of this row and the hash of the one before")
    __table_args__ = (
        sa.CheckConstraint("outcome IN ('done', 'failed')", name="outcome"),
        sa.CheckConstraint("arguments IS NOT NULL OR outcome IS NOT NULL", name="arguments"),
        {"comment": "who changed what; rows are only added, but for the oldest, which may be pruned"},
    )


audit = AuditRow.__table__


class IdempotencyKeyRow(Row):
    """A key of a request that changed something.

    Attributes:
        digest: The digest of the caller and the key.
        request: The digest of the content of the request.
        status: The status of the answer; None until there is one.
        body: The body of the answer, JSON.
        projects: The projects that its answer may mention, as the setting `wtb.projects`.
    """

    __tablename__ = "idempotency_keys"
    digest: str = column(Digest, primary_key=True, comment="SHA-256 of who asks and the key")
    request: str = column(Digest, comment="SHA-256 of what was asked for")
    created_at: float = column(Seconds, server_default=now())
    status: int | None = column(sa.Integer, comment="of the answer; null until there is one")
    location: str | None = column(sa.String(500))
    body: str | None = column(sa.Text, comment="of the answer, JSON")
    projects: str = column(
        sa.Text, server_default="*", comment="the projects that its answer may contain, in the form of wtb.projects"
    )
    __table_args__ = (
        sa.CheckConstraint("(status IS NULL) = (body IS NULL)", name="answer"),
        sa.Index("ix_idempotency_keys_created", "created_at"),
    )


idempotency_keys = IdempotencyKeyRow.__table__


class OperationRow(Row):
    """An operation that takes longer than a request.

    Attributes:
        name: Its name in the registry.
        by: The caller.
        projects: The projects that it may mention, as `projects_setting` returns them.
        key: The digest of the caller, the Idempotency-Key and the content of the request.
        lease_until: Until when its server counts as alive, unless it renews the lease.
        status: The status of the answer; None until there is one.
        body: The body of the answer, JSON.
    """

    __tablename__ = "operations"
    id: str = column(Id, primary_key=True)
    name: str = column(sa.String(50), comment="in the registry")
    by: str = column(sa.String(255))
    projects: str = column(sa.Text, comment="the projects that it may contain, in the form of wtb.projects")
    key: str | None = column(
        Digest, unique=True, comment="SHA-256 of who asked, of their Idempotency-Key and of what they asked"
    )
    began_at: float = column(Seconds, server_default=now())
    lease_until: float = column(Seconds, comment="until then its server lives")
    ended_at: float | None = column(Seconds)
    status: int | None = column(sa.Integer, comment="of the answer; null until there is one")
    location: str | None = column(sa.String(500))
    body: str | None = column(sa.Text, comment="of the answer, JSON")
    __table_args__ = (
        sa.CheckConstraint(
            "(status IS NULL) = (ended_at IS NULL) AND (status IS NULL) = (body IS NULL)", name="answer"
        ),
        sa.CheckConstraint("projects <> ''", name="projects"),
        sa.Index("ix_operations_began", "began_at"),
        {"comment": "what takes longer than a request, with what came of it"},
    )


operations = OperationRow.__table__


class UploadRow(Row):
    """A file that is sent before the sweep that takes its cases from it.

    Attributes:
        digest: The SHA-256 that its content must have.
        bytes: The size of the received parts.
        by: The sender.
        completed_at: When it was complete.
    """

    __tablename__ = "uploads"
    id: str = column(Id, primary_key=True)
    project: str = project_column()
    digest: str = column(Digest, comment="SHA-256 that its content has to have")
    bytes: int = column(Count, server_default="0", comment="of the parts that have come")
    by: str = column(sa.String(255))
    created_at: float = column(Seconds, server_default=now())
    completed_at: float | None = column(Seconds, comment="when all of it had arrived, and matched its digest")
    __table_args__ = (
        sa.Index("ix_uploads_digest", "digest"),
        sa.Index("ix_uploads_project", "project"),
        {"comment": "files that are sent before the sweeps that take their cases from them"},
    )


uploads = UploadRow.__table__

upload_parts = sa.Table(
    "upload_parts",
    metadata,
    sa.Column("upload_id", Id, ref("uploads.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, comment="from 0"),
    sa.Column("content", sa.LargeBinary, nullable=False),
)
