"""Migration 1052: pending executions are published as tasks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.column_types import Json

revision = "1052"
down_revision = "1051"
branch_labels = None
depends_on = None

_TASK = "the task of workers that it was published in, or that runs or ran it"
_TOKEN = "its token when it was published; a claim makes another one"
_SENT = "when the message of its task was last sent"
_SCORING_SENT = "when its task was last sent; null while it waits for that"
_ROOT_S = "seconds that a root with its tree took a slot lately; null until measured"
_REFUSED = "ids of sweeps whose code it rejects; null if none"


def upgrade() -> None:
    op.add_column("executions", sa.Column("task_id", sa.String(32), comment=_TASK))
    op.add_column("executions", sa.Column("task_token", sa.BigInteger, comment=_TOKEN))
    op.add_column("executions", sa.Column("published_at", sa.Double, comment=_SENT))
    published = sa.text("status = 'pending' AND task_token = token")
    op.create_index(
        "ix_executions_published", "executions", ["task_id"], postgresql_where=published, sqlite_where=published
    )
    op.add_column("scorings", sa.Column("published_at", sa.Double, comment=_SCORING_SENT))
    op.add_column("sweeps", sa.Column("root_s", sa.Double, comment=_ROOT_S))
    op.add_column("runners", sa.Column("refused", Json, comment=_REFUSED))
