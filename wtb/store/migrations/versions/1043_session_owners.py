"""Migration 1043: the owner and the metadata of a session."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.column_types import Json

revision = "1043"
down_revision = "1042"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sessions", sa.Column("owner", sa.String(200), comment="who is responsible for it"))
    op.add_column("sessions", sa.Column("metadata", Json, comment="texts by name"))
