"""Finished executions to score again, and their new scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from wtb.store.bulk import insert_missing, insert_rows, update_rows
from wtb.store.database import Database
from wtb.store.events import event_row, of_execution
from wtb.store.log import insert_events, keep_events
from wtb.store.rows.executions import ExecutionRow
from wtb.store.rows.sweeps import SweepRow
from wtb.store.tables.schema import cells, executions, metrics, scores

if TYPE_CHECKING:
    from wtb.core.scoring.measure import Score

CHUNK = 500


def scored_executions(database: Database, sweep_id: str) -> Iterator[list[ExecutionRow]]:
    """Executions that hold succeeded cells, with the combinations that they hold, in chunks."""
    after = ""
    while True:
        ids = (
            sa.select(cells.c.execution_id)
            .where(cells.c.sweep_id == sweep_id, cells.c.status == "succeeded", cells.c.execution_id > after)
            .distinct()
            .order_by(cells.c.execution_id)
            .limit(CHUNK)
        )
        query = sa.select(executions).where(executions.c.id.in_(ids)).order_by(executions.c.id)
        rows = database.records(ExecutionRow, query)
        if not rows:
            return
        yield rows
        after = rows[-1].id


def write_scores(database: Database, sweep: SweepRow, made: Iterable[tuple[ExecutionRow, Sequence[Score]]]) -> int:
    """Replace the scores of these metrics for the cells of each execution. Returns how many were written."""
    rows, event_rows, names, ids = [], [], {}, []
    for execution, found in made:
        ids.append(execution.id)
        for score in found:
            names[score.metric] = score.measure.row()
            key = {"sweep_id": sweep.id, "metric": score.metric, "case_number": execution.case_number}
            key["repeat"] = execution.repeat
            value = {"value": score.value, "error": score.error, "observed": score.observed, "version": score.version}
            rows += [{**key, "combination": number, **value} for number in execution.combinations]
        data = {score.metric: score.value if score.error is None else score.error for score in found}
        event_rows.append(event_row(of_execution(execution), "score.recorded", data))
    columns = ("sweep_id", "metric", "case_number", "repeat", "combination")
    same = sa.and_(*(scores.c[name] == sa.bindparam(f"{name}_") for name in columns))
    with database.write() as connection:
        keep_events(connection, executions, ids)
        if rows:
            connection.execute(
                scores.delete().where(same), [{f"{name}_": row[name] for name in columns} for row in rows]
            )
        insert_rows(connection, scores, rows)
        known = connection.scalar(sa.select(sa.func.count()).where(metrics.c.sweep_id == sweep.id)) or 0
        keys = [{"sweep_id": sweep.id, "name": name} for name in names]
        measures = [{**key, **measure} for key, measure in zip(keys, names.values(), strict=True)]
        numbered = [{**row, "number": known + place} for place, row in enumerate(measures)]
        insert_missing(connection, metrics, numbered)
        update_rows(connection, metrics, measures, ("sweep_id", "name"))  # its direction may have been declared since
        insert_events(connection, event_rows)
    return len(rows)
