"""What walls cost in plans of PostgreSQL: a request reads no more rows, however many other projects have."""

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
from wtb.hosting.servers.databases import connect
from wtb.hosting.servers.postgres import role_url
from wtb.operations.context import Context
from wtb.operations.registry import OPERATIONS, Effect, Permission
from wtb.store.database import Database
from wtb.store.tables.schema import metadata
from wtb.store.tables.walls import SERVER, WORKER

# What of tables without walls says whose something is: the slots of a process, and what an answer may tell of, which is
# found by a digest of who asked alone.
SAID = {"runners": {"session_id"}, "idempotency_keys": {"projects"}}
WHOSE = re.compile(
    r"(.*_)?(project|session|sweep|execution|checkpoint|node_run|case|approval|schedule)(s|_id|_number)?"
)

OTHERS = 500  # copies of another project's things
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
    """Keep what there is, to be copied."""
    connection.execute("CREATE SCHEMA kept")
    for table in COPIES:
        connection.execute(f"CREATE TABLE kept.{table} AS SELECT * FROM {table}")


def copy(connection: psycopg.Connection, many: int) -> None:
    """Give the database so many more of what was kept."""
    for table, columns in COPIES.items():
        values = {name: COPIED.get((table, name), f"left(md5(t.{name} || nth), 22)") for name in columns.split()}
        made = ", ".join(f"'{name}', {value}" for name, value in values.items())
        record = f"jsonb_populate_record(null::{table}, to_jsonb(t) || jsonb_build_object({made}))"
        connection.execute(
            f"INSERT INTO {table} SELECT ({record}).* FROM kept.{table} t, generate_series(1, {many}) nth"
        )
    connection.execute("ANALYZE")


def rows_read(plan: Mapping[str, Any]) -> float:
    """How many rows of tables a plan has looked at."""
    looked = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
    own = looked * plan["Actual Loops"] if "Relation Name" in plan else 0
    return own + sum(map(rows_read, plan.get("Plans", ())))


def reads(server: Database, own: Tenant, folder: Path) -> dict[str, float]:
    """Rows that are looked at by each operation that reads, by what it is asked about."""
    asked: list[tuple[str, Any]] = []

    def note(*said: Any) -> None:
        if "EXPLAIN" not in said[2] and "SELECT" in said[2] and "set_config" not in said[2]:
            asked.append((said[2], said[3]))

    calls = {str(one): (one.name, one.arguments(own.names, own.names[one.kind], folder)) for one in tenants.calls()}
    calls |= {name: (name, {}) for name in tenants.lists()}
    context = Context(server, files=folder).acting_as(limited_to("zebras"), Permission.read)
    found: dict[str, float] = {}
    sa.event.listen(server.engine, "before_cursor_execute", note)
    try:
        for key, (name, arguments) in calls.items():
            if OPERATIONS[name].effect is not Effect.reads or OPERATIONS[name].writes_files:
                continue
            asked.clear()
            with suppress(WTBError):
                result = OPERATIONS[name].function(context, **arguments)
                if isinstance(result, Iterator):
                    next(result, None)
            found[key] = 0
            for statement, parameters in list(asked):
                with context.database.read() as connection:
                    explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
                    (plan,) = connection.exec_driver_sql(explain, parameters).scalar_one()
                found[key] += rows_read(plan["Plan"])
    finally:
        sa.event.remove(server.engine, "before_cursor_execute", note)
    return found


def test_what_says_whose_it_is_has_a_forced_wall(url: str) -> None:
    """A table that is added without one is found here, by its columns and by what they refer to."""
    with connect(url) as owner:
        policies = owner.execute("SELECT tablename, policyname, roles, permissive FROM pg_policies").fetchall()
        forced = owner.execute("SELECT relname FROM pg_class WHERE relrowsecurity AND relforcerowsecurity").fetchall()
    walled = {name for (name,) in forced} & {table for table, name, roles, _ in policies if roles == [SERVER]}
    assert {how for *_, how in policies} == {"PERMISSIVE"}
    for name, table in metadata.tables.items():
        whose = {column.name for column in table.columns if WHOSE.fullmatch(column.name)}
        whose |= {key.parent.name for key in table.foreign_keys if key.column.table.name in walled}
        assert name in walled or whose == SAID.get(name, set()), name


def test_what_other_projects_have_makes_no_request_read_more(url: str, folder: Path) -> None:
    made, server = Database(role_url(url, WORKER)), Database(role_url(url, SERVER))
    context = Context(made, by="ann", files=folder)
    with connect(url) as owner:
        Tenant(context, folder, "quokka")
        keep(owner)
        own = Tenant(context, folder, "zebras")
        owner.execute("ANALYZE")
        before = reads(server, own, folder)
        copy(owner, OTHERS)
    after = reads(server, own, folder)
    made.close()
    server.close()
    grown = {name: (before[name], rows) for name, rows in after.items() if rows > before[name] + FEW}
    assert len(before) > 50
    assert not grown, "\n".join(f"{name}: {rows}" for name, rows in grown.items())
