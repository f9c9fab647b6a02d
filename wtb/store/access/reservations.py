"""Reservations of budgets before attempts begin, and their settlement at the end.

Before an attempt starts, its runner reserves in one transaction of all budgets that apply; the flush that records the
attempt settles them. A reservation that is `alone` is of an attempt of unknown cost: no other attempt begins beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypedDict

import sqlalchemy as sa

from wtb.core.frozen import frozen
from wtb.core.scoring.scores import JUDGING
from wtb.store.access.budgets import COLUMNS, THRESHOLDS, Key, key_of, locked, of_key, of_keys, slack, spent_before
from wtb.store.bulk import insert_missing
from wtb.store.database import Database
from wtb.store.log import event_row, insert_events, subject
from wtb.store.runs.slots import LEASE_S
from wtb.store.tables.control import BudgetRow
from wtb.store.tables.schema import budgets, executions, now, reservations, runners, sessions, sweeps
from wtb.store.tables.sweeps import NewEvent, Subject

Cost = Callable[[sa.Connection], Mapping[str, float]]


@frozen
class Claim:
    """The amounts that an attempt requests of budgets.

    Attributes:
        id: The id of the reservation.
        session_id: The session of the attempt.
        sweep_id: Its sweep.
        execution_id: Its execution.
        runner_id: Its runner.
        keys: The budgets.
        amounts: The amounts by kind; None if an amount has yet to be estimated, 0 if no reservation is needed.
    """

    id: str
    session_id: str
    sweep_id: str
    execution_id: str
    runner_id: str
    keys: Sequence[Key]
    amounts: Mapping[str, float | None]


@frozen
class Granted:
    """A reservation that was made.

    Attributes:
        amounts: The reserved amounts by kind; None for all that is left, alone.
        remaining: The amounts by kind that the tightest budget leaves beyond all reservations.
    """

    amounts: Mapping[str, float | None]
    remaining: Mapping[str, float]


@frozen
class Reached:
    """A budget that leaves too little, whatever running attempts spend. `requested` is None if the cost is unknown."""

    key: Key
    limit: float
    spent: float
    requested: float | None


def reserve(database: Database, claim: Claim, cost: Cost = lambda _: {}) -> Granted | Reached | None:
    """Reserve of all budgets or of none.

    Args:
        database: The database.
        claim: The request of an attempt.
        cost: Returns estimates by kind. It is called while the budgets are locked, when all settled amounts are known.
            An attempt whose cost is unknown keeps others from starting; `release` takes that back.

    Returns:
        The reservation, or the budget that leaves too little whatever running attempts spend. None if nothing can be
        reserved now, but running attempts may leave enough, so that the attempt has to request again.
    """
    with database.write() as connection:
        # Exact across workers: all who reserve or settle lock the rows of their budgets first, in one order, so no two
        # of them count on the same money, and none waits in a circle.
        rows = locked(connection, claim.keys)
        amounts_held = _sum_reservations(connection, rows, claim.id)
        amounts = dict(claim.amounts)
        if any(amounts[row.kind] is None for row in rows):
            costs = cost(connection)
            amounts = {kind: costs.get(kind) if amount is None else amount for kind, amount in amounts.items()}
        for row in rows:
            requested, rounding = amounts[row.kind], slack(row.most)
            room = row.most - row.spent
            if room <= rounding if requested is None else 0 < requested > room + rounding:
                return Reached(key_of(row), row.most, row.spent, requested)
        # An amount of 0 passes even if another attempt has a budget alone.
        costly = [row for row in rows if amounts[row.kind] != 0]
        if any(amounts_held[key_of(row)].alone for row in costly):
            return None
        blind = [row for row in costly if amounts[row.kind] is None]
        # Others are under way, whose cost is not known yet. The row that is
        # left keeps new ones out until they have ended.
        if any(amounts_held[key_of(row)].rows for row in blind):
            _insert(connection, claim, amounts, blind)
            return None
        for row in costly:
            amount = amounts[row.kind]
            used = row.spent + amounts_held[key_of(row)].amount
            if amount is not None and used + amount > row.most + slack(row.most):
                return None
        # The attempt may have waited with such a row, under the same id.
        connection.execute(reservations.delete().where(reservations.c.id == claim.id))
        _insert(connection, claim, amounts, costly)
        remaining: dict[str, float] = {}
        for row in rows:
            room = row.most - row.spent - amounts_held[key_of(row)].amount - (amounts[row.kind] or 0.0)
            remaining[row.kind] = max(0.0, min(room, remaining.get(row.kind, room)))
        return Granted(amounts, remaining)


class _Reserved(NamedTuple):
    """The sum of what others have reserved of a budget, and the number of rows; rows that are alone reserve all the
    rest.
    """

    amount: float = 0.0
    rows: int = 0
    alone: int = 0


def _sum_reservations(connection: sa.Connection, rows: Sequence[BudgetRow], but: str) -> Mapping[Key, _Reserved]:
    """Sum up the reservations of others."""
    columns = [reservations.c[name] for name in COLUMNS]
    query = (
        sa.select(*columns, sa.func.sum(reservations.c.amount).label("amount"), sa.func.count().label("rows"))
        .add_columns(sa.func.sum(sa.case((reservations.c.alone, 1), else_=0)).label("alone"))
        .where(of_keys(reservations, map(key_of, rows)), reservations.c.id != but)
        .group_by(*columns)
    )
    sums = defaultdict[Key, _Reserved](_Reserved)
    for scope, of, node, kind, *reserved in connection.execute(query):
        sums[scope, of, node, kind] = _Reserved(*reserved)
    return sums


def _insert(
    connection: sa.Connection, claim: Claim, amounts: Mapping[str, float | None], rows: Iterable[BudgetRow]
) -> None:
    """Insert reservations of budgets; one that is alone has all that is left, whatever that is."""
    requests = [(row, amounts[row.kind]) for row in rows]
    new_rows = [
        {name: getattr(row, name) for name in COLUMNS}
        | {"id": claim.id, "amount": amount or 0.0, "alone": amount is None}
        | {"execution_id": claim.execution_id, "runner_id": claim.runner_id}
        for row, amount in requests
    ]
    insert_missing(connection, reservations, new_rows)


def release(database: Database, id: str) -> None:
    """Release the amounts that were reserved for an attempt and not spent."""
    with database.write() as connection:
        forget(connection, [id])


def forget(connection: sa.Connection, ids: Iterable[str]) -> None:
    """Remove the reservations of attempts that were lost, whose rows are not written."""
    connection.execute(reservations.delete().where(reservations.c.id.in_(list(ids))))


class Settlement(TypedDict):
    """The amount that an attempt has spent of a budget.

    Attributes:
        id: The id of its reservation.
        session_id: The session of the attempt.
        sweep_id: Its sweep.
        scope: The scope of the budget.
        key: The id of its owner.
        node: The node, or "".
        kind: The kind of the budget.
        spent: The amount since the last settlement; None to count the budget anew, because it was created while the
            attempt was running.
        left: The amount that stays reserved; None if the attempt has ended.
    """

    id: str
    session_id: str
    sweep_id: str
    scope: str
    key: str
    node: str
    kind: str
    spent: float | None
    left: float | None


def settle(connection: sa.Connection, rows: Iterable[Settlement]) -> None:
    """Count the amounts that attempts have spent, in the transaction that records them, so that ledger and records
    agree.

    Args:
        connection: In the transaction of a flush.
        rows: The spent amounts, by budget.
    """
    spent: defaultdict[Key, float] = defaultdict(float)
    first: dict[Key, Subject] = {}
    ended: defaultdict[str, list[str]] = defaultdict(list)
    remaining_amounts: dict[tuple[str, str], float] = {}
    anew: set[Key] = set()
    # Summed by budget first: each is locked and written once in a flush, however many attempts settle.
    for row in rows:
        key: Key = (row["scope"], row["key"], row["node"], row["kind"])
        spent[key] += row["spent"] or 0.0
        if row["spent"] is None:
            anew.add(key)
        first.setdefault(key, subject(row["session_id"], row["sweep_id"]))
        if row["left"] is None:
            ended[row["kind"]].append(row["id"])
        else:
            remaining_amounts[row["id"], row["kind"]] = row["left"]
    event_rows = []
    for budget in locked(connection, spent):  # removed budgets are skipped
        key = key_of(budget)
        total = budget.spent + spent[key]
        if key in anew:
            total = max(total, spent_before(connection, key))
        reached = max((share for share in THRESHOLDS if total >= share * budget.most), default=0.0)
        if reached > budget.warned:
            details = {"most": budget.most, "spent": total, "share": reached}
            event_rows.append(_event(connection, first[key], "budget.threshold", key, details))
        changes = {"spent": total, "warned": max(reached, budget.warned)}
        connection.execute(budgets.update().where(of_key(budgets, key)).values(changes))
    insert_events(connection, event_rows)
    for (id, kind), remaining in remaining_amounts.items():
        query = reservations.update().where(reservations.c.id == id, reservations.c.kind == kind)
        connection.execute(query.values(amount=remaining))
    for kind, ids in ended.items():
        connection.execute(reservations.delete().where(reservations.c.id.in_(ids), reservations.c.kind == kind))


def forget_reservations_of_lost(connection: sa.Connection, runner_ids: Sequence[str] = ()) -> None:
    """Release reservations of runners that have ended or whose heartbeat is too old, and for executions that they lost.

    Amounts that such attempts reported were counted when they were recorded.

    Args:
        connection: In a transaction that writes.
        runner_ids: Runners that are known to be dead although their heartbeat is recent.
    """
    dead_runners = sa.select(runners.c.id).where(
        sa.or_(
            runners.c.ended_at.is_not(None), runners.c.seen_at < now() - 2 * LEASE_S, runners.c.id.in_(list(runner_ids))
        )
    )
    lost = sa.exists().where(
        reservations.c.node != JUDGING,  # the judging process releases it, even if the execution has ended
        executions.c.id == reservations.c.execution_id,
        sa.or_(executions.c.status != "running", executions.c.owner_id != reservations.c.runner_id),
    )
    # Skip rows that a flush settles at this moment, so that nobody waits here.
    key = list(reservations.primary_key)
    which = sa.or_(reservations.c.runner_id.in_(dead_runners), lost)
    lost_rows = connection.execute(sa.select(*key).where(which).with_for_update(skip_locked=True)).all()
    if lost_rows:
        connection.execute(reservations.delete().where(sa.tuple_(*key).in_([tuple(row) for row in lost_rows])))


def release_lost(database: Database) -> None:
    """Release reservations as `forget_reservations_of_lost` does, without a transaction if there are none."""
    if database.scalar(sa.select(reservations.c.id).limit(1)) is not None:
        with database.write() as connection:
            forget_reservations_of_lost(connection)


def record_reached(database: Database, session_id: str, sweep_id: str, reached: Reached) -> None:
    """Record that a sweep has reached a budget, once for each size that the budget has."""
    with database.write() as connection:
        for row in locked(connection, [reached.key]):
            if row.warned < 1:
                connection.execute(budgets.update().where(of_key(budgets, reached.key)).values(warned=1.0))
                details = {"most": reached.limit, "spent": reached.spent, "wanted": reached.requested}
                about = subject(session_id, sweep_id)
                insert_events(connection, [_event(connection, about, "budget.reached", reached.key, details)])


def _event(
    connection: sa.Connection, about: Subject, kind: str, key: Key, details: Mapping[str, float | None]
) -> NewEvent:
    scope, of, node, what = key
    table = {"session": sessions, "sweep": sweeps}.get(scope)
    name = of if table is None else connection.scalar(sa.select(table.c.name).where(table.c.id == of))
    event_data = {"scope": scope, "name": name, "node": node or None, "kind": what, **details}
    return event_row(about, kind, event_data, "warning")
