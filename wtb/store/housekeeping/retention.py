"""The conditions that keep a sweep from removal, and looks, which outlive it, because seen results count."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa

from wtb.core.errors import ConflictError
from wtb.core.frozen import frozen
from wtb.core.ids import DEFAULT_PROJECT, new_id
from wtb.core.status import ENDED_SWEEPS, OPEN_EXECUTIONS
from wtb.core.tree.looks import CaseSketch, baseline_key, case_digest, combination_keys, without_case
from wtb.store.bulk import fetch_record
from wtb.store.database import Database
from wtb.store.log import add_event, of_sweep
from wtb.store.read.queries import select_sweeps
from wtb.store.tables.schema import (
    baselines,
    cases,
    checkpoints,
    executions,
    is_kept,
    looks,
    metrics,
    now,
    pooled,
    scores,
    sweeps,
)
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.tree.stored_spec import StoredSpec


def expired_sweeps(
    connection: sa.Connection, before: float, keep: int, *conditions: sa.ColumnElement[bool]
) -> list[str]:
    """Return the sweeps to delete: ended before a time, and not among the newest `keep` ended ones of their name.

    Pinned sweeps and baselines stay, sweeps with a pinned checkpoint, and sweeps in which something still runs. Only
    sweeps that meet `conditions` are considered.
    """
    at = sa.func.coalesce(sweeps.c.finished_at, sweeps.c.created_at)
    # Ranked before the filter, so that pinned sweeps and baselines count among the newest ones.
    place = sa.func.row_number().over(
        partition_by=(sweeps.c.session_id, sweeps.c.name), order_by=(at.desc(), sweeps.c.id.desc())
    )
    ranked = (
        sa.select(sweeps.c.id, at.label("at"), place.label("place"))
        .where(sweeps.c.status.in_(ENDED_SWEEPS), *conditions)
        .subquery()
    )
    query = (
        sa.select(ranked.c.id)
        .join(sweeps, sweeps.c.id == ranked.c.id)
        .where(ranked.c.at < before, ranked.c.place > keep, *removable())
        .order_by(ranked.c.at, ranked.c.id)
    )
    return list(connection.scalars(query))


def settled_sweeps(connection: sa.Connection, before: float) -> list[str]:
    """Return the sweeps that may have superseded checkpoints: older than a time, not kept, and not running."""
    query = sa.select(sweeps.c.id).where(*settled_conditions(), sweeps.c.created_at < before)
    return list(connection.scalars(query.order_by(sweeps.c.id)))


def removable() -> list[sa.ColumnElement[bool]]:
    """Return the conditions for a sweep that is deleted."""
    pinned = sa.exists().where(checkpoints.c.sweep_id == sweeps.c.id, checkpoints.c.pinned)
    # A completed sweep that has open executions is about to be retried; a failed one may never be resumed.
    open_ = sa.exists().where(
        executions.c.sweep_id == sweeps.c.id,
        sa.or_(
            executions.c.status == "running",
            sa.and_(sweeps.c.status == "completed", executions.c.status.in_(OPEN_EXECUTIONS)),
        ),
    )
    return [sweeps.c.status.in_(ENDED_SWEEPS), *_not_kept(), ~pinned, ~open_]


def settled_conditions() -> list[sa.ColumnElement[bool]]:
    """Return the conditions for a sweep that loses its superseded checkpoints."""
    return [sweeps.c.status.in_(("paused", *ENDED_SWEEPS)), *_not_kept()]


def _not_kept() -> tuple[sa.ColumnElement[bool], ...]:
    columns = baselines.c.sweep_id, baselines.c.reference_id, pooled.c.sweep_id
    return ~sweeps.c.pinned, *(~sa.exists().where(column == sweeps.c.id) for column in columns)


def check_in_no_pool(connection: sa.Connection, sweep_id: str) -> None:
    """Raise ConflictError if a sweep that is to be deleted is a source of a pool."""
    query = sa.select(sweeps.c.id, sweeps.c.name).join(pooled, pooled.c.pool_id == sweeps.c.id)
    pool = connection.execute(query.where(pooled.c.sweep_id == sweep_id).order_by(sweeps.c.id).limit(1)).first()
    if pool is not None:
        raise ConflictError(
            f"sweep {sweep_id} is part of the pool {pool.name!r} ({pool.id}), which shows its cells: delete the pool "
            f"first, with `wtb delete {pool.id}`"
        )


def locked_sweep(connection: sa.Connection, sweep_id: str, *conditions: sa.ColumnElement[bool]) -> SweepRow | None:
    """Return the row of a sweep, locked until this transaction ends; None if it does not exist or meet the conditions.

    Inserted rows that refer to a sweep share a lock on it, so new executions and checkpoints wait.
    """
    # Conditions are checked once the lock is held, because subqueries of a locking statement read from before its wait.
    connection.scalar(sa.select(sweeps.c.id).where(sweeps.c.id == sweep_id).with_for_update())
    return fetch_record(connection, SweepRow, select_sweeps().where(sweeps.c.id == sweep_id, *conditions))


def lock_present(connection: sa.Connection, sweep_id: str) -> SweepRow:
    """Return the row of a sweep as `locked_sweep` does. Raises ConflictError if it is being deleted, or was."""
    row = locked_sweep(connection, sweep_id)
    if row is None:
        raise ConflictError(f"sweep {sweep_id} is being deleted, or was")
    return row


def pin_sweep(database: Database, sweep_id: str, pinned: bool) -> None:
    """Pin a sweep with all its rows, or unpin it. Raises ConflictError if it is being deleted."""
    with database.write() as connection:
        row = lock_present(connection, sweep_id)
        if row.pinned != pinned:
            connection.execute(sweeps.update().where(sweeps.c.id == sweep_id).values(pinned=pinned))
            add_event(connection, of_sweep(row), "sweep.pinned" if pinned else "sweep.unpinned", {})


def pin_checkpoint(
    database: Database, checkpoint_id: str, sweep_id: str, pinned: bool, name: str | None = None
) -> None:
    """Pin a checkpoint with the line that leads to it, or unpin it. Raises ConflictError if it was removed."""
    with database.write() as connection:
        row = locked_sweep(connection, sweep_id)
        query = checkpoints.update().where(checkpoints.c.id == checkpoint_id).values(pinned=pinned)
        if name is not None:
            query = query.values(name=name)
        if row is None or not connection.execute(query).rowcount:
            raise ConflictError(f"checkpoint {checkpoint_id} was removed meanwhile")
        kind = "checkpoint.pinned" if pinned else "checkpoint.unpinned"
        add_event(connection, of_sweep(row), kind, {"checkpoint": checkpoint_id, **({"name": name} if name else {})})


MAX_LOOKS = 1_000  # earlier looks that count, the newest

Claim = tuple[str, str, str]  # metric, direction of the difference from the baseline or "best", key of the combination


@frozen
class LookRow:
    """A sweep as a look that later sweeps count.

    Attributes:
        sweep_id: The sweep, which may be deleted.
        final: Whether its cases had been kept for the end.
        cases: How many different cases it has.
        sketch: The smallest of their digests.
        baseline: The key of the code that its combinations are compared with.
        combinations: The keys of their changes.
        metrics: The metrics that it scored; None while its scores exist.
        claims: The differences that it showed.
        extended_id: The sweep that this look was before its extension; None if it was not extended.
    """

    sweep_id: str
    project: str
    session_id: str
    workflow: str
    at: float
    final: bool
    cases: int
    sketch: bytes
    baseline: str
    combinations: Sequence[str]
    metrics: Sequence[str] | None
    claims: Sequence[Sequence[str]]
    extended_id: str | None


def insert_look(
    connection: sa.Connection,
    owner: Mapping[str, str],
    spec: StoredSpec,
    keys: tuple[str, list[str]],
    sketch: CaseSketch,
) -> None:
    """Record a sweep that becomes visible as a look.

    Args:
        connection: In the transaction that makes the sweep visible.
        owner: Its `sweep_id`, `project`, `session_id` and `workflow`.
        spec: The sweep as it is stored.
        keys: As `look_keys` returns them.
        sketch: Its cases.
    """
    count, digests = sketch.finish()
    baseline, combinations = keys
    row = {**owner, "final": bool(spec.get("final")), "cases": count, "sketch": digests}
    connection.execute(looks.insert().values(**row, baseline=baseline, combinations=combinations))


def look_keys(
    choices: Sequence[Mapping[str, str]], spec: StoredSpec, code: Mapping[str, Mapping[str, str]]
) -> tuple[str, list[str]]:
    """Return the key of a sweep's baseline, and the keys of the changes of its combinations."""
    baseline = spec.get("baseline_row")
    keys = combination_keys(choices, baseline, code)
    return baseline_key(baseline, code), list(dict.fromkeys(key for key in keys if key))


