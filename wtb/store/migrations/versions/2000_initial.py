"""Migration 2000: all tables. Until the release of 0.1.0 they are as they are declared, and no database is upgraded.

The release writes them out here, since later migrations change what is declared.
"""

from __future__ import annotations

from alembic import op

from wtb.store.tables.schema import metadata

revision = "2000"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
