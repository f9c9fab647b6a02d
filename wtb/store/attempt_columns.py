"""Attempts as queries read them, with or without a row of their own.

A node run that succeeds at its first attempt has no row in `attempts`: its own row describes that attempt. The same
holds while a first attempt runs, until it fails or somebody finds that it was lost. `begun_at` is null as soon as
`attempts` has the row, so that no attempt is in both places.
"""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from wtb.core.failures import UNFINISHED
from wtb.store.tables.column_types import Json
from wtb.store.tables.schema import attempts, node_runs

# Every query that joins so has `is_attempt` among its conditions: a node run may have no attempt yet.
of_node_run: Final = attempts.c.node_run_id == node_runs.c.id
node_runs_with_attempts: Final = node_runs.outerjoin(attempts, of_node_run)
_has_row = attempts.c.number.is_not(None)
is_attempt: Final = sa.or_(_has_row, node_runs.c.begun_at.is_not(None))

_succeeded = node_runs.c.status == "succeeded"
_OF_FIRST: Final[dict[str, sa.ColumnElement[Any]]] = {
    "node_run_id": node_runs.c.id,
    "number": sa.literal_column("1", sa.Integer),
    "status": sa.case((_succeeded, "succeeded"), else_="failed"),
    "started_at": node_runs.c.begun_at,
    "failure": sa.case((_succeeded, sa.cast(sa.null(), Json)), else_=sa.literal(UNFINISHED.stored(), Json)),
    **{name: node_runs.c[name] for name in ("duration_s", "usd", "tokens_in", "tokens_out", "fingerprint")},
    **{name: node_runs.c[name] for name in ("stdout", "stderr")},
}
"""The columns of `attempts`, of a first attempt that has no row there."""


def attempt_column(name: str) -> sa.ColumnElement[Any]:
    """Return a column of attempts for a query of `node_runs_with_attempts`."""
    column = attempts.c[name]
    return sa.type_coerce(sa.case((_has_row, column), else_=_OF_FIRST[name]), column.type).label(name)


def select_first_attempts(which: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Select first attempts that have no row of their own, with the columns of `attempts`.

    Args:
        which: A condition for rows of `node_runs`.
    """
    columns = (_OF_FIRST[column.name].label(column.name) for column in attempts.c)
    return sa.select(*columns).where(which, node_runs.c.begun_at.is_not(None))
