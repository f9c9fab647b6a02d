"""Migration 1054: no index of cells by execution, of leases, of parents, or of node runs by node; small JSON as
text; events of forks are derived.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1054"
down_revision = "1053"
branch_labels = None
depends_on = None

_AS_TEXT = {
    "checkpoints": ("position", "state", "writers", "totals"),
    "node_runs": ("writes",),
}
_GUARD = """
    CREATE OR REPLACE FUNCTION reject_unfinished_execution() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM checkpoints WHERE id = NEW.head_id AND json_array_length(position->'next') > 0)
            OR EXISTS (SELECT FROM node_runs WHERE checkpoint_id = NEW.head_id AND status = 'running')
        THEN
            RAISE EXCEPTION USING ERRCODE = 'check_violation',
                MESSAGE = 'a completed execution has next nodes or a running node run at its head: ' || NEW.id;
        END IF;
        RETURN NEW;
    END $$
    """


def upgrade() -> None:
    comment = "into how many it forked, if its end in the log is that"
    op.add_column("executions", sa.Column("children", sa.Integer, comment=comment))
    op.drop_index("ix_cells_execution_id", "cells")
    op.drop_index("ix_executions_lease_until", "executions")
    op.drop_index("ix_node_runs_sweep_id_node", "node_runs")
    op.drop_index("ix_executions_parent_id", "executions")
    op.create_index("ix_executions_case", "executions", ["sweep_id", "case_number", "repeat"])
    has_end = sa.text("ended_event IS NOT NULL")
    columns = ["sweep_id", "ended_transaction", "ended_event"]
    op.drop_index("ix_executions_ended", "executions")
    op.create_index("ix_executions_ended", "executions", columns, postgresql_where=has_end, sqlite_where=has_end)
    has_start = sa.text("started_event IS NOT NULL")
    columns = ["sweep_id", "started_transaction", "started_event"]
    op.drop_index("ix_node_runs_started", "node_runs")
    op.create_index("ix_node_runs_started", "node_runs", columns, postgresql_where=has_start, sqlite_where=has_start)
    if op.get_bind().dialect.name == "postgresql":  # of pages that are written from now on
        op.execute("ALTER TABLE cells SET (fillfactor = 40)")
        op.execute("ALTER TABLE executions SET (fillfactor = 80)")
        for table, names in _AS_TEXT.items():
            changes = (f"ALTER COLUMN {name} TYPE json USING {name}::json" for name in names)
            op.execute(f"ALTER TABLE {table} {', '.join(changes)}")
        # As they are written now: some queries group by this text.
        text = "translate(combinations::text, ' ', '')"
        op.execute(f"ALTER TABLE executions ALTER COLUMN combinations TYPE json USING {text}::json")
        op.execute(_GUARD)
