"""Migration 1005: what workers publish of the code that they can run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1005"
down_revision = "1004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "publications",
        sa.Column("kind", sa.String(12), primary_key=True),
        sa.Column("name", sa.String(500), primary_key=True, comment="registered; of an evaluator its import path"),
        sa.Column("path", sa.String(500), nullable=False, comment="import path"),
        sa.Column("digest", sa.String(64), comment="SHA-256 of the description"),
        sa.Column("description", sa.Text, comment="JSON, whose order counts; null where no worker could import it"),
        sa.Column("published_at", sa.Double),
        sa.Column("published_by", sa.String(255), comment="the worker that did"),
        sa.Column("error", sa.Text, comment="why a worker cannot import it"),
        sa.Column("failed_at", sa.Double),
        sa.Column("failed_by", sa.String(255)),
        sa.CheckConstraint("kind IN ('workflow', 'evaluator')", name="kind"),
        sa.CheckConstraint("description IS NOT NULL OR error IS NOT NULL", name="content"),
    )
