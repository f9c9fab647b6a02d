"""Migration 1037: of which version what gave a score was."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1037"
down_revision = "1034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "of what gave it, such as the model that a judge was answered by"
    op.add_column("scores", sa.Column("version", sa.String(200), comment=comment))
