"""Migration 1028: how many cells of each status a sweep has, beside the matrix that is kept of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.column_types import Json

revision = "1028"
down_revision = "1037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "how many there are of each status, once the matrix is kept"
    op.add_column("matrices", sa.Column("cells", Json, comment=comment))
