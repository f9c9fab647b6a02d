"""Migration 1015: how long finished sweeps of a project are kept, where that is not what the policy says."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "1015"
down_revision = "1017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
    comment = "of finished sweeps, where the policy does not hold"
    op.add_column("projects", sa.Column("retention", json, comment=comment))
