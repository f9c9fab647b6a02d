"""The ledger of budgets: sizes, amounts spent, and amounts that running attempts may still spend.

A budget is of a session, a project, a token, a sweep or a node of a sweep, and of one kind. Its size comes from the
limits of a sweep, the quota of a session or `wtb admin budget`. Attempts reserve of budgets before they start and
settle when they end: see `reservations`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import sqlalchemy as sa

from wtb.core.documents.plan import BudgetKind
from wtb.core.errors import InputError
from wtb.core.scoring.scores import JUDGING, limit_name
from wtb.core.tree.stored_spec import Limits, NodeLimits
from wtb.store.access.projects import ensure_project, in_scope
from wtb.store.access.users import check_token
from wtb.store.bulk import fetch_records, insert_missing
from wtb.store.cell_status import attempt_column, is_attempt, of_node_run
from wtb.store.database import Database
from wtb.store.records import ListedBudget
from wtb.store.tables.control import BudgetRow
from wtb.store.tables.schema import (
    attempts,
    budgets,
    is_visible,
    node_runs,
    reservations,
    scores,
    sessions,
    sweeps,
    workflows,
)
from wtb.store.tables.sweeps import SweepRow

Key = tuple[str, str, str, str]  # scope, key, node ("" for all of it), kind

KINDS: Final[tuple[BudgetKind, ...]] = ("usd", "tokens", "node_runs")
THRESHOLDS: Final = (0.5, 0.8, 0.95)
COLUMNS = ("scope", "key", "node", "kind")
_OWNERS = {"session": sweeps.c.session_id, "project": sweeps.c.project, "token": sweeps.c.token}
_ROUNDING = 1e-9  # of sums of money
_EARLIER = 5  # sweeps of the same workflow from which the cost of a node is estimated


def keys_of_limits(sweep_id: str, limits: Limits) -> dict[Key, float | None]:
    """Return the budgets that the limits of a sweep require, with their sizes; a size of None removes a budget."""
    of_nodes: Mapping[str, NodeLimits] = limits.get("nodes") or {}
    sizes: dict[Key, float | None] = {}
    if "usd" in (judging := limits.get("judging") or {}):
        sizes["sweep", sweep_id, JUDGING, "usd"] = judging["usd"]
    for node, limits_of_node in [("", limits), *of_nodes.items()]:
        for kind in KINDS:
            if kind in limits_of_node:
                sizes["sweep", sweep_id, node, kind] = limits_of_node[kind]
    return sizes


def create_budgets(connection: sa.Connection, sizes: Mapping[Key, float | None]) -> None:
    """Create missing budgets, with the amounts that were spent before; existing budgets stay as they are."""
    present = {
        key_of(row) for row in fetch_records(connection, BudgetRow, sa.select(budgets).where(of_keys(budgets, sizes)))
    }
    rows = [
        {**dict(zip(COLUMNS, key, strict=True)), "most": size, "spent": spent_before(connection, key)}
        for key, size in sorted(sizes.items())
        if size is not None and key not in present
    ]
    insert_missing(connection, budgets, rows)


def set_budgets(connection: sa.Connection, sizes: Mapping[Key, float | None]) -> None:
    """Create budgets, change their size, or remove those whose size is None.

    Raises:
        InputError: If a size would be below the amount spent; the transaction must not be committed then.
    """
    create_budgets(connection, sizes)
    for row in locked(connection, sizes):
        key = key_of(row)
        size = sizes[key]
        if size is None:
            connection.execute(budgets.delete().where(of_key(budgets, key)))
            continue
        spent = max(row.spent, spent_before(connection, key))
        if size < spent - slack(size):
            name = limit_name(*key[2:])
            raise InputError(
                f"{name} = {size:g}: {figure(key[3], spent)} {'are' if key[3] != 'usd' else 'US dollars are'} spent "
                f"already; expected at least {figure(key[3], spent)}, or no limit"
            )
        # Thresholds of the new size that are passed already count as warned, so that only further ones log an event.
        warned = max((share for share in THRESHOLDS if spent >= share * size), default=0.0)
        connection.execute(budgets.update().where(of_key(budgets, key)).values(most=size, spent=spent, warned=warned))


class _Checked(Exception):
    """Ends a transaction that must not be committed."""


def open_budgets(database: Database, row: SweepRow, session: Mapping[Key, float | None], limits: Limits) -> None:
    """Create the missing budgets of a sweep's limits and of its session's quota.

    Args:
        database: The database.
        row: The row of the sweep.
        session: The budgets of its session, from its quota.
        limits: Other limits for the sweep from now on.

    Raises:
        InputError: If a limit is below the amount spent.
    """
    sizes = {key: size for key, size in keys_of_limits(row.id, row.spec["limits"]).items() if size is not None}
    wanted_of_session = {key: size for key, size in session.items() if size is not None}
    # Most sweeps have no limits, and need no transaction.
    if not (sizes or wanted_of_session or limits):
        return
    with database.write() as connection:
        if limits:
            set_limits(connection, row.id, limits)
            # The new limits have just been written. The row was read before, so its sizes for the same keys are old.
            sizes = {key: size for key, size in sizes.items() if key not in keys_of_limits(row.id, limits)}
        create_budgets(connection, {**sizes, **wanted_of_session})


def set_limits(connection: sa.Connection, sweep_id: str, limits: Limits) -> None:
    """Set limits of a sweep; limits that are not named stay, and null removes one.

    Raises:
        InputError: If a limit is below the amount spent.
    """
    set_budgets(connection, keys_of_limits(sweep_id, limits))
    spec = connection.scalar(sa.select(sweeps.c.spec).where(sweeps.c.id == sweep_id).with_for_update())
    if spec is None:
        return
    merged = {**spec["limits"], **limits}
    if "nodes" in limits:
        nodes = dict(spec["limits"].get("nodes") or {})
        merged["nodes"] = nodes | {
            node: {**nodes.get(node, {}), **changes} for node, changes in limits["nodes"].items()
        }
    connection.execute(sweeps.update().where(sweeps.c.id == sweep_id).values(spec={**spec, "limits": merged}))


def check_limits(database: Database, sweep_id: str, limits: Limits) -> None:
    """Check limits as `set_limits` does, and write nothing. Raises InputError."""
    # The transaction does all that the change would do, and is then rolled
    # back, so that the check cannot differ from it.
    with suppress(_Checked), database.write() as connection:
        set_limits(connection, sweep_id, limits)
        raise _Checked


def set_project(database: Database, project: str, sizes: Mapping[str, float | None]) -> None:
    """Set budgets of a project, by kind; None removes one.

    A caller that is not limited to projects creates a project by naming it.

    Raises:
        InputError: If a budget is below the amount spent.
        NotFound: If there is no such project.
    """
    with database.write() as connection:
        ensure_project(connection, project)
        set_budgets(connection, {("project", project, "", kind): size for kind, size in sizes.items()})


def figure(kind: str, amount: float) -> str:
    """Return an amount of a kind in digits; US dollars have at most six decimals."""
    return f"{amount:.6f}".rstrip("0").rstrip(".") if kind == "usd" else f"{amount:.0f}"


def set_token(database: Database, token: str, sizes: Mapping[str, float | None]) -> None:
    """Set budgets of a token, by kind, as `set_project` does. Raises NotFound if there is no such token."""
    with database.write() as connection:
        check_token(connection, token)
        set_budgets(connection, {("token", token, "", kind): size for kind, size in sizes.items()})


def has_budget(database: Database, token: str) -> bool:
    """Return whether sweeps that are submitted with a token are bound by budgets of that token."""
    mine = sa.and_(budgets.c.scope == "token", budgets.c.key == token)
    return database.scalar(sa.select(budgets.c.key).where(mine).limit(1)) is not None


def binding_budgets(database: Database, sweep: SweepRow) -> list[BudgetRow]:
    """Return the budgets that bind a sweep, in the order in which they are locked."""
    query = sa.select(budgets).where(_binding(sweep.id, sweep.session_id, sweep.project, sweep.token))
    return database.records(BudgetRow, query.order_by(*_of(budgets)))


def recount(database: Database, keys: Sequence[Key]) -> None:
    """Count amounts that were spent before budgets existed. Amounts of deleted records stay counted."""
    with database.write() as connection:
        for row in locked(connection, keys):
            key = key_of(row)
            if (spent := spent_before(connection, key)) > row.spent + slack(spent):
                connection.execute(budgets.update().where(of_key(budgets, key)).values(spent=spent))


def dearest(connection: sa.Connection, sweep_id: str, node: str) -> tuple[float, float, bool] | None:
    """Return the cost of the dearest accepted runs of a node.

    If this sweep has none, those of earlier sweeps of the workflow count.

    Returns:
        (US dollars, tokens, whether they are of this sweep); None if there are none.
    """
    columns = sa.func.max(node_runs.c.usd), sa.func.max(node_runs.c.tokens_in + node_runs.c.tokens_out)
    accepted = node_runs.c.node == node, node_runs.c.status == "succeeded"
    mine = sa.select(*columns).where(node_runs.c.sweep_id == sweep_id, *accepted)
    this = sa.select(sweeps.c.created_at, workflows.c.name).join(workflows).where(sweeps.c.id == sweep_id).subquery()
    earlier = (
        sa.select(sweeps.c.id)
        .join(workflows)
        .join(this, this.c.name == workflows.c.name)
        .where(sweeps.c.id != sweep_id, sweeps.c.created_at <= this.c.created_at, is_visible)
        .order_by(sweeps.c.created_at.desc())
        .limit(_EARLIER)
    )
    other_runs = sa.select(*columns).where(node_runs.c.sweep_id.in_(earlier), *accepted)
    for own, query in ((True, mine), (False, other_runs)):
        usd, tokens = connection.execute(query).one()
        if usd is not None:
            return float(usd), float(tokens), own
    return None


def dearest_judged(connection: sa.Connection, sweep_id: str) -> float | None:
    """Return the US dollars that judges of a sweep took for the dearest cell; None if they have judged none."""
    of_cell = scores.c.combination, scores.c.case_number, scores.c.repeat
    conditions = scores.c.sweep_id == sweep_id, scores.c.metric.endswith(".usd", autoescape=True)
    each = sa.select(sa.func.sum(scores.c.value).label("usd")).where(*conditions).group_by(*of_cell).subquery()
    usd = connection.scalar(sa.select(sa.func.max(each.c.usd)))
    return None if usd is None else float(usd)


def _listed() -> sa.Select[Any]:
    reserved = (
        sa.select(sa.func.coalesce(sa.func.sum(reservations.c.amount), 0.0))
        .where(*(reservations.c[name] == budgets.c[name] for name in COLUMNS))
        .scalar_subquery()
    )
    return (
        sa.select(budgets, reserved.label("reserved"), sa.func.coalesce(sessions.c.name, sweeps.c.name).label("name"))
        .outerjoin(sessions, sa.and_(budgets.c.scope == "session", sessions.c.id == budgets.c.key))
        .outerjoin(sweeps, sa.and_(budgets.c.scope == "sweep", sweeps.c.id == budgets.c.key))
        .order_by(*(budgets.c[name] for name in COLUMNS))
    )


_LISTED = _listed()  # made once: making it takes as long as executing it


def budget_rows(database: Database, *, sweep_id: str | None = None) -> list[ListedBudget]:
    """Return budgets; with a sweep, those that bind it."""
    query = _LISTED.where(*in_scope(database, budgets))
    with database.read() as connection:
        if sweep_id is not None:
            its = sa.select(sweeps.c.session_id, sweeps.c.project, sweeps.c.token).where(sweeps.c.id == sweep_id)
            query = query.where(_binding(sweep_id, *connection.execute(its).one()))
        return fetch_records(connection, ListedBudget, query)


def spent_before(connection: sa.Connection, key: Key) -> float:
    """Return the amount that was spent of a budget, as far as records show."""
    scope, of, node, kind = key
    owned = {**_OWNERS, "sweep": sweeps.c.id}[scope] == of
    which = sa.and_(owned, is_visible)  # sweeps that are being deleted are counted in `deleted_usd` of the session
    runs = node_runs.join(sweeps, sweeps.c.id == node_runs.c.sweep_id)
    conditions = (which, node_runs.c.node == node) if node else (which,)
    if kind == "node_runs":
        query = sa.select(sa.func.count()).select_from(runs)
    else:
        # All attempts count, because failed ones cost money, too.
        usd, tokens_in, tokens_out = map(attempt_column, ("usd", "tokens_in", "tokens_out"))
        figure = usd if kind == "usd" else tokens_in + tokens_out
        query = sa.select(sa.func.sum(figure)).select_from(runs.outerjoin(attempts, of_node_run)).where(is_attempt)
    spent = float(connection.scalar(query.where(*conditions)) or 0)
    # Records that were removed to save space have left their sums in the row of the sweep.
    collected = {"usd": sweeps.c.collected_usd, "node_runs": sweeps.c.collected_node_runs}.get(kind)
    if collected is not None and not node:
        spent += float(connection.scalar(sa.select(sa.func.sum(collected)).where(which)) or 0)
    if scope == "session" and kind == "usd":
        spent += float(connection.scalar(sa.select(sessions.c.deleted_usd).where(sessions.c.id == of)) or 0)
    return spent


def locked(connection: sa.Connection, keys: Iterable[Key]) -> list[BudgetRow]:
    """Return budgets, locked until this transaction ends; all callers lock them in the same order."""
    query = sa.select(budgets).where(of_keys(budgets, keys)).order_by(*_of(budgets))
    return fetch_records(connection, BudgetRow, query.with_for_update(key_share=True))


def key_of(row: BudgetRow) -> Key:
    return row.scope, row.key, row.node, row.kind


def of_key(table: sa.Table, key: Key) -> sa.ColumnElement[bool]:
    return sa.and_(*(column == part for column, part in zip(_of(table), key, strict=True)))


def of_keys(table: sa.Table, keys: Iterable[Key]) -> sa.ColumnElement[bool]:
    return sa.or_(sa.false(), *(of_key(table, key) for key in keys))


def _of(table: sa.Table) -> list[sa.Column[Any]]:
    return [table.c[name] for name in COLUMNS]


def _binding(sweep_id: str, session_id: str, project: str, token: str | None) -> sa.ColumnElement[bool]:
    """Return the condition that budgets bind a sweep."""
    scopes = {"session": session_id, "project": project, "sweep": sweep_id, "token": token}
    return sa.or_(*(sa.and_(budgets.c.scope == scope, budgets.c.key == key) for scope, key in scopes.items()))


def slack(limit: float) -> float:
    return _ROUNDING * max(1.0, abs(limit))
