"""Deleting a sweep of many rows: each row is read once, and deleted rows are not read again."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.store.test_submission import new_sweep
from tests.support.bench import make_bench
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.values import Value
from wtb.store.database import Database
from wtb.store.housekeeping import deletion
from wtb.store.runs.submission import NewCase
from wtb.store.runs.submit import submit
from wtb.store.tables.schema import cells, looks, metadata, sweeps

CASES, VARIANTS = 60, 20
REFERRING = ("cells", "executions", "node_runs", "checkpoints", "scores", "events")


def _many(variants: int) -> Workflow:
    workflow = Workflow("many")
    node = workflow.node(lambda state, *, by=0: {"y": state["x"] + by}, name="add")
    for number in range(1, variants):
        node.variant(f"v{number}", by=number)
    workflow.entry(node)
    workflow.edge(node, END)
    return workflow


# Transactions of other tests, in whatever database, put off what PostgreSQL lets a reader forget.
@pytest.mark.slow
def test_what_was_removed_is_not_read_again_where_all_followers_would_wait(
    prepared_postgres_url: str, tmp_path: Path
) -> None:
    """PostgreSQL checks all tables that refer to a sweep in the transaction that deletes it."""
    database = Database(prepared_postgres_url)
    new_cases = [{"id": str(x), "input": {"x": x}, "expected": {"y": x}} for x in range(CASES)]
    exact = [{"exact_match": {"field": "y"}}]
    bench = make_bench(database, tmp_path, _many(VARIANTS), new_cases, {"add": "all"}, evaluate=exact)
    bench.run()
    with database.write() as connection:
        connection.exec_driver_sql("ANALYZE")  # nearly all rows are of this sweep, and it knows that
        for table in metadata.tables:  # whatever else looks at them meanwhile keeps entries of indexes alive
            connection.exec_driver_sql(f'ALTER TABLE "{table}" SET (autovacuum_enabled = false)')
    read: dict[str, list[int]] = {}

    def look(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        for table in 2 * REFERRING if statement.startswith("DELETE FROM sweeps") else ():
            query = f"SELECT 1 FROM ONLY {table} x WHERE '{bench.sweep_id}' = sweep_id FOR KEY SHARE OF x"
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}")
            plan = _json(cursor.fetchone()[0])[0]["Plan"]
            assert "Seq Scan" not in str(plan), table
            read.setdefault(table, []).append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    sa.event.listen(database.engine, "before_cursor_execute", look)
    assert deletion.delete_sweep(database, bench.sweep_id)
    database.close()
    assert read.keys() == set(REFERRING)
    for table, (blocks, later_blocks) in read.items():
        assert blocks <= later_blocks + 2, table  # those of the index, and not those of its rows


def test_who_removes_what_another_is_removing_neither_waits_nor_fails_for_a_look_at_it(
    prepared_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`wtb admin gc` and a scheduler go on with the same deletion, each in transactions of its own."""
    monkeypatch.setattr("wtb.store.engine._SETTINGS", "-c lock_timeout=50ms")
    database, other = Database(prepared_postgres_url), Database(prepared_postgres_url)
    submit(database, new_sweep(), (NewCase(str(number), {"x": Value.of(number)}, None) for number in range(40)))
    assert deletion.begin_deletion(database, "large")
    with other.write() as connection:
        connection.execute(cells.delete().where(cells.c.sweep_id == "large"))
        deletion._pass_what_was_removed(database, "large")
    assert deletion.remove_hidden(database) == 1
    for handle in (database, other):
        handle.close()


SLOW = """
CREATE SEQUENCE tries;
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('tries') NOT IN (3, 9) THEN PERFORM pg_sleep(10); END IF;
        RETURN OLD;
    END
$$;
CREATE TRIGGER slow BEFORE DELETE ON sweeps FOR EACH ROW EXECUTE FUNCTION slow();
"""


def test_a_sweep_that_would_take_long_to_go_is_tried_again_so_that_no_follower_waits(
    prepared_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "ITSELF_S", 0.05)
    database = Database(prepared_postgres_url)
    with database.write() as connection:
        connection.exec_driver_sql(SLOW)
    submit(database, new_sweep(), [NewCase("a", {"x": Value.of(1)}, None)])
    assert deletion.delete_sweep(database, "large")
    assert database.scalar(sa.text("SELECT last_value FROM tries")) == 3
    assert not database.rows(sa.select(sweeps))
    with database.write() as connection:  # a look outlives its sweep, whose id nobody has again but this test
        connection.execute(looks.delete())
    submit(database, new_sweep(), [NewCase("a", {"x": Value.of(1)}, None)])
    assert not deletion.delete_sweep(database, "large"), "what takes too long each time is left for a later round"
    assert not database.rows(sa.select(cells))
    assert deletion.remove_hidden(database) == 1, "at its first try, the ninth of all"
    database.close()


def _json(document: Any) -> Any:
    return json.loads(document) if isinstance(document, str) else document


def test_a_part_begins_where_the_one_before_ended_and_what_came_late_goes_too(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(database, new_sweep(), (NewCase(str(number), {"x": Value.of(number)}, None) for number in range(40)))
    monkeypatch.setattr(deletion, "_LEAST", 16)
    monkeypatch.setattr(deletion, "_MOST", 16)
    starts: list[Any] = []
    statements: list[str] = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    part = deletion._remove_part

    def remove_part(base: Database, table: sa.Table, which: Any, order: Any, since: Any, limit: int) -> Any:
        if table is cells:
            starts.append(since)
            if len(starts) == 4:  # before all that went
                late = {"sweep_id": "large", "case_number": -1, "repeat": 0, "combination": 0, "status": "pending"}
                with base.write() as connection:
                    connection.execute(cells.insert().values(late))
        return part(base, table, which, order, since, limit)

    monkeypatch.setattr(deletion, "_remove_part", remove_part)
    assert deletion.delete_sweep(database, "large")
    assert starts[0] is None
    assert all(earlier < later for earlier, later in itertools.pairwise(starts[1:8]))
    assert starts[-1] is None
    of_cells = [statement for statement in statements if statement.startswith("DELETE FROM cells")]
    assert database.is_sqlite or all(">=" in statement for statement in of_cells[1:8])
    for table in metadata.sorted_tables:
        if ("sweep_id" in table.c or table is sweeps) and table is not looks:
            assert not database.rows(sa.select(table)), table.name
