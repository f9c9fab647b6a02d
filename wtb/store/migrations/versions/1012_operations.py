"""Migration 1012: operations that take longer than a request, with what came of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.schema import now

revision = "1012"
down_revision = "1011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "operations",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(50), nullable=False, comment="in the registry"),
        sa.Column("by", sa.String(255), nullable=False),
        sa.Column("projects", sa.Text, nullable=False, comment="of which it may tell, as wtb.projects says them"),
        sa.Column(
            "key", sa.String(64), comment="SHA-256 of who asked, of their Idempotency-Key and of what they asked"
        ),
        sa.Column("began_at", sa.Double, nullable=False, server_default=now()),
        sa.Column("lease_until", sa.Double, nullable=False, comment="until then its server lives"),
        sa.Column("ended_at", sa.Double),
        sa.Column("status", sa.Integer, comment="of the answer; null until there is one"),
        sa.Column("location", sa.String(500)),
        sa.Column("body", sa.Text, comment="of the answer, JSON"),
        sa.CheckConstraint(
            "(status IS NULL) = (ended_at IS NULL) AND (status IS NULL) = (body IS NULL)",
            name=op.f("ck_operations_answer"),
        ),
        sa.CheckConstraint("projects <> ''", name=op.f("ck_operations_projects")),
        sa.UniqueConstraint("key", name=op.f("uq_operations_key")),
        comment="what takes longer than a request, with what came of it",
    )
    op.create_index("ix_operations_began", "operations", ["began_at"])
