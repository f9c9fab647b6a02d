"""Writes of T to PostgreSQL: row versions and bytes of WAL a node run, including its submission."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import sqlalchemy as sa

from benchmarks.harness.environment import Environment
from benchmarks.harness.figures import Figure, of_rounds
from benchmarks.harness.timing import open_warm, timed
from benchmarks.workloads.chain import NODE_RUNS, workflow
from wtb.store.database import Database

ROW_VERSIONS, WAL_KB = 5.6, 2.7
_LEAST_SHOWN = 0.01  # row versions a node run of a table that is listed by itself
_VERSIONS = "SELECT relname, n_tup_ins, n_tup_upd FROM pg_stat_user_tables"
_WAL = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"


def measure(environment: Environment, runs: int) -> Iterator[Figure]:
    bench_workflow = workflow()
    database = open_warm(environment, "postgresql", bench_workflow)
    inserts: Counter[str] = Counter()
    updates: Counter[str] = Counter()
    wal_kb = []
    for _ in range(runs):
        inserted, updated, wal = _versions(database)
        timed(database, bench_workflow)
        inserted_after, updated_after, wal_after = _versions(database)
        inserts += inserted_after - inserted
        updates += updated_after - updated
        wal_kb.append((wal_after - wal) / 1000 / NODE_RUNS)
    database.close()
    versions = (inserts.total() + updates.total()) / runs / NODE_RUNS
    yield Figure("T, postgresql: row versions a node run", versions, "", ROW_VERSIONS)
    yield of_rounds("T, postgresql: WAL a node run", wal_kb, "kB", WAL_KB)
    for kind, versions_of in (("inserted", inserts), ("updated", updates)):
        for table, count in versions_of.most_common():
            if (each := count / runs / NODE_RUNS) >= _LEAST_SHOWN:
                yield Figure(f"T, postgresql: {table} {kind} a node run", each, "")


def _versions(database: Database) -> tuple[Counter[str], Counter[str], int]:
    """Return the rows inserted and updated so far by table, and the position of the WAL."""
    database.engine.dispose()  # a connection reports what it did when it ends, if not before
    with database.read() as connection:
        connection.execute(sa.text("SELECT pg_stat_force_next_flush()"))
    inserted: Counter[str] = Counter()
    updated: Counter[str] = Counter()
    with database.read() as connection:
        for table, inserts, updates in connection.execute(sa.text(_VERSIONS)):
            inserted[table], updated[table] = inserts, updates
        return inserted, updated, connection.execute(sa.text(_WAL)).scalar_one()
