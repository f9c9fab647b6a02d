"""Migration 1010: cases that were erased, of which a tombstone is left."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1010"
down_revision = "1009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "nothing but its id and number is left of it then"
    op.add_column("cases", sa.Column("erased_at", sa.Double, comment=comment))
    op.add_column("cases", sa.Column("erased_by", sa.String(255)))
