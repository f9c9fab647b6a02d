"""Migration 1038: what a project has is found by an index, however much others have."""

from __future__ import annotations

from alembic import op

revision = "1038"
down_revision = "1028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_sweeps_project", "sweeps", ["project", "created_at", "id"])
    op.create_index("ix_sessions_project", "sessions", ["project"])
    op.create_index("ix_tokens_project", "tokens", ["project"])
