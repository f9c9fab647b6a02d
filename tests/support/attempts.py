"""All attempts, those that have no row of their own included."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from wtb.store.cell_status import attempt_column, is_attempt, node_runs_with_attempts
from wtb.store.tables import schema

attempts = (
    sa.select(*(attempt_column(column.name) for column in schema.attempts.c))
    .select_from(node_runs_with_attempts)
    .where(is_attempt)
    .subquery("attempts")
)

_FIRST: Final = {
    "node_run_id": "runs.id",
    "number": "1",
    "status": "CASE runs.status WHEN 'succeeded' THEN 'succeeded' ELSE 'failed' END",
    "started_at": "runs.begun_at",
    **{name: f"runs.{name}" for name in ("duration_s", "usd", "tokens_in", "tokens_out", "stdout", "stderr")},
}
_COLUMNS: Final = ", ".join(f"coalesce(rows.{name}, {first}) AS {name}" for name, first in _FIRST.items())
ATTEMPTS: Final = (
    f"(SELECT {_COLUMNS}, rows.failure FROM node_runs AS runs LEFT JOIN attempts AS rows ON rows.node_run_id = runs.id "
    "WHERE rows.number IS NOT NULL OR runs.begun_at IS NOT NULL) AS attempts"
)
"""The same as text of SQL, to follow FROM."""
