"""The tables that the migrations lead to are those of the schema.

After a change of wtb/store/tables, raise REVISION and write the migration that leads there with

    python -m tests.store.test_migrations add_queue

then look at it: what its rows need is yours to write. Run again, the command replaces a migration that nobody has yet.
The initial migration stays as it is.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from tests import old_databases
from tests.support.prose import sentence
from wtb.core.errors import InputError, StoreError
from wtb.store.database import DEFAULT_SESSION, MIGRATIONS, Database
from wtb.store.events import add_event, subject
from wtb.store.housekeeping import version_copies
from wtb.store.read import queries
from wtb.store.squashed import INITIAL, LAST, OLDER
from wtb.store.tables.schema import REVISION, events, metadata, sessions

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
        made = connection.execute(sa.text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
        return {name: _parts(sql) for name, sql in made}


def _rows(found: sa.CursorResult[Any]) -> list[str]:
    return sorted(str(tuple(row)) for row in found)  # a row by itself leaves out what is long


def _parts(sql: str) -> list[str]:
    """The columns and constraints of a CREATE TABLE; their order and spacing say nothing."""
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


def test_a_fresh_schema_equals_the_migrated_one(both: tuple[Database, Database]) -> None:
    fresh, migrated = both

    fresh.prepare()
    assert migrated.upgrade() == (None, REVISION)

    assert shape(migrated) == shape(fresh)
    assert shape(fresh)


def test_alembic_finds_nothing_left_to_migrate(fresh: Database) -> None:
    fresh.upgrade()

    with fresh.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_the_checks_of_the_schema_are_in_the_migrated_database(fresh: Database) -> None:
    fresh.upgrade()

    inspected = sa.inspect(fresh.engine)
    for table in metadata.tables.values():
        wanted = {str(check.name) for check in table.constraints if isinstance(check, sa.CheckConstraint)}
        assert {check["name"] for check in inspected.get_check_constraints(table.name)} == wanted


def test_the_newest_migration_is_the_revision_that_the_schema_names() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_heads() == [REVISION]


def test_a_migrated_database_is_ready_to_use(fresh: Database) -> None:
    fresh.upgrade()

    fresh.prepare()

    assert fresh.revision() == REVISION
    with fresh.read() as connection:
        assert connection.execute(sa.select(sessions.c.id, sessions.c.name)).all() == [(DEFAULT_SESSION,) * 2]


def test_upgrading_what_is_up_to_date_changes_nothing(fresh: Database) -> None:
    fresh.prepare()
    before = shape(fresh)

    assert fresh.upgrade() == (REVISION, REVISION)

    assert shape(fresh) == before


def test_a_migration_may_take_longer_than_a_statement_of_daily_work(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rewrite(config: Config, revision: str) -> None:
        config.attributes["connection"].execute(sa.text("SELECT pg_sleep(0.5)"))
        upgrade(config, revision)

    upgrade = command.upgrade
    monkeypatch.setattr(command, "upgrade", rewrite)
    database = Database(f"{fresh_postgres_url}?options=-c%20statement_timeout%3D0.3s")
    with pytest.raises(StoreError, match="statement timeout"), database.write() as connection:
        connection.execute(sa.text("SELECT pg_sleep(0.5)"))
    assert database.upgrade() == (None, REVISION)
    database.close()


def rows(database: Database) -> dict[str, list[str]]:
    """All that a database holds, by table: what says something, since migrations add columns, empty at first.

    What has no project before has the default one afterwards.
    """
    with database.read() as connection:
        tables = [name for name in sa.inspect(connection).get_table_names() if name != "alembic_version"]
        found = {name: connection.execute(sa.text(f'SELECT * FROM "{name}"')).mappings().all() for name in tables}
    said = {
        name: [
            {key: value for key, value in row.items() if value is not None and (key, value) != ("project", "default")}
            for row in rows
        ]
        for name, rows in found.items()
    }
    firsts = {run["id"]: run for run in said["node_runs"] if "begun_at" in run}
    said["attempts"] += [  # as they were before their node runs described them
        {
            "node_run_id": id,
            "number": 1,
            "status": "succeeded",
            "started_at": run.pop("begun_at"),
            **{name: run[name] for name in ("duration_s", "usd", "tokens_in", "tokens_out", "fingerprint")},
            **{name: run.pop(name) for name in ("stdout", "stderr") if name in run},
        }
        for id, run in firsts.items()
    ]
    return {name: sorted(map(str, rows)) for name, rows in said.items() if rows}


def adopted(shape: dict[str, Any]) -> dict[str, list[str]]:
    """A shape as an adopted database has it: it keeps its comments.

    A dump that was restored has PostgreSQL write the types of lists in conditions elsewhere.
    """
    casts = re.compile(r"::(?:character varying|text)(?:\[\])?|[()]")
    return {name: [casts.sub("", part) for part in parts] for name, parts in shape.items() if name != "comments"}


def test_a_filled_database_of_the_last_migration_before_the_initial_one_keeps_every_row(
    both: tuple[Database, Database],
) -> None:
    fresh, old = both
    fresh.upgrade()
    old_databases.restore(old.url.render_as_string(hide_password=False))
    before = rows(old)
    assert len(before["cells"]) == 9  # of a sweep, and of a single execution

    assert old.upgrade() == (LAST, REVISION)

    (made,) = (found := rows(old)).pop("projects")
    assert "'name': 'default'" in made
    (look,) = found.pop("looks")
    assert "'cases': 2" in look, "the sweep counts for later ones, and the single execution does not"
    assert found == before
    assert adopted(shape(old)) == adopted(shape(fresh))
    old.prepare()
    the_log_goes_on(old)
    assert old.upgrade() == (REVISION, REVISION)


def the_log_goes_on(database: Database) -> None:
    """A follower that has seen all events of before the migration sees what comes after, and nothing twice."""
    with database.read() as connection:
        wanted = connection.execute(sa.select(events.c.id, events.c.sweep_id).order_by(events.c.id)).all()
    sweep_id = wanted[-1].sweep_id
    seen = queries.event_rows(database, sweep_id)
    assert [row["id"] for row in seen] == [row.id for row in wanted if row.sweep_id == sweep_id]

    with database.write() as connection:
        add_event(connection, subject("default", sweep_id), "sweep.pinned", {})

    (new,) = queries.event_rows(database, sweep_id, after=(seen[-1]["transaction"], seen[-1]["id"]))
    assert new["kind"] == "sweep.pinned"


def test_many_that_upgrade_an_old_database_at_once_all_succeed(database_url: str) -> None:
    old_databases.restore(database_url)
    upgraded: list[str] = []
    start = threading.Barrier(4)

    def upgrade() -> None:
        database = Database(database_url)
        start.wait(timeout=30)
        upgraded.append(database.upgrade()[1])
        database.close()

    threads = [threading.Thread(target=upgrade) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert upgraded == [REVISION] * 4
    database = Database(database_url)
    database.prepare()
    database.close()


@pytest.mark.parametrize(
    ("change", "differing"),
    [
        ("DROP TABLE alerts", sentence("table {} is missing", "alerts")),
        ("ALTER TABLE metrics DROP COLUMN on_failure", "column on_failure of metrics is missing"),
        ("ALTER TABLE metrics ADD COLUMN mine INTEGER", "column mine of metrics was added"),
        ("DROP INDEX ix_fires_open", "index ix_fires_open of fires is missing"),
        ("CREATE UNIQUE INDEX mine ON metrics (sweep_id)", "index mine of metrics was added"),
        (
            "ALTER TABLE cells RENAME COLUMN usd TO eur",
            "column eur of cells was added, column usd of cells is missing",
        ),
    ],
)
def test_an_old_database_that_somebody_changed_is_refused_with_what_differs(
    sqlite_url: str, change: str, differing: str
) -> None:
    old_databases.restore(sqlite_url)
    database = Database(sqlite_url)
    with database.write() as connection:
        connection.execute(sa.text(change))
    before = shape(database), rows(database)

    with pytest.raises(
        StoreError, match=f"of version {LAST}, but not as WTB made it: {differing}; nothing was changed"
    ):
        database.upgrade()

    assert database.revision() == LAST
    assert (shape(database), rows(database)) == before
    database.close()


def test_types_defaults_and_checks_count_and_comments_do_not(fresh_postgres_url: str) -> None:
    old_databases.restore(fresh_postgres_url)
    database = Database(fresh_postgres_url)
    with database.write() as connection:
        for change in (
            "ALTER TABLE cases ALTER COLUMN tags TYPE json",
            "ALTER TABLE fires ALTER COLUMN tries SET DEFAULT 1",
            "ALTER TABLE fires DROP CONSTRAINT ck_fires_verdict",
            "ALTER TABLE fires ADD CONSTRAINT ck_fires_verdict CHECK (verdict IN ('better'))",
            "ALTER TABLE sweeps ALTER COLUMN name DROP NOT NULL",
            "COMMENT ON COLUMN sweeps.name IS 'for people'",
        ):
            connection.execute(sa.text(change))
    before = shape(database)

    differing = (
        "column tags of cases differs, check ck_fires_verdict of fires differs, column tries of fires differs "
        "and 1 more"
    )
    with pytest.raises(StoreError, match=differing):
        database.upgrade()

    assert database.revision() == LAST
    assert shape(database) == before
    database.close()


def test_tables_beside_those_of_wtb_do_not_matter(database_url: str, fresh: Database) -> None:
    old_databases.restore(database_url)
    with fresh.write() as connection:
        connection.execute(sa.text("CREATE TABLE mine (id INTEGER)"))

    assert fresh.upgrade() == (LAST, REVISION)


@pytest.mark.parametrize("revision", sorted(OLDER))
def test_an_older_database_is_refused_with_what_to_do(sqlite_url: str, revision: str) -> None:
    database = Database(sqlite_url)
    stamp(database, revision)

    with pytest.raises(InputError, match=f"of version {revision}.*upgrade it to {LAST} with an earlier WTB first"):
        database.upgrade()

    assert database.revision() == revision
    database.close()


def test_a_database_of_another_version_is_refused_and_told_how_to_upgrade(fresh: Database) -> None:
    stamp(fresh, "0000")

    with pytest.raises(InputError, match=f"of version 0000; this WTB expects {REVISION}: run `wtb db upgrade`"):
        fresh.prepare()


def test_a_database_of_a_newer_version_cannot_be_upgraded(fresh: Database) -> None:
    stamp(fresh, "9999")

    with pytest.raises(InputError, match=r"9999.*newer WTB"):
        fresh.upgrade()


def test_the_migrations_are_part_of_the_package() -> None:
    package = Path(sys.modules["wtb"].__file__ or "").parent
    assert {"env.py", "script.py.mako", "versions"} <= {path.name for path in MIGRATIONS.iterdir()}
    assert MIGRATIONS.is_relative_to(package)


def stamp(database: Database, revision: str) -> None:
    database.prepare()
    with database.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :r"), {"r": revision})


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
    (made,) = (MIGRATIONS / "versions").glob(f"{REVISION}_*.py")
    text = re.sub(r"\n    # ### .*", "", made.read_text())
    text = text.replace("sa.text('0')", "sa.false()").replace("sa.text('1')", "sa.true()")
    used = ", ".join(name for name in ("now", "transaction_number") if f"{name}()" in text)
    imported = "from wtb.store.tables.schema import now, transaction_number\n"
    made.write_text(
        text.replace(imported, imported if "," in used else used and f"from wtb.store.tables.schema import {used}\n")
    )
    for how in (["format"], ["check", "--fix"]):
        subprocess.run([sys.executable, "-m", "ruff", *how, "-q", str(made)], check=True)
    return made


if __name__ == "__main__":
    print(write(sys.argv[1]))


def unordered(found: dict[str, list[str]]) -> dict[str, list[list[str]]]:
    """Rows without the order of their columns."""
    return {name: sorted(sorted(row[2:-1].split(", '")) for row in listed) for name, listed in found.items()}


def walls(database: Database) -> list[str]:
    """The policies and rights of roles, where a database has any."""
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
    kept = version_copies.keep_version(database, tmp_path)
    assert kept is not None
    assert version_copies.restore_version(database, kept) == REVISION
    assert walls(database) == walled
    assert shape(database) == tables
    database.prepare()
    database.close()


def test_an_upgrade_is_undone_by_the_copy_that_was_kept(database_url: str, tmp_path: Path) -> None:
    """The tables, all rows and the version are those of before, and the way forward is open again."""
    old_databases.restore(database_url)
    database = Database(database_url)
    tables, filled, walled = shape(database), rows(database), walls(database)
    kept = version_copies.keep_version(database, tmp_path / "backups")
    assert kept is not None
    assert database.upgrade() == (LAST, REVISION)
    with database.write() as connection:
        connection.execute(sessions.insert().values(id="later", name="later"))

    assert version_copies.restore_version(database, kept) == LAST

    assert database.revision() == LAST
    assert unordered(rows(database)) == unordered(filled)  # of that version the initial migration orders columns anew
    assert adopted(shape(database)) == adopted(tables)
    assert walls(database) == walled
    assert kept.stat().st_mode & 0o077 == 0
    assert database.upgrade() == (LAST, REVISION)
    database.prepare()
    the_log_goes_on(database)
    database.close()


def test_what_is_no_copy_changes_nothing(fresh: Database, tmp_path: Path) -> None:
    fresh.prepare()
    other = tmp_path / "other.db"
    other.write_bytes(b"no database at all")
    with pytest.raises(InputError, match=sentence("is no backup of a")):
        version_copies.restore_version(fresh, other)
    assert fresh.revision() == REVISION