def has_scores(connection: sa.Connection, sweep_id: str) -> bool:
    """Return whether a sweep has any scores."""
    query = sa.select(scores.c.sweep_id).where(scores.c.sweep_id == sweep_id, scores.c.value.is_not(None))
    return connection.execute(query.limit(1)).first() is not None


def extend_look(connection: sa.Connection, sweep_id: str, keys: tuple[str, list[str]], *, seen: bool) -> None:
    """Record that a sweep has more combinations or cases from now on.

    Args:
        connection: In the transaction that adds them, after the rows of the cases.
        sweep_id: The sweep.
        keys: As `look_keys` returns them.
        seen: Whether the sweep has any scores. These count as an earlier look from now on.
    """
    this = looks.c.sweep_id == sweep_id
    past = connection.execute(sa.select(looks).where(this)).mappings().first()
    if past is None:
        return
    # The scores of a copy's original are a look already.
    twin = sa.select(looks.c.sweep_id).where(looks.c.at == past["at"], looks.c.sketch == past["sketch"], ~this)
    if seen and connection.execute(twin.limit(1)).first() is None:
        row = {**past, "sweep_id": new_id(), "metrics": _scored_names(connection, sweep_id), "extended_id": sweep_id}
        connection.execute(looks.insert().values(row))
    sketch = CaseSketch()
    content = sa.select(cases.c.input, cases.c.expected, cases.c.workspace).where(cases.c.sweep_id == sweep_id, is_kept)
    for case in connection.execute(content):
        sketch.add(case_digest(*case))
    count, digests = sketch.finish()
    changed = {"cases": count, "sketch": digests, "baseline": keys[0], "combinations": keys[1]}
    connection.execute(looks.update().where(this).values(**changed, **({"at": now(), "claims": []} if seen else {})))


