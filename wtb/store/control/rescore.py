"""Finished executions to score again, their new scores, and scorings that are requested of workers.

A scoring is a row that a worker claims under a lease with a fencing token, as it claims executions. If its worker dies,
another one claims it: writing the same scores twice changes nothing, and judgements are cached by content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from wtb.core.errors import NotFound
from wtb.core.ids import short_id
from wtb.core.stop import Stopped
from wtb.core.tree.stored_code import EVALUATORS, RecordedCode
from wtb.core.tree.stored_spec import StoredSpec, recorded_evaluators, stored_evaluators
from wtb.core.values import Json
from wtb.store.bulk import fetch_record, insert_missing, insert_rows, update_rows
from wtb.store.database import Database
from wtb.store.log import event_row, insert_events, keep_events, of_execution
from wtb.store.tables.column_types import is_over
from wtb.store.tables.control import ScoringRow
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import cells, executions, is_visible, metrics, now, scores, scorings, sweeps
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.scoring.measure import Score

CHUNK = 500
MOST_CLAIMS = 8  # of a scoring: it may be what kills its workers

Also = Callable[[sa.Connection, int], None]


def scored_executions(database: Database, sweep_id: str) -> Iterator[list[ExecutionRow]]:
    """Yield executions that hold succeeded cells, with the combinations that they hold, in chunks."""
    place = (cells.c.case_number, cells.c.repeat, cells.c.execution_id)
    after: tuple[int, int, str] = (-1, -1, "")
    while True:
        query = (
            sa.select(*place)
            # The cases by themselves too: SQLite uses only the first of a tuple to look in an index.
            .where(cells.c.sweep_id == sweep_id, cells.c.case_number >= after[0], sa.tuple_(*place) > after)
            .where(cells.c.status == "succeeded")
            .distinct()
            .order_by(*place)
            .limit(CHUNK)
        )
        places = database.tuples(query)
        if not places:
            return
        ids = [id for _, _, id in places]
        yield database.records(ExecutionRow, sa.select(executions).where(executions.c.id.in_(ids)))
        after = places[-1]


_OF_SCORE = ("value", "error", "observed", "version", "reason")


def write_scores(
    database: Database,
    sweep: SweepRow,
    scores_by_execution: Iterable[tuple[ExecutionRow, Sequence[Score]]],
    also: Also | None = None,
) -> int:
    """Replace the scores of these metrics for the cells of each execution.

    Args:
        database: The database.
        sweep: The sweep.
        scores_by_execution: The new scores.
        also: Called first within the transaction with the number of scores. If it raises, nothing is written.

    Returns:
        The number of scores that were written.
    """
    rows, event_rows, names, ids = [], [], {}, []
    for execution, new_scores in scores_by_execution:
        ids.append(execution.id)
        for score in new_scores:
            names[score.metric] = score.measure.row()
            key = {"sweep_id": sweep.id, "metric": score.metric, "case_number": execution.case_number}
            key["repeat"] = execution.repeat
            score_columns = {name: getattr(score, name) for name in _OF_SCORE}
            rows += [{**key, "combination": number, **score_columns} for number in execution.combinations]
        details = {score.metric: score.value if score.error is None else score.error for score in new_scores}
        event_rows.append(event_row(of_execution(execution), "score.recorded", details))
    columns = ("sweep_id", "metric", "case_number", "repeat", "combination")
    same = sa.and_(*(scores.c[name] == sa.bindparam(f"{name}_") for name in columns))
    with database.write() as connection:
        if also is not None:
            also(connection, len(rows))
        keep_events(connection, executions, ids)
        if rows:
            connection.execute(
                scores.delete().where(same), [{f"{name}_": row[name] for name in columns} for row in rows]
            )
        insert_rows(connection, scores, rows)
        metric_count = connection.scalar(sa.select(sa.func.count()).where(metrics.c.sweep_id == sweep.id)) or 0
        keys = [{"sweep_id": sweep.id, "name": name} for name in names]
        measures = [{**key, **measure} for key, measure in zip(keys, names.values(), strict=True)]
        numbered = [{**row, "number": metric_count + place} for place, row in enumerate(measures)]
        # Numbers of metrics follow those that are there; a metric that the sweep has keeps its number.
        insert_missing(connection, metrics, numbered)
        update_rows(connection, metrics, measures, ("sweep_id", "name"))  # its direction may have been declared since
        insert_events(connection, event_rows)
    return len(rows)


def record_evaluators(
    database: Database, sweep_id: str, evaluators: Sequence[Mapping[str, Json]], code: RecordedCode
) -> None:
    """Record that evaluators gave all scores of their names that a sweep has, if they are among its own.

    From now on its new cells are scored by them, with the options that they have here.

    Args:
        database: Where.
        sweep_id: The sweep.
        evaluators: As in a sweep file, in the order of their fingerprints.
        code: The code of these evaluators.
    """
    this = sweeps.c.id == sweep_id
    with database.write() as connection:
        row = connection.execute(sa.select(sweeps.c.spec, sweeps.c.status).where(this).with_for_update()).first()
        recorded = None if row is None else recorded_evaluators(row.spec)
        if row is None or recorded is None or row.status in ("pending", "running"):  # of which more cells end just now
            return
        spec: StoredSpec = row.spec.copy()
        names, written = list(recorded.fingerprints[EVALUATORS]), list(spec["evaluate"])
        for evaluator, name in zip(evaluators, code.fingerprints[EVALUATORS], strict=True):
            if evaluator in written and len(written) == len(names):
                name_of_sweep = names[written.index(dict(evaluator))]
            elif name in names and len(written) == len(names):
                name_of_sweep = name
                written[names.index(name)] = dict(evaluator)
            else:
                continue
            recorded = recorded.replaced(EVALUATORS, name_of_sweep, code, name)
        spec["evaluate"], spec["evaluators"] = written, stored_evaluators(recorded)
        connection.execute(sweeps.update().where(this).values(spec=spec))


def queue_of(database: Database, sweep_id: str) -> str:
    """Return a queue whose workers have the code of a sweep."""
    some = sa.select(executions.c.queue).where(executions.c.sweep_id == sweep_id).order_by(executions.c.id).limit(1)
    return database.scalar(some) or ""


def ask_to_score(
    database: Database, sweep_id: str, evaluators: Sequence[dict[str, Json]], *, queue: str, by: str
) -> str:
    """Ask workers to score a sweep again.

    Args:
        database: Where.
        sweep_id: The sweep.
        evaluators: As in a sweep file.
        queue: The queue whose workers may do it: see `queue_of`.
        by: The person who requests it.

    Returns:
        The id of the scoring.
    """
    id = short_id()
    row = {"id": id, "sweep_id": sweep_id, "evaluators": list(evaluators), "queue": queue, "by": by}
    database.execute(scorings.insert().values(row))
    return id


def find_scoring(database: Database, sweep_id: str, id: str) -> ScoringRow:
    """Return a scoring of a sweep. Raises NotFound."""
    query = sa.select(scorings).where(scorings.c.sweep_id == sweep_id, scorings.c.id == id)
    scoring = database.record(ScoringRow, query)
    if scoring is None:
        raise NotFound(f"there is no scoring {id!r} of sweep {sweep_id}; `wtb score` asks for one")
    return scoring


def any_unpublished() -> sa.Exists:
    """Return the condition that a scoring is claimable and not published."""
    return sa.select(sa.literal(1)).where(_is_claimable(), scorings.c.published_at.is_(None)).exists()


def publish_scorings(connection: sa.Connection, again_s: float | None = None) -> list[tuple[str, str, str]]:
    """Mark claimable scorings as published, within a transaction.

    Args:
        connection: In a transaction that writes.
        again_s: Publish scorings again that should have been claimed within this number of seconds.

    Returns:
        (id, queue, sweep) of each, in the order of their requests.
    """
    due = scorings.c.published_at.is_(None) if again_s is None else scorings.c.published_at < now() - again_s
    ids = sa.select(scorings.c.id).where(_is_claimable(), due).order_by(scorings.c.asked_at, scorings.c.id).limit(CHUNK)
    published = scorings.update().where(scorings.c.id.in_(ids)).values(published_at=now())
    rows = connection.execute(published.returning(scorings.c.id, scorings.c.queue, scorings.c.sweep_id))
    return [(id, queue, sweep_id) for id, queue, sweep_id in rows]


def withdraw_scoring(database: Database, id: str) -> None:
    """Mark a pending scoring as unpublished, so that its task is sent again once it can be claimed."""
    database.execute(
        scorings.update().where(scorings.c.id == id, scorings.c.status == "pending").values(published_at=None)
    )


def scoring_of_task(database: Database, id: str) -> ScoringRow | None:
    """Return the scoring of a task; None if it has ended, or another worker has claimed it."""
    return database.record(ScoringRow, sa.select(scorings).where(scorings.c.id == id, _is_claimable()))


def claim_scoring(database: Database, row: ScoringRow, runner_id: str, lease_s: float) -> ScoringRow | None:
    """Claim a scoring for a runner.

    A scoring that was claimed too often without an end fails.

    Args:
        database: The database.
        row: The scoring.
        runner_id: The runner.
        lease_s: Seconds until others may claim it, unless the lease is renewed.

    Returns:
        Its row with its new token; None if another runner has it, or another one of its sweep, or it has ended.
    """
    # Those of one sweep take turns: two that write the same scores at a time would be in each other's way.
    turn = sa.select(sweeps.c.id).where(sweeps.c.id == row.sweep_id).with_for_update(key_share=True, skip_locked=True)
    this = sa.select(scorings.c.token).where(scorings.c.id == row.id, _is_claimable())
    with database.write() as connection:
        if connection.scalar(turn) is None:
            return None
        token = connection.scalar(this.with_for_update(skip_locked=True, of=scorings))
        if token is None:
            return None
        changed = scorings.update().where(scorings.c.id == row.id)
        if token >= MOST_CLAIMS:
            reason = f"workers began it {token} times, and none came to its end"
            connection.execute(changed.values(_NOBODYS | {"status": "failed", "reason": reason, "ended_at": now()}))
            return None
        # The scores of a lost claim are written again, so they are counted from 0.
        mine = {"status": "running", "owner_id": runner_id, "lease_until": now() + lease_s, "token": token + 1}
        return fetch_record(connection, ScoringRow, changed.values(mine | {"scores": 0}).returning(scorings))


def renew_scoring(database: Database, claim: ScoringRow, lease_s: float) -> bool:
    """Renew the lease of a claim. Returns False if it is lost: cancelled, deleted with its sweep, or another's."""
    return database.execute(_of_claim(claim).values(lease_until=now() + lease_s)) > 0


