"""Migration 1003: sweeps that are being submitted or deleted in batches, which nobody sees."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1003"
down_revision = "1002"
branch_labels = None
depends_on = None

_SHOWN = ("pending", "running", "paused", "completed", "failed", "cancelled")


def upgrade() -> None:
    before, after = _condition(_SHOWN), _condition(("submitting", *_SHOWN, "deleting"))
    if op.get_bind().dialect.name == "sqlite":
        _replace_in_schema(before, after)
    else:
        op.drop_constraint(op.f("ck_sweeps_status"), "sweeps", type_="check")
        op.create_check_constraint(op.f("ck_sweeps_status"), "sweeps", after)
    # Those whose deletion was begun before there was a status for it.
    going = sa.text("UPDATE sweeps SET status = 'deleting', reason = NULL WHERE status = 'cancelled' AND reason = :why")
    op.get_bind().execute(going, {"why": "is being deleted by `wtb gc`"})
    hidden = sa.text("status IN ('submitting', 'deleting')")
    op.create_index("ix_sweeps_hidden", "sweeps", ["status"], postgresql_where=hidden, sqlite_where=hidden)
    pinned = sa.text("pinned")
    op.create_index("ix_checkpoints_pinned", "checkpoints", ["sweep_id"], postgresql_where=pinned, sqlite_where=pinned)


def _condition(statuses: tuple[str, ...]) -> str:
    return f"status IN ({', '.join(map(repr, statuses))})"


def _replace_in_schema(before: str, after: str) -> None:
    """Change a CHECK on SQLite, which has no statement for it, without making the table that others refer to anew.

    Source: https://www.sqlite.org/lang_altertable.html, "Making Other Kinds Of Table Schema Changes": the shorter
    procedure, for changes that do not affect what is stored.
    """
    connection = op.get_bind()
    version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    changed = sa.text("UPDATE sqlite_schema SET sql = replace(sql, :before, :after) WHERE name = 'sweeps'")
    connection.execute(changed, {"before": before, "after": after})
    connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = RESET")  # and read the schema again
