"""Migration 1049: the order of nodes and state keys, which PostgreSQL's JSONB forgets."""

from __future__ import annotations

from alembic import op

revision = "1049"
down_revision = "1047"
branch_labels = None
depends_on = None

_ORDERED = (("workflows", "graph"), ("sweeps", "spec"), ("sweeps", "fingerprints"), ("combinations", "choices"))


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":  # SQLite keeps the text
        for table, column in _ORDERED:
            op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE json USING {column}::json")
