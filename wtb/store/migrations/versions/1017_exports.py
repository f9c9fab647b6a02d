"""Migration 1017: up to where of the log traces were sent to collectors."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.schema import now

revision = "1017"
down_revision = "1014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "exporters",
        sa.Column("endpoint", sa.String(500), primary_key=True, comment="of a collector"),
        sa.Column(
            "began_at", sa.Double, nullable=False, server_default=now(), comment="sweeps that had ended are not sent"
        ),
        sa.Column("owner_id", sa.String(32), comment="the process that sends"),
        sa.Column("lease_until", sa.Double),
        sa.Column(
            "spans",
            sa.BigInteger,
            nullable=False,
            server_default="0",
            comment="that were sent, those sent again included",
        ),
        sa.Column("rejected", sa.BigInteger, nullable=False, server_default="0", comment="those that it refused"),
        sa.Column("sent_at", sa.Double, comment="when it last took some"),
        sa.Column("failing_since", sa.Double),
        sa.Column("error", sa.Text, comment="why it takes none"),
        sa.CheckConstraint("(failing_since IS NULL) = (error IS NULL)", name=op.f("ck_exporters_failing")),
        comment="collectors that are sent traces",
    )
    op.create_table(
        "exports",
        sa.Column(
            "endpoint", sa.String(500), sa.ForeignKey("exporters.endpoint", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("sweep_id", sa.String(32), sa.ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("transaction", sa.BigInteger, nullable=False, comment="up to where of its log everything was sent"),
        sa.Column("event", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_exports_sweep_id", "exports", ["sweep_id"])
