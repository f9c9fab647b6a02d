"""Migration 1044: calls and decisions in the log, and the variant that a node run replaces."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.column_types import Json

revision = "1044"
down_revision = "1043"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "node_runs",
        sa.Column("replaces", sa.String(200), comment="the default variant, if the first visit applies another one"),
    )
    op.add_column(
        "decisions",
        sa.Column("tried", Json, comment="[to, condition or key, whether it was taken] of each edge that was tried"),
    )
    op.add_column(
        "calls",
        sa.Column("cached", sa.BigInteger(), comment="tokens of the prompt that were read from the provider's cache"),
    )
    for table in ("calls", "invocations"):
        op.add_column(table, sa.Column("sweep_id", sa.String(32), comment="of calls that the log has"))
        op.add_column(table, sa.Column("logged_transaction", sa.BigInteger(), comment="the position in the log"))
        op.add_column(table, sa.Column("logged_event", sa.BigInteger()))
        op.create_index(f"ix_{table}_logged", table, ["sweep_id", "logged_transaction", "logged_event"])
