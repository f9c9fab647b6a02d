"""Migration 1013: files that are sent before the sweeps that take their cases from them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.schema import now

revision = "1013"
down_revision = "1012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "uploads",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("project", sa.String(200), nullable=False, server_default="default"),
        sa.Column("digest", sa.String(64), nullable=False, comment="SHA-256 that its content has to have"),
        sa.Column("bytes", sa.BigInteger, nullable=False, server_default="0", comment="of the parts that have come"),
        sa.Column("by", sa.String(255), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False, server_default=now()),
        sa.Column("completed_at", sa.Double, comment="when all of it had come, and was what its digest says"),
        comment="files that are sent before the sweeps that take their cases from them",
    )
    op.create_index("ix_uploads_digest", "uploads", ["digest"])
    op.create_index("ix_uploads_project", "uploads", ["project"])
    op.create_table(
        "upload_parts",
        sa.Column("upload_id", sa.String(32), sa.ForeignKey("uploads.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, comment="from 0"),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
