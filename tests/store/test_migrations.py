"""The migrations create the tables of the schema.

Until 0.1.0 is published its migration is written out again after a change of wtb/store/tables:

    python -m tests.store.test_migrations

From then on, raise REVISION and write the migration that leads there with

    python -m tests.store.test_migrations add_queue

then look at it: what its rows need is yours to write. Run again, the command replaces a migration that nobody has yet.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

import wtb
from tests.support.inputs import name_in_errors
from tests.support.prose import sentence
from wtb import Sweep, Workflow
from wtb.core.errors import InputError, StoreError
from wtb.store.database import DEFAULT_SESSION, INITIAL, MIGRATIONS, TAG_OF_OLDER, Database
from wtb.store.housekeeping import version_copies
from wtb.store.log import add_event, subject
from wtb.store.read import queries
from wtb.store.tables.schema import REVISION, events, metadata, sessions
from wtb.store.tables.walls import build_walls

ON_POSTGRESQL = {
    "columns": """
        SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, column_default,
               is_identity, identity_generation
        FROM information_schema.columns WHERE table_schema = 'public'""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, contype::text, pg_get_constraintdef(oid), condeferrable, condeferred
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace""",
    "triggers": """
        SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(pg_trigger.oid),
               regexp_replace(prosrc, '\\s+', ' ', 'g')
        FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid WHERE NOT tgisinternal""",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "comments": """
        SELECT attrelid::regclass::text, attname, col_description(attrelid, attnum)
        FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        WHERE relnamespace = 'public'::regnamespace AND col_description(attrelid, attnum) IS NOT NULL""",
}


def shape(database: Database) -> dict[str, Any]:
    """Everything that a database knows of its tables, in an order of its own."""
    with database.read() as connection:
        if not database.is_sqlite:
            return {name: _rows(connection.execute(sa.text(query))) for name, query in ON_POSTGRESQL.items()}
        definitions = connection.execute(sa.text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
        return {name: _parts(sql) for name, sql in definitions}


def _rows(cursor: sa.CursorResult[Any]) -> list[str]:
    return sorted(str(tuple(row)) for row in cursor)  # a row by itself leaves out what is long


def _parts(sql: str) -> list[str]:
    """Return the columns and constraints of a CREATE TABLE, regardless of order and spacing."""
    parts, depth = [""], 0
    for letter in sql:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 1:
            parts.append("")
        else:
            parts[-1] += letter
    head, _, parts[0] = parts[0].partition("(")
    parts[-1] = parts[-1].rpartition(")")[0]
    return [" ".join(head.split()), *sorted(" ".join(part.split()) for part in parts)]


@pytest.fixture
def fresh(database_url: str) -> Any:
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def both(fresh: Database, tmp_path: Path) -> Any:
    """An empty database, and another one of the same kind."""
    if fresh.is_sqlite:
        other = Database(f"sqlite:///{tmp_path / 'other.db'}")
        yield fresh, other
        other.close()
        return
    name = f"{fresh.url.database}_other"
    with fresh.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as admin:
        admin.execute(sa.text(f"CREATE DATABASE {name}"))
        other = Database(fresh.url.set(database=name).render_as_string(hide_password=False))
        yield fresh, other
        other.close()
        admin.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))


def migrate(database: Database) -> None:
    """Run all migrations on an empty database. `upgrade` creates the tables directly instead."""
    with database.write() as connection:
        assert database._migrate(connection, "head")
        build_walls(connection)


def test_a_fresh_schema_equals_the_migrated_one(both: tuple[Database, Database]) -> None:
    fresh, migrated = both

    fresh.prepare()
    migrate(migrated)

    assert shape(migrated) == shape(fresh)
    assert shape(fresh)


def test_alembic_finds_nothing_left_to_migrate(fresh: Database) -> None:
    migrate(fresh)

    with fresh.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_the_checks_of_the_schema_are_in_the_migrated_database(fresh: Database) -> None:
    migrate(fresh)

    inspected = sa.inspect(fresh.engine)
    for table in metadata.tables.values():
        expected = {str(check.name) for check in table.constraints if isinstance(check, sa.CheckConstraint)}
        assert {check["name"] for check in inspected.get_check_constraints(table.name)} == expected


def test_the_newest_migration_is_the_revision_that_the_schema_names() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [REVISION]


def test_an_upgrade_of_an_empty_database_makes_it_ready_to_use(fresh: Database) -> None:
    assert fresh.upgrade() == (None, REVISION)

    fresh.prepare()

    assert fresh.revision() == REVISION
    assert fresh.tuples(sa.select(sessions.c.id, sessions.c.name)) == [(DEFAULT_SESSION,) * 2]
    before = shape(fresh)
    assert fresh.upgrade() == (REVISION, REVISION), "it is up to date"
    assert shape(fresh) == before


def rows(database: Database) -> dict[str, list[str]]:
    """All that a database holds, by table; columns without a value are left out, since migrations add such."""
    with database.read() as connection:
        tables = [name for name in sa.inspect(connection).get_table_names() if name != "alembic_version"]
        rows_by_table = {
            name: connection.execute(sa.text(f'SELECT * FROM "{name}"')).mappings().all() for name in tables
        }
    return {
        name: sorted(str({key: value for key, value in row.items() if value is not None}) for row in rows)
        for name, rows in rows_by_table.items()
        if rows
    }


def fill(database: Database) -> None:
    """Fill a database with a sweep that has ended."""
    workflow = Workflow("small")

    @workflow.node
    def step(state: dict[str, Any], *, n: int = 1) -> dict[str, Any]:
        return {"n": n}

    workflow.entry(step)
    database.prepare()
    with wtb.open(database.url.render_as_string(hide_password=False)) as bench:
        cases = [{"id": "a", "input": {"x": 1}}]
        bench.run(Sweep(name="small", workflow=workflow, cases=cases, vary={"step": "all"}, run={"pool": "thread"}))


def columns_of_cells(database: Database) -> set[str]:
    return {column["name"] for column in sa.inspect(database.engine).get_columns("cells")}


def check_log_continues(database: Database) -> None:
    """Check that a follower that has read all events before the migration reads only newer ones."""
    with database.read() as connection:
        expected = connection.execute(sa.select(events.c.id, events.c.sweep_id).order_by(events.c.id)).all()
    sweep_id = expected[-1].sweep_id
    seen = queries.event_rows(database, sweep_id)
    assert {row["id"] for row in seen} >= {row.id for row in expected if row.sweep_id == sweep_id}

    with database.write() as connection:
        add_event(connection, subject("default", sweep_id), "sweep.pinned", {})

    (new,) = queries.event_rows(database, sweep_id, after=(seen[-1]["transaction"], seen[-1]["id"]))
    assert new["kind"] == "sweep.pinned"


def test_an_upgrade_keeps_every_row(fresh: Database, next_version: Callable[[], str]) -> None:
    fill(fresh)
    before, revision = rows(fresh), next_version()

    with pytest.raises(
        InputError, match=f"of version {INITIAL}; this WTB expects {revision}: run `wtb admin db upgrade`"
    ):
        fresh.prepare()
    assert fresh.upgrade() == (INITIAL, revision)

    assert "note" in columns_of_cells(fresh)
    assert rows(fresh) == before
    fresh.prepare()
    check_log_continues(fresh)
    assert fresh.upgrade() == (revision, revision)


def test_a_migration_may_take_longer_than_a_statement_of_daily_work(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch, next_version: Callable[[], str]
) -> None:
    def rewrite(config: Config, revision: str) -> None:
        config.attributes["connection"].execute(sa.text("SELECT pg_sleep(0.5)"))
        upgrade(config, revision)

    upgrade = command.upgrade
    monkeypatch.setattr(command, "upgrade", rewrite)
    database = Database(f"{fresh_postgres_url}?options=-c%20statement_timeout%3D0.3s")
    database.prepare()
    with pytest.raises(StoreError, match="statement timeout"), database.write() as connection:
        connection.execute(sa.text("SELECT pg_sleep(0.5)"))
    revision = next_version()
    assert database.upgrade() == (INITIAL, revision)
    database.close()


def test_many_that_upgrade_a_database_at_once_all_succeed(
    database_url: str, fresh: Database, next_version: Callable[[], str]
) -> None:
    fresh.prepare()
    revision = next_version()
    start = threading.Barrier(4)

    def upgrade(_: int) -> str:
        with closing(Database(database_url)) as database:
            start.wait(timeout=60)
            return database.upgrade()[1]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(upgrade, range(4))) == [revision] * 4
    fresh.prepare()


def test_tables_beside_those_of_wtb_do_not_matter(fresh: Database, next_version: Callable[[], str]) -> None:
    fresh.prepare()
    with fresh.write() as connection:
        connection.execute(sa.text("CREATE TABLE mine (id INTEGER)"))

    revision = next_version()

    assert fresh.upgrade() == (INITIAL, revision)


def test_a_database_from_before_the_first_release_is_told_where_it_still_opens(fresh: Database) -> None:
    fresh.prepare()
    before = shape(fresh)
    for revision in ("0007", "0011", "1054"):
        stamp(fresh, revision)
        for use in (fresh.prepare, fresh.upgrade):
            with name_in_errors((revision, use)), pytest.raises(InputError) as refused:
                use()
            assert f"of version {revision}; this WTB expects {REVISION}" in str(refused.value)
            assert f"{TAG_OF_OLDER}, whose `wtb doctor` and `wtb retry` work on it" in str(refused.value)
            assert "\n" not in str(refused.value)
        assert fresh.revision() == revision
        assert shape(fresh) == before
    stamp(fresh, "9999")
    with pytest.raises(InputError, match=r"9999.*newer WTB"):
        fresh.upgrade()


def test_the_migrations_are_part_of_the_package() -> None:
    package = Path(sys.modules["wtb"].__file__ or "").parent
    assert {"env.py", "script.py.mako", "versions"} <= {path.name for path in MIGRATIONS.iterdir()}
    assert MIGRATIONS.is_relative_to(package)


def stamp(database: Database, revision: str) -> None:
    database.execute(sa.text("UPDATE alembic_version SET version_num = :r").bindparams(r=revision))


def write(message: str) -> Path:
    """Generate the migration that leads to REVISION."""
    assert REVISION != INITIAL, "raise REVISION first"
    for old in (MIGRATIONS / "versions").glob(f"{REVISION}_*.py"):
        old.unlink()
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    database = Database("sqlite://")
    with database.write() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        command.revision(config, message, autogenerate=True, rev_id=REVISION)
    (script,) = (MIGRATIONS / "versions").glob(f"{REVISION}_*.py")
    text = re.sub(r"\n    # ### .*", "", script.read_text())
    text = text.replace("sa.text('0')", "sa.false()").replace("sa.text('1')", "sa.true()")
    used = ", ".join(name for name in ("now", "transaction_number") if f"{name}()" in text)
    imported = "from wtb.store.tables.schema import now, transaction_number\n"
    script.write_text(
        text.replace(imported, imported if "," in used else used and f"from wtb.store.tables.schema import {used}\n")
    )
    for how in (["format"], ["check", "--fix"]):
        subprocess.run([sys.executable, "-m", "ruff", *how, "-q", str(script)], check=True)
    return script


def write_initial() -> list[Path]:
    """Write the statements of the initial migration, for each kind of database."""
    assert REVISION == INITIAL, "a published migration does not change"
    written = []
    for url in ("sqlite://", "postgresql+psycopg://"):
        statements: list[Any] = []
        engine = sa.create_mock_engine(url, lambda ddl, *_, into=statements: into.append(ddl))
        metadata.create_all(engine, checkfirst=False)
        texts = (str(ddl.compile(dialect=engine.dialect)).strip().splitlines() for ddl in statements)
        parts = ("\n".join(map(str.rstrip, lines)) for lines in texts)
        file = MIGRATIONS / "versions" / f"{INITIAL}_{engine.dialect.name}.sql"
        file.write_text("\n--\n".join(parts) + "\n", "utf-8")
        written.append(file)
    return written


if __name__ == "__main__":
    print(write(sys.argv[1]) if len(sys.argv) > 1 else write_initial())


def walls(database: Database) -> list[str]:
    """Return the policies and rights of roles, if the database has any."""
    if database.is_sqlite:
        return []
    policies = "SELECT tablename, policyname, roles::text, cmd, qual, with_check FROM pg_policies"
    rights = "SELECT grantee, table_name, privilege_type, '', '', '' FROM information_schema.role_table_grants"
    with database.read() as connection:
        return _rows(connection.execute(sa.text(f"{policies} UNION ALL {rights} WHERE table_schema = 'public'")))


def test_the_walls_of_a_version_are_back_with_it(fresh_postgres_url: str, tmp_path: Path) -> None:
    database = Database(fresh_postgres_url)
    database.prepare()
    tables, walled = shape(database), walls(database)
    backup = version_copies.keep_version(database, tmp_path)
    assert backup is not None
    assert version_copies.restore_version(database, backup) == REVISION
    assert walls(database) == walled
    assert shape(database) == tables
    database.prepare()
    database.close()


def test_an_upgrade_is_undone_by_the_copy_that_was_kept(
    fresh: Database, tmp_path: Path, next_version: Callable[[], str]
) -> None:
    """The copy restores the tables, all rows and the version, and the upgrade can be repeated."""
    fill(fresh)
    tables, before, walled = shape(fresh), rows(fresh), walls(fresh)
    revision = next_version()
    backup = version_copies.keep_version(fresh, tmp_path / "backups")
    assert backup is not None
    assert fresh.upgrade() == (INITIAL, revision)
    with fresh.write() as connection:
        connection.execute(sessions.insert().values(id="later", name="later"))

    assert version_copies.restore_version(fresh, backup) == INITIAL

    assert fresh.revision() == INITIAL
    assert (rows(fresh), shape(fresh), walls(fresh)) == (before, tables, walled)
    assert backup.stat().st_mode & 0o077 == 0
    assert fresh.upgrade() == (INITIAL, revision)
    fresh.prepare()
    check_log_continues(fresh)


def test_what_is_no_copy_changes_nothing(fresh: Database, tmp_path: Path) -> None:
    fresh.prepare()
    other = tmp_path / "other.db"
    other.write_bytes(b"no database at all")
    with pytest.raises(InputError, match=sentence("is no backup of a")):
        version_copies.restore_version(fresh, other)
    assert fresh.revision() == REVISION
