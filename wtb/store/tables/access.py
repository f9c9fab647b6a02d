"""The tables of what things belong to and who may ask a server: projects, tokens, sign-ins, and who changed what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from wtb.core.access.roles import Role
from wtb.store.tables.column_types import Digest, Id, Json, Seconds, metadata, now
from wtb.store.tables.row import Row, column

if TYPE_CHECKING:
    from wtb.core.documents.administration import ProjectRetention


class ProjectRow(Row):
    """A project. retention: of its finished sweeps, where the policy does not hold; sessions, sweeps: how many."""

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
        scopes: What its holder may do, by the names of `Permission`.
        project: Where; None for everywhere.
        user: Whose roles bound it; None for nobody's.
        used_at: When it was last used, to the minute.
    """

    __tablename__ = "tokens"
    id: str = column(Id, primary_key=True)
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
    """Somebody who may be given roles. teams: the names of those that they are in."""

    __tablename__ = "users"
    name: str = column(sa.String(255), primary_key=True)
    created_at: float = column(Seconds, server_default=now())
    created_by: str = column(sa.String(255))
    teams: Sequence[str]


users = UserRow.__table__


class TeamRow(Row):
    """Users that may be given roles together. members: their names."""

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


# Either of a user or of a team; the one that it is not of is empty, since a key has no null.
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
        sa.CheckConstraint("""("user" = '') <> (team = '')""", name="holder"),
        sa.CheckConstraint(f"role IN ({', '.join(repr(str(role)) for role in Role)})", name="role"),
    )


access = AccessRow.__table__


class SignInRow(Row):
    """A browser that somebody signed in from, by the digest of what it sends.

    Attributes:
        kind: Whose it is: the `operator`'s, of whoever has a `token`, or of whom a `provider` knows.
        source: Digest of the token by which they signed in, or of whom the provider knows.
        name: What events call whom a provider knows.
        scopes: What they may do, by the names of `Permission`.
        address: From where; None where that is not known.
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
        call: Of the row that an operation began to change something with, and of the one of its end.
        arguments: JSON; None in the second row of a call.
        outcome: None where it has begun to change something.
        result: JSON, of what names it.
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
        digest: Of who asks and the key.
        request: Digest of what was asked for.
        status: Of the answer; None until there is one.
        body: Of the answer, JSON.
        projects: Of which its answer may tell, as `wtb.projects` says them.
    """

    __tablename__ = "idempotency_keys"
    digest: str = column(Digest, primary_key=True, comment="SHA-256 of who asks and the key")
    request: str = column(Digest, comment="SHA-256 of what was asked for")
    created_at: float = column(Seconds, server_default=now())
    status: int | None = column(sa.Integer, comment="of the answer; null until there is one")
    location: str | None = column(sa.String(500))
    body: str | None = column(sa.Text, comment="of the answer, JSON")
    projects: str = column(
        sa.Text, server_default="*", comment="of which its answer may tell, as wtb.projects says them"
    )
    __table_args__ = (
        sa.CheckConstraint("(status IS NULL) = (body IS NULL)", name="answer"),
        sa.Index("ix_idempotency_keys_created", "created_at"),
    )


idempotency_keys = IdempotencyKeyRow.__table__


class OperationRow(Row):
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

    __tablename__ = "operations"
    id: str = column(Id, primary_key=True)
    name: str = column(sa.String(50), comment="in the registry")
    by: str = column(sa.String(255))
    projects: str = column(sa.Text, comment="of which it may tell, as wtb.projects says them")
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
