"""Migration 1022: of which version a tool of a server was when it was called."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1022"
down_revision = "1015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "of the tool of a server: a digest of what the server said of it"
    op.add_column("invocations", sa.Column("version", sa.String(200), comment=comment))
