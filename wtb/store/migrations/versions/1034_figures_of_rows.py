"""Migration 1034: figures over all cells of a row."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1034"
down_revision = "1023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    observed = "what the cell tells of a figure over all cells of a row"
    op.add_column("scores", sa.Column("observed", sa.Text, comment=observed))
    figure = "over all cells of a row, which scores are parts of"
    op.add_column("metrics", sa.Column("figure", sa.String(32), comment=figure))
