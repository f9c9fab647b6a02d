"""What attempts reserve of budgets before they begin, and what they settle at their end.

Whoever is about to start an attempt reserves in one transaction of all budgets that apply; the flush that records the
attempt settles them. A reservation that is `alone` is of an attempt whose cost nobody can tell: no other begins beside
it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypedDict

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.scoring.judgement import JUDGING
from wtb.store.bulk import insert_missing
from wtb.store.database import Database
from wtb.store.events import event_row, subject
from wtb.store.limits.budgets import COLUMNS, THRESHOLDS, Key, key_of, locked, of_key, of_keys, slack, spent_before
from wtb.store.log import insert_events
from wtb.store.runs.slots import LEASE_S
from wtb.store.tables.control import BudgetRow
from wtb.store.tables.schema import budgets, executions, now, reservations, runners, sessions, sweeps
from wtb.store.tables.sweeps import NewEvent, Subject

Cost = Callable[[sa.Connection], Mapping[str, float]]


@frozen
class Claim:
    """What an attempt asks of budgets. amounts: by kind; None where that is to be found. 0 needs no reservation."""

    id: str
    session_id: str
    sweep_id: str
    execution_id: str
    runner_id: str
    keys: Sequence[Key]
    amounts: Mapping[str, float | None]


@frozen
class Granted:
    """A reservation was made. amounts: by kind, what was reserved; None: all that is left, alone.

    left: by kind, what the tightest budget leaves beyond all reservations.
    """

    amounts: Mapping[str, float | None]
    left: Mapping[str, float]


@frozen
class Reached:
    """A budget that leaves too little, whatever becomes of those under way. wanted: None where nobody can tell."""

    key: Key
    most: float
    spent: float
    wanted: float | None


def reserve(database: Database, claim: Claim, cost: Cost = lambda _: {}) -> Granted | Reached | None:
    """Reserve of all budgets or of none.

    Args:
        database: The database.
        claim: What an attempt asks for.
        cost: Amounts by kind as far as anybody can tell. It is called while the budgets are locked, when all that was
            settled is known. An attempt whose cost is unknown keeps others from starting; `release` takes that back.

    Returns:
        What was granted, or the budget that leaves too little whatever becomes of those under way. None: not now, but
        what is under way may leave enough: ask again.
    """
    with database.write() as connection:
        # Exact across workers: all who reserve or settle lock the rows of their budgets first, in one order, so no two
        # of them count on the same money, and none waits in a circle.
        rows = locked(connection, claim.keys)
        amounts_held = _held(connection, rows, claim.id)
        amounts = dict(claim.amounts)
        if any(amounts[row.kind] is None for row in rows):
            found = cost(connection)
            amounts = {kind: found.get(kind) if amount is None else amount for kind, amount in amounts.items()}
        for row in rows:
            wanted, rounding = amounts[row.kind], slack(row.most)
            room = row.most - row.spent
            if room <= rounding if wanted is None else 0 < wanted > room + rounding:
                return Reached(key_of(row), row.most, row.spent, wanted)
        costly = [row for row in rows if amounts[row.kind] != 0]
        if any(amounts_held[key_of(row)].alone for row in costly):
            return None
        blind = [row for row in costly if amounts[row.kind] is None]
        if any(amounts_held[key_of(row)].rows for row in blind):
            _insert(connection, claim, amounts, blind)
            return None
        for row in costly:
            amount = amounts[row.kind]
            taken = row.spent + amounts_held[key_of(row)].amount
            if amount is not None and taken + amount > row.most + slack(row.most):
                return None
        connection.execute(reservations.delete().where(reservations.c.id == claim.id))
        _insert(connection, claim, amounts, costly)
        left: dict[str, float] = {}
        for row in rows:
            room = row.most - row.spent - amounts_held[key_of(row)].amount - (amounts[row.kind] or 0.0)
            left[row.kind] = max(0.0, min(room, left.get(row.kind, room)))
        return Granted(amounts, left)


class _Reserved(NamedTuple):
    """What others have reserved of a budget, in how many rows; those that are alone have all that is left."""

    amount: float = 0.0
    rows: int = 0
    alone: int = 0


def _held(connection: sa.Connection, rows: Sequence[BudgetRow], but: str) -> Mapping[Key, _Reserved]:
    """Sum up what others have reserved of budgets."""
    columns = [reservations.c[name] for name in COLUMNS]
    query = (
        sa.select(*columns, sa.func.sum(reservations.c.amount).label("amount"), sa.func.count().label("rows"))
        .add_columns(sa.func.sum(sa.case((reservations.c.alone, 1), else_=0)).label("alone"))
        .where(of_keys(reservations, map(key_of, rows)), reservations.c.id != but)
        .group_by(*columns)
    )
    found = defaultdict[Key, _Reserved](_Reserved)
    for scope, of, node, kind, *reserved in connection.execute(query):
        found[scope, of, node, kind] = _Reserved(*reserved)
    return found


def _insert(
    connection: sa.Connection, claim: Claim, amounts: Mapping[str, float | None], rows: Iterable[BudgetRow]
) -> None:
    """Reservations of budgets; one that is alone has all that is left, whatever that is."""
    wanted = [(row, amounts[row.kind]) for row in rows]
    new_rows = [
        {name: getattr(row, name) for name in COLUMNS}
        | {"id": claim.id, "amount": amount or 0.0, "alone": amount is None}
        | {"execution_id": claim.execution_id, "runner_id": claim.runner_id}
        for row, amount in wanted
    ]
    insert_missing(connection, reservations, new_rows)


def release(database: Database, id: str) -> None:
    """Release what was reserved for an attempt and not spent."""
    with database.write() as connection:
        forget(connection, [id])


def forget(connection: sa.Connection, ids: Iterable[str]) -> None:
    """Remove the reservations of attempts that were lost, whose rows are not written."""
    connection.execute(reservations.delete().where(reservations.c.id.in_(list(ids))))


class Settlement(TypedDict):
    """What an attempt has spent of a budget.

    id: of its reservation. spent: since the last time; None where all of the budget is counted anew, since it was
    created while the attempt was under way. left: what is reserved from now on, None where the attempt has ended.
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
    """Count what attempts have spent, in the transaction that records it, so that the ledger and the records agree.

    Args:
        connection: In the transaction of a flush.
        rows: What they have spent, by budget.
    """
    spent: defaultdict[Key, float] = defaultdict(float)
    first: dict[Key, Subject] = {}
    ended: defaultdict[str, list[str]] = defaultdict(list)
    goes_on: dict[tuple[str, str], float] = {}
    anew: set[Key] = set()
    for row in rows:
        key: Key = (row["scope"], row["key"], row["node"], row["kind"])
        spent[key] += row["spent"] or 0.0
        if row["spent"] is None:
            anew.add(key)
        first.setdefault(key, subject(row["session_id"], row["sweep_id"]))
        if row["left"] is None:
            ended[row["kind"]].append(row["id"])
        else:
            goes_on[row["id"], row["kind"]] = row["left"]
    event_rows = []
    for budget in locked(connection, spent):  # those that were lifted meanwhile are not there
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
    for (id, kind), left in goes_on.items():
        query = reservations.update().where(reservations.c.id == id, reservations.c.kind == kind)
        connection.execute(query.values(amount=left))
    for kind, ids in ended.items():
        connection.execute(reservations.delete().where(reservations.c.id.in_(ids), reservations.c.kind == kind))


