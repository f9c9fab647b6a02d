"""The tables of what things belong to and who may ask a server: projects, tokens, sign-ins, and who changed what."""

from __future__ import annotations

import sqlalchemy as sa

from wtb.core.access.roles import Role
from wtb.core.ids import DEFAULT_PROJECT
from wtb.store.tables.column_types import Digest, Id, Json, Seconds, metadata, now


def project_column() -> sa.Column[str]:
    """The project that the rows of a table belong to.

    Not a reference: projects are never removed and never get another name, and SQLite adds no reference that is needed.
    """
    return sa.Column("project", sa.String(200), nullable=False, server_default=DEFAULT_PROJECT)


projects = sa.Table(
    "projects",
    metadata,
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.Column("created_by", sa.String(255), nullable=False),
    sa.Column("retention", Json, comment="of finished sweeps, where the policy does not hold"),
)

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("name", sa.String(64), nullable=False, unique=True, comment="also of those revoked: events name it"),
    sa.Column("digest", sa.String(64), nullable=False, unique=True, comment="SHA-256 of the token, which is not kept"),
    sa.Column("scopes", Json, nullable=False, comment="what its holder may do, by name"),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.Column("created_by", sa.String(200), nullable=False),
    sa.Column("expires_at", Seconds),
    sa.Column("used_at", Seconds, comment="when it was last used, to the minute"),
    sa.Column("revoked_at", Seconds),
    sa.Column("project", sa.String(200), comment="all that it is good for; null: all projects"),
    sa.Column("user", sa.String(255), comment="whose roles bound what it is good for; null: nobody's"),
    sa.Index("ix_tokens_project", "project"),
)

users = sa.Table(
    "users",
    metadata,
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.Column("created_by", sa.String(255), nullable=False),
)

teams = sa.Table(
    "teams",
    metadata,
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.Column("created_by", sa.String(255), nullable=False),
)

members = sa.Table(
    "members",
    metadata,
    sa.Column("team", sa.String(200), sa.ForeignKey("teams.name", ondelete="CASCADE"), primary_key=True),
    sa.Column("user", sa.String(255), sa.ForeignKey("users.name", ondelete="CASCADE"), primary_key=True, index=True),
)

# Either of a user or of a team; the one that it is not of is empty, since a key has no null.
access = sa.Table(
    "access",
    metadata,
    sa.Column("project", sa.String(200), primary_key=True, comment="empty: all projects"),
    sa.Column("user", sa.String(255), primary_key=True, server_default=""),
    sa.Column("team", sa.String(200), primary_key=True, server_default=""),
    sa.Column("role", sa.String(10), nullable=False),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.Column("created_by", sa.String(255), nullable=False),
    sa.CheckConstraint("""("user" = '') <> (team = '')""", name="holder"),
    sa.CheckConstraint(f"role IN ({', '.join(repr(str(role)) for role in Role)})", name="role"),
)

sign_ins = sa.Table(
    "sign_ins",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False, unique=True, comment="SHA-256 of the cookie, which is not kept"),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("source", sa.String(64), nullable=False, comment="digest of their token, or of whom a provider knows"),
    sa.Column("name", sa.String(200), comment="of whom a provider knows"),
    sa.Column("scopes", Json, comment="what they may do"),
    sa.Column("address", sa.String(64), comment="from where"),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.Column("used_at", Seconds, nullable=False, server_default=now(), comment="to the minute"),
    sa.Column("expires_at", Seconds, nullable=False),
    sa.CheckConstraint("kind IN ('operator', 'token', 'provider')", name="kind"),
    sa.CheckConstraint("(kind = 'provider') = (name IS NOT NULL AND scopes IS NOT NULL)", name="name"),
)

audit = sa.Table(
    "audit",
    metadata,
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False, comment="without gaps"),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("call", Id, nullable=False, index=True, comment="of the row that it began with and the one of its end"),
    sa.Column("by", sa.String(255), nullable=False),
    sa.Column("via", sa.String(255), nullable=False, comment="command or route"),
    sa.Column("address", sa.String(64), comment="from where; null: this machine"),
    sa.Column("token", sa.String(64), comment="name of the token"),
    sa.Column("operation", sa.String(64), nullable=False),
    sa.Column("arguments", sa.Text, comment="JSON; null in the second row of a call"),
    sa.Column("outcome", sa.String(8), comment="null: it has begun to change something"),
    sa.Column("result", sa.Text, comment="JSON: what names it, such as an id"),
    sa.Column("error", sa.Text),
    sa.Column("hash", sa.String(64), nullable=False, comment="of this row and the hash of the one before"),
    sa.CheckConstraint("outcome IN ('done', 'failed')", name="outcome"),
    sa.CheckConstraint("arguments IS NOT NULL OR outcome IS NOT NULL", name="arguments"),
    comment="who changed what; rows are only added, but for the oldest, which may be pruned",
)

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("digest", Digest, primary_key=True, comment="SHA-256 of who asks and the key"),
    sa.Column("request", Digest, nullable=False, comment="SHA-256 of what was asked for"),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.Column("status", sa.Integer, comment="of the answer; null until there is one"),
    sa.Column("location", sa.String(500)),
    sa.Column("body", sa.Text, comment="of the answer, JSON"),
    sa.Column(
        "projects",
        sa.Text,
        nullable=False,
        server_default="*",
        comment="of which its answer may tell, as wtb.projects says them",
    ),
    sa.CheckConstraint("(status IS NULL) = (body IS NULL)", name="answer"),
    sa.Index("ix_idempotency_keys_created", "created_at"),
)

operations = sa.Table(
    "operations",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("name", sa.String(50), nullable=False, comment="in the registry"),
    sa.Column("by", sa.String(255), nullable=False),
    sa.Column("projects", sa.Text, nullable=False, comment="of which it may tell, as wtb.projects says them"),
    sa.Column(
        "key", Digest, unique=True, comment="SHA-256 of who asked, of their Idempotency-Key and of what they asked"
    ),
    sa.Column("began_at", Seconds, nullable=False, server_default=now()),
    sa.Column("lease_until", Seconds, nullable=False, comment="until then its server lives"),
    sa.Column("ended_at", Seconds),
    sa.Column("status", sa.Integer, comment="of the answer; null until there is one"),
    sa.Column("location", sa.String(500)),
    sa.Column("body", sa.Text, comment="of the answer, JSON"),
    sa.CheckConstraint("(status IS NULL) = (ended_at IS NULL) AND (status IS NULL) = (body IS NULL)", name="answer"),
    sa.CheckConstraint("projects <> ''", name="projects"),
    sa.Index("ix_operations_began", "began_at"),
    comment="what takes longer than a request, with what came of it",
)
