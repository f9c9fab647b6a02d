"""Giving budgets their size: the limits of a sweep, the quota of a session, what a project may spend."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import sqlalchemy as sa

from wtb.store.database import Database
from wtb.store.limits.budgets import change, keep, keys_of_limits
from wtb.store.limits.sessions import Quota
from wtb.store.tables.sweeps import sweeps


class _Checked(Exception):
    """Ends a transaction that is not to be committed."""


def open_budgets(database: Database, row: Mapping[str, Any], quota: Quota, limits: Mapping[str, Any]) -> None:
    """Make the budgets that the limits of a sweep and the quota of its session ask for, where they are not there yet.

    limits: others for the sweep from now on. Raises InputError where one is below what is spent.
    """
    wanted = {key: most for key, most in keys_of_limits(row["id"], row["spec"]["limits"]).items() if most is not None}
    session = {key: most for key, most in quota.budgets(row["session_id"]).items() if most is not None}
    if not (wanted or session or limits):
        return
    with database.write() as connection:
        if limits:
            set_limits(connection, row["id"], limits)
            wanted = {key: most for key, most in wanted.items() if key not in keys_of_limits(row["id"], limits)}
        keep(connection, {**wanted, **session})


def set_limits(connection: sa.Connection, sweep_id: str, limits: Mapping[str, Any]) -> None:
    """Give a sweep other limits; those that are not named stay, null lifts one.

    Raises InputError where one is below what is spent.
    """
    change(connection, keys_of_limits(sweep_id, limits))
    spec = connection.scalar(sa.select(sweeps.c.spec).where(sweeps.c.id == sweep_id).with_for_update())
    if spec is None:
        return
    merged = {**spec["limits"], **limits}
    if "nodes" in limits:
        nodes = dict(spec["limits"].get("nodes") or {})
        merged["nodes"] = nodes | {node: {**nodes.get(node, {}), **given} for node, given in limits["nodes"].items()}
    connection.execute(sweeps.update().where(sweeps.c.id == sweep_id).values(spec={**spec, "limits": merged}))


def check_limits(database: Database, sweep_id: str, limits: Mapping[str, Any]) -> None:
    """Refuse what `set_limits` would refuse, and write nothing. Raises InputError."""
    with suppress(_Checked), database.write() as connection:
        set_limits(connection, sweep_id, limits)
        raise _Checked


def set_project(database: Database, project: str, wanted: Mapping[str, float | None]) -> None:
    """Give a project budgets, by kind; None lifts one. Raises InputError where one is below what is spent."""
    with database.write() as connection:
        change(connection, {("project", project, "", kind): most for kind, most in wanted.items()})