def forget_reservations_of_lost(connection: sa.Connection, runner_ids: Sequence[str] = ()) -> None:
    """Release what was reserved by runners that ended or were not seen for long, or for executions that they lost.

    What such attempts reported was counted when it was recorded.

    Args:
        connection: In a transaction that writes.
        runner_ids: Runners that are known to be dead although their heartbeat is recent.
    """
    gone = sa.select(runners.c.id).where(
        sa.or_(
            runners.c.ended_at.is_not(None), runners.c.seen_at < now() - 2 * LEASE_S, runners.c.id.in_(list(runner_ids))
        )
    )
    lost = sa.exists().where(
        reservations.c.node != JUDGING,  # who judges releases it, also where the execution has ended
        executions.c.id == reservations.c.execution_id,
        sa.or_(executions.c.status != "running", executions.c.owner_id != reservations.c.runner_id),
    )
    # Past those that somebody settles just now: nobody waits here for anybody.
    key = list(reservations.primary_key)
    which = sa.or_(reservations.c.runner_id.in_(gone), lost)
    found = connection.execute(sa.select(*key).where(which).with_for_update(skip_locked=True)).all()
    if found:
        connection.execute(reservations.delete().where(sa.tuple_(*key).in_([tuple(row) for row in found])))


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
                details = {"most": reached.most, "spent": reached.spent, "wanted": reached.wanted}
                about = subject(session_id, sweep_id)
                insert_events(connection, [_event(connection, about, "budget.reached", reached.key, details)])


def _event(
    connection: sa.Connection, about: Subject, kind: str, key: Key, details: Mapping[str, float | None]
) -> NewEvent:
    scope, of, node, what = key
    table = {"session": sessions, "sweep": sweeps}.get(scope)
    name = of if table is None else connection.scalar(sa.select(table.c.name).where(table.c.id == of))
    data = {"scope": scope, "name": name, "node": node or None, "kind": what, **details}
    return event_row(about, kind, data, "warning")