def _has_value() -> sa.ColumnElement[bool]:
    """Return the condition that a metric of `metrics` has a score."""
    which = [scores.c.sweep_id == metrics.c.sweep_id, scores.c.metric == metrics.c.name, scores.c.value.is_not(None)]
    return sa.exists().where(*which)


def _scored_names(connection: sa.Connection, sweep_id: str) -> list[str]:
    names = sa.select(metrics.c.name).where(metrics.c.sweep_id == sweep_id, _has_value()).order_by(metrics.c.number)
    return list(connection.scalars(names))


def find_look(database: Database, sweep_id: str) -> LookRow | None:
    """Return the look of a sweep; None if it has none, as single executions."""
    return database.record(LookRow, sa.select(looks).where(looks.c.sweep_id == sweep_id))


def earlier_looks(database: Database, look: LookRow, before: float) -> list[LookRow]:
    """Return the looks of the same workflow and project before a time, the newest first.

    In the default project, only looks of the same session count.
    """
    owner = [looks.c.project == look.project]
    if look.project == DEFAULT_PROJECT:
        owner.append(looks.c.session_id == look.session_id)
    query = (
        sa.select(looks)
        .where(looks.c.workflow == look.workflow, *owner, looks.c.at < before, looks.c.sweep_id != look.sweep_id)
        .order_by(looks.c.at.desc(), looks.c.sweep_id.desc())
        .limit(MAX_LOOKS)
    )
    # A sweep and its copy are one look.
    by_content = {(row.at, row.sketch): row for row in database.records(LookRow, query)}
    by_content.pop((look.at, look.sketch), None)
    return list(by_content.values())


def scored_sweeps(database: Database, sweep_ids: Collection[str], metric: str | None) -> set[str]:
    """Return the sweeps among these that exist and have a score by a metric, or by any metric if it is None."""
    query = sa.select(metrics.c.sweep_id).where(metrics.c.sweep_id.in_(list(sweep_ids)), _has_value())
    if metric is not None:
        query = query.where(metrics.c.name == metric)
    return set(database.scalars(query.distinct()))


def note_claims(database: Database, look: LookRow, claims: Iterable[Claim]) -> None:
    """Add differences that a sweep has shown to its look."""
    # Claims are only ever added: a reader has seen them, even if more scores made them disappear.
    before = {tuple(claim) for claim in look.claims}
    if added := set(claims) - before:
        both = [list(claim) for claim in sorted(before | added)]
        with database.write(is_note=True) as connection:
            connection.execute(looks.update().where(looks.c.sweep_id == look.sweep_id).values(claims=both))


def note_scored(connection: sa.Connection, which: sa.ColumnElement[bool]) -> None:
    """Record the metrics of looks (the condition `which`) whose scores are about to be deleted."""
    ids = sa.select(looks.c.sweep_id).where(which, looks.c.metrics.is_(None))
    for sweep_id in list(connection.scalars(ids)):
        scored = _scored_names(connection, sweep_id)
        connection.execute(looks.update().where(looks.c.sweep_id == sweep_id).values(metrics=scored))


def forget_case(connection: sa.Connection, project: str, sweep_id: str, number: int) -> None:
    """Remove the digest of a case that is being erased from all looks of its project."""
    content = sa.select(cases.c.input, cases.c.expected, cases.c.workspace)
    row = connection.execute(content.where(cases.c.sweep_id == sweep_id, cases.c.number == number, is_kept)).first()
    if row is None:
        return
    digest = case_digest(*row)
    # Other sweeps of the project may have had the same case, whose digest identifies it.
    rows = connection.execute(sa.select(looks.c.sweep_id, looks.c.sketch).where(looks.c.project == project))
    for look, sketch in rows.all():
        if (new_sketch := without_case(sketch, digest)) != sketch:
            connection.execute(looks.update().where(looks.c.sweep_id == look).values(sketch=new_sketch))
