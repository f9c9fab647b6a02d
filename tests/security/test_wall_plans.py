"""The cost of walls in plans of PostgreSQL: a request reads no more rows, however many other projects have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from tests.support import tenants
from tests.support.tenants import Tenant, limited_to
from wtb.core.errors import WTBError
from wtb.hosting.servers.postgres import connect, role_url
from wtb.operations.context import Context
from wtb.operations.registry import OPERATIONS, Effect, Permission
from wtb.store.database import Database
from wtb.store.tables.schema import metadata
from wtb.store.tables.walls import SERVER, WORKER

# Columns that name an owner in tables without walls: the slots of a process, and stored responses, which are found only
# by a digest of the caller.
EXEMPT_COLUMNS = {"runners": {"session_id"}, "idempotency_keys": {"projects"}}
WHOSE = re.compile(
    r"(.*_)?(project|session|sweep|execution|checkpoint|node_run|case|approval|schedule)(s|_id|_number)?"
)

COPY_COUNT = 500  # copies of another project's things
FEW = 50  # rows by which two plans for the same may differ

# Columns by which a copy is one of its own, in an order in which no table refers to a later one.
COPIES: Mapping[str, str] = {
    "projects": "name",
    "sessions": "id name project",
    "sweeps": "id session_id project created_at",
    **dict.fromkeys(("cases", "combinations", "metrics", "tallies", "matrices", "scores"), "sweep_id"),
    "executions": "id sweep_id session_id",
    "checkpoints": "id sweep_id execution_id",
    "cells": "sweep_id execution_id",
    "node_runs": "id sweep_id execution_id checkpoint_id",
    "attempts": "node_run_id",
    "approvals": "id sweep_id session_id checkpoint_id",
    "awaiting": "approval_id execution_id",
    "events": "id sweep_id session_id execution_id",
    "schedules": "id name session_id",
    "baselines": "session_id sweep_id",
    "tokens": "id name digest project",
    "access": "project",
    "budgets": "key",
}
COPIED: Mapping[tuple[str, str], str] = {
    ("events", "id"): "t.id + 1000000::bigint * nth",
    ("sweeps", "created_at"): "t.created_at + nth - 250",  # some before one's own, some after
    ("tokens", "digest"): "md5(t.digest || nth) || md5(t.digest)",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plans")


def keep(connection: psycopg.Connection) -> None:
    """Keep the existing rows, for copies."""
    connection.execute("CREATE SCHEMA kept")
    for table in COPIES:
        connection.execute(f"CREATE TABLE kept.{table} AS SELECT * FROM {table}")


def copy(connection: psycopg.Connection, many: int) -> None:
    """Add this many copies of the kept rows to the database."""
    for table, columns in COPIES.items():
        values = {name: COPIED.get((table, name), f"left(md5(t.{name} || nth), 22)") for name in columns.split()}
        pairs = ", ".join(f"'{name}', {text}" for name, text in values.items())
        record = f"jsonb_populate_record(null::{table}, to_jsonb(t) || jsonb_build_object({pairs}))"
        connection.execute(
            f"INSERT INTO {table} SELECT ({record}).* FROM kept.{table} t, generate_series(1, {many}) nth"
        )
    connection.execute("ANALYZE")


def rows_read(plan: Mapping[str, Any]) -> float:
    """Return the number of table rows that a plan read."""
    looked = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
    own = looked * plan["Actual Loops"] if "Relation Name" in plan else 0
    return own + sum(map(rows_read, plan.get("Plans", ())))


def reads(server: Database, own: Tenant, folder: Path) -> dict[str, float]:
    """Return the number of rows that each reading operation reads, by the kind of its argument."""
    queries: list[tuple[str, Any]] = []

    def note(*arguments: Any) -> None:
        if "EXPLAIN" not in arguments[2] and "SELECT" in arguments[2] and "set_config" not in arguments[2]:
            queries.append((arguments[2], arguments[3]))

    calls = {
        str(call): (call.name, call.arguments(own.names, own.names[call.kind], folder)) for call in tenants.calls()
    }
    calls |= {name: (name, {}) for name in tenants.lists()}
    context = Context(server, files=folder).acting_as(limited_to("zebras"), Permission.read)
    totals: dict[str, float] = {}
    sa.event.listen(server.engine, "before_cursor_execute", note)
    try:
        for key, (name, arguments) in calls.items():
            if OPERATIONS[name].effect is not Effect.reads or OPERATIONS[name].writes_files:
                continue
            queries.clear()
            with suppress(WTBError):
                reply = OPERATIONS[name].function(context, **arguments)
                if isinstance(reply, Iterator):
                    next(reply, None)
            totals[key] = 0
            for statement, parameters in list(queries):
                with context.database.read() as connection:
                    explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
                    (plan,) = connection.exec_driver_sql(explain, parameters).scalar_one()
                totals[key] += rows_read(plan["Plan"])
    finally:
        sa.event.remove(server.engine, "before_cursor_execute", note)
    return totals


def test_what_says_whose_it_is_has_a_forced_wall(url: str) -> None:
    """Columns and foreign keys reveal a new table without a wall."""
    with connect(url) as owner:
        policies = owner.execute("SELECT tablename, policyname, roles, permissive FROM pg_policies").fetchall()
        forced = owner.execute("SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity").fetchall()
    walled = {name for (name,) in forced} & {table for table, name, roles, _ in policies if roles == [SERVER]}
    assert {how for *_, how in policies} == {"PERMISSIVE"}
    for name, table in metadata.tables.items():
        whose = {column.name for column in table.columns if WHOSE.fullmatch(column.name)}
        whose |= {key.parent.name for key in table.foreign_keys if key.column.table.name in walled}
        assert name in walled or whose == EXEMPT_COLUMNS.get(name, set()), name


def test_what_other_projects_have_makes_no_request_read_more(url: str, folder: Path) -> None:
    database, server = Database(role_url(url, WORKER)), Database(role_url(url, SERVER))
    context = Context(database, by="ann", files=folder)
    with connect(url) as owner:
        Tenant(context, folder, "quokka")
        keep(owner)
        own = Tenant(context, folder, "zebras")
        owner.execute("ANALYZE")
        before = reads(server, own, folder)
        copy(owner, COPY_COUNT)
    after = reads(server, own, folder)
    database.close()
    server.close()
    grown = {name: (before[name], rows) for name, rows in after.items() if rows > before[name] + FEW}
    assert len(before) > 50
    assert not grown, "\n".join(f"{name}: {rows}" for name, rows in grown.items())