def count_scores(connection: sa.Connection, claim: ScoringRow, written: int) -> None:
    """Count scores that are written under a claim, within their transaction. Raises Stopped if it is lost."""
    if not connection.execute(_of_claim(claim).values(scores=scorings.c.scores + written)).rowcount:
        raise Stopped("it is another's now, or was cancelled")


def release_scoring(database: Database, claim: ScoringRow) -> None:
    """Release a scoring for other workers; does nothing if the claim is lost."""
    database.execute(_of_claim(claim).values(_NOBODYS | {"status": "pending", "published_at": None}))


def end_scoring(
    database: Database, claim: ScoringRow, status: str, *, unjudged: int = 0, reason: str | None = None
) -> None:
    """End a scoring; does nothing if the claim is lost."""
    ended = {"status": status, "unjudged": unjudged, "reason": reason, "ended_at": now()}
    database.execute(_of_claim(claim).values(_NOBODYS | ended))


def cancel_scorings(connection: sa.Connection, sweep_id: str, reason: str, id: str | None = None) -> int:
    """Cancel the scorings of a sweep, even those in progress: all, or one. Returns how many."""
    ended = {"status": "cancelled", "reason": reason, "ended_at": now()}
    these = scorings.update().where(scorings.c.sweep_id == sweep_id, scorings.c.status.in_(("pending", "running")))
    if id is not None:
        these = these.where(scorings.c.id == id)
    return connection.execute(these.values(_NOBODYS | ended)).rowcount


_NOBODYS: dict[str, None] = {"owner_id": None, "lease_until": None}


def _of_sweeps() -> sa.ColumnElement[bool]:
    return sa.select(sa.literal(1)).where(sweeps.c.id == scorings.c.sweep_id, is_visible).exists()


def _is_claimable() -> sa.ColumnElement[bool]:
    is_lost = sa.and_(scorings.c.status == "running", is_over(scorings.c.lease_until))
    running = scorings.alias("others")
    another = sa.select(sa.literal(1)).where(
        running.c.sweep_id == scorings.c.sweep_id,
        running.c.status == "running",
        sa.not_(is_over(running.c.lease_until)),
    )
    return sa.and_(sa.or_(scorings.c.status == "pending", is_lost), sa.not_(another.exists()), _of_sweeps())


def _of_claim(claim: ScoringRow) -> sa.Update:
    mine = (scorings.c.id == claim.id, scorings.c.token == claim.token, scorings.c.status == "running")
    return scorings.update().where(*mine, _of_sweeps())
