"""Migration 1007: users, teams, and the roles that they have in projects; tokens of users."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.schema import now

revision = "1007"
down_revision = "1006"
branch_labels = None
depends_on = None

_ROLES = "role IN ('viewer', 'runner', 'approver', 'maintainer', 'admin')"


def upgrade() -> None:
    for table, length in (("users", 255), ("teams", 200)):
        op.create_table(table, sa.Column("name", sa.String(length), primary_key=True), *_made())
    op.create_table(
        "members",
        sa.Column("team", sa.String(200), sa.ForeignKey("teams.name", ondelete="CASCADE"), primary_key=True),
        sa.Column(
            "user", sa.String(255), sa.ForeignKey("users.name", ondelete="CASCADE"), primary_key=True, index=True
        ),
    )
    op.create_table(
        "access",
        sa.Column("project", sa.String(200), primary_key=True, comment="empty: all projects"),
        sa.Column("user", sa.String(255), primary_key=True, server_default=""),
        sa.Column("team", sa.String(200), primary_key=True, server_default=""),
        sa.Column("role", sa.String(10), nullable=False),
        *_made(),
        sa.CheckConstraint("""("user" = '') <> (team = '')""", name="holder"),
        sa.CheckConstraint(_ROLES, name="role"),
    )
    op.add_column(
        "tokens", sa.Column("user", sa.String(255), comment="whose roles bound what it is good for; null: nobody's")
    )


def _made() -> tuple[sa.Column[float], sa.Column[str]]:
    return (
        sa.Column("created_at", sa.Double, nullable=False, server_default=now()),
        sa.Column("created_by", sa.String(255), nullable=False),
    )
