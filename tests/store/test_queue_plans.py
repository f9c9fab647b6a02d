"""Queries of workers and the scheduler use an index, however many executions have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from benchmarks.distributed.query_plans import Filled, fill, read_whole
from tests.support.databases import postgres_database
from tests.support.waiting import until
from wtb.features.telemetry.queries import traced_scores
from wtb.hosting.servers.postgres import connect
from wtb.store.cell_status import end_waiting
from wtb.store.control.executions import line_of
from wtb.store.control.rescore import scored_executions
from wtb.store.database import Database
from wtb.store.housekeeping.superseded import has_superseded
from wtb.store.read import details, lineage
from wtb.store.read.activity import left_behind
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import executions

FINISHED = 20_000
PREPARED = 8  # times, after which a statement is prepared
NAMES = (
    "publish",
    "publish_again",
    "claim_tasks",
    "renew",
    "reclaim",
    "demand",
    "next_published",
    "finish",
    "open_sweeps",
    "flush of an execution that ends",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plans")


@pytest.fixture(scope="module")
def filled_once(postgres_url: str, postgres_admin: psycopg.Connection, folder: Path) -> Iterator[Filled]:
    """A filled database that tests copy and do not change."""
    with postgres_database(postgres_url, postgres_admin) as url:
        database = Database(url)
        filled = fill(database, folder, FINISHED, pending=200)
        database.close()
        yield filled


@pytest.fixture
def copy_url(filled_once: Filled, postgres_url: str, postgres_admin: psycopg.Connection) -> Iterator[str]:
    """A copy of the filled database for one test."""
    template = str(filled_once.database.url.database)
    with postgres_database(postgres_url, postgres_admin, template) as url:
        yield url


@pytest.fixture
def filled(filled_once: Filled, copy_url: str) -> Iterator[Filled]:
    database = Database(copy_url)
    yield replace(filled_once, database=database)
    database.close()


def test_no_call_of_the_queue_reads_all_executions_or_cells(filled: Filled) -> None:
    calls = filled.calls()
    for name in NAMES:
        call = calls[name]()
        with read_whole(filled.database) as reads:
            call()
        assert not reads, name


def test_no_plan_for_any_value_reads_all_executions(filled_once: Filled, copy_url: str) -> None:
    """Frequent queries are prepared, and may get a plan that ignores their parameters."""
    generic = sa.make_url(copy_url).update_query_dict({"options": "-c plan_cache_mode=force_generic_plan"})
    database = Database(generic.render_as_string(hide_password=False))
    for name, make in replace(filled_once, database=database).calls().items():
        for _ in range(PREPARED):
            make()()
        with database.read() as connection:
            plans = connection.exec_driver_sql("SELECT sum(generic_plans) FROM pg_prepared_statements").scalar()
        assert plans > 0, name
    database.close()  # who leaves says what it has read
    by_index, whole = 0, 0
    with connect(copy_url) as other:
        query = "SELECT sum(idx_scan), sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname = ANY(%s)"

        def have_come() -> bool:
            nonlocal by_index, whole
            ((by_index, whole),) = other.execute(query, (["executions", "cells"],)).fetchall()
            return bool(by_index)

        until(have_come, "the statistics to come", pause=0.2)
    assert whole == 0


def test_a_flush_looks_up_its_leases_and_passes_none_that_others_had(filled: Filled) -> None:
    """The index of running executions has an entry for each renewal until it is vacuumed."""
    call = filled.calls()["flush of an execution that ends"]()
    plans: list[str] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("UPDATE executions SET lease_until"):
            with psycopg.Cursor(cursor.connection) as other:
                plans.append(str(other.execute(f"EXPLAIN (FORMAT JSON) {statement}", parameters).fetchall()))

    sa.event.listen(filled.database.engine, "before_cursor_execute", explain)
    call()
    (plan,) = plans
    assert "pk_executions" in plan
    assert "ix_executions" not in plan


def test_what_is_looked_up_of_an_execution_or_a_small_sweep_reads_no_table_whole(filled: Filled) -> None:
    """There is no index of cells by execution, of children by parent, or of leases."""
    database = filled.database
    of_other = sa.select(executions).where(executions.c.sweep_id == "other7").order_by(executions.c.id).limit(1)
    (row,) = database.records(ExecutionRow, of_other)
    calls: dict[str, Callable[[], object]] = {
        "cells_held": lambda: lineage.cells_held(database, row.sweep_id, row.case_number),
        "children": lambda: details.children(database, row.id),
        "line_of": lambda: line_of(database, row.id),
        "traced_scores": lambda: traced_scores(database, row.sweep_id, [row.id]),
        "scored_executions": lambda: list(scored_executions(database, row.sweep_id)),
        "has_superseded": lambda: has_superseded(database, row.sweep_id, 0.0),
        "left_behind": lambda: left_behind(database, 1.0),
        "end_waiting": lambda: _end_waiting(database, row),
    }
    for name, call in calls.items():
        with read_whole(database) as reads:
            call()
        assert not reads, name


def _end_waiting(database: Database, row: ExecutionRow) -> None:
    with database.write() as connection:
        end_waiting(connection, [row])


def test_a_call_that_does_is_found_out(filled: Filled) -> None:
    with read_whole(filled.database) as reads, filled.database.read() as connection:
        connection.execute(sa.select(sa.func.count()).where(executions.c.reason == "for no index"))
    assert [table for table, _ in reads] == ["executions"]
