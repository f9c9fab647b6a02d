"""Migration 1054: no index of cells by execution, of leases, or of node runs by node."""

from __future__ import annotations

from alembic import op

revision = "1054"
down_revision = "1053"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("ix_cells_execution_id", "cells")
    op.drop_index("ix_executions_lease_until", "executions")
    op.drop_index("ix_node_runs_sweep_id_node", "node_runs")
    if op.get_bind().dialect.name == "postgresql":  # of pages that are written from now on
        op.execute("ALTER TABLE cells SET (fillfactor = 40)")
        op.execute("ALTER TABLE executions SET (fillfactor = 80)")
