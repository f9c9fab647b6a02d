"""The tables that the migrations lead to are those of the schema.

After a change of wtb/store/tables/sweeps.py that no release has yet, write the newest migration again with

    python tests/integration/test_migrations.py first

and look at the difference. After a release, raise REVISION in the schema before, and the same command with another
word (`... add_queue`) writes the migration that leads there from the one before it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from wtb.core.errors import InputError, StoreError
from wtb.store.database import DEFAULT_SESSION, MIGRATIONS, Database
from wtb.store.tables.sweeps import REVISION, metadata, schedules, sessions, sweeps

ON_POSTGRESQL = {
    "columns": """
        SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, column_default,
               is_identity, identity_generation
        FROM information_schema.columns WHERE table_schema = 'public'""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, contype::text, pg_get_constraintdef(oid), condeferrable, condeferred
        FROM pg_constraint WHERE connamespace = 'public'::regnamespace""",
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
            return {name: sorted(map(str, connection.execute(sa.text(query)))) for name, query in ON_POSTGRESQL.items()}
        made = connection.execute(sa.text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
        return {name: _parts(sql) for name, sql in made}


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
    return [head.strip(), *sorted(" ".join(part.split()) for part in parts)]


OLD_SCHEDULE = """
    INSERT INTO schedules (id, session_id, name, status, file, folder, cron, tz, missed, queued, tolerance, notify)
    VALUES ('c', 'default', 'c', 'paused', 'f', '.', '0 3 * * *', 'UTC', 'once', false, '{"f1": 0.1}', '{}')"""


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


def test_what_was_stored_with_the_earlier_word_for_margins_is_read(fresh: Database) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    spec = {"sweep": "s", "tolerance": {"ndcg": 0.02}}
    columns = "id, session_id, workflow_id, name, status, spec, fingerprints, cells"
    fires = "schedule_id, fire_at, status, verdict, sweep_id"
    with fresh.write(long=True) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0009")
        for statement, values in (
            ("INSERT INTO workflows (id, name, version, graph) VALUES ('w', 'w', '1', '{}')", {}),
            (f"INSERT INTO sweeps ({columns}) VALUES ('s', 'default', 'w', 's', 'completed', :spec, '{{}}', 1)", spec),
            (
                f"INSERT INTO sweeps ({columns}) VALUES ('t', 'default', 'w', 't', 'completed', :spec, '{{}}', 1)",
                {"a": 1},
            ),
        ):
            connection.execute(sa.text(statement), {"spec": json.dumps(values)} if values else {})
        connection.execute(sa.text(OLD_SCHEDULE))
        connection.execute(sa.text(f"INSERT INTO fires ({fires}) VALUES ('c', 1.5, 'judged', 'unclear', 's')"))
    fresh.upgrade()
    with fresh.write() as connection:
        stored = dict(connection.execute(sa.select(sweeps.c.id, sweeps.c.spec)).all())  # type: ignore[arg-type]
        assert stored == {"s": {"sweep": "s", "margin": {"ndcg": 0.02}}, "t": {"a": 1}}
        assert connection.scalars(sa.select(schedules.c.margin)).all() == [{"f1": 0.1}]
        assert connection.execute(sa.text(f"SELECT {fires} FROM fires")).all() == [("c", 1.5, "judged", "unclear", "s")]
        connection.execute(sa.text("UPDATE fires SET verdict = 'not worse'"))


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


def rewrite(message: str) -> Path:
    """Generate the migration that leads to REVISION; the first one also makes the default session."""
    import subprocess

    for old in (MIGRATIONS / "versions").glob(f"{REVISION}_*.py"):
        old.unlink()
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    database = Database("sqlite://")
    with database.write() as connection:
        config.attributes["connection"] = connection
        heads = ScriptDirectory(str(MIGRATIONS)).get_heads()
        if heads:
            command.upgrade(config, "head")
        command.revision(config, message, autogenerate=True, rev_id=REVISION)
    (made,) = (MIGRATIONS / "versions").glob(f"{REVISION}_*.py")
    text = re.sub(r"\n    # ### .*", "", made.read_text())
    text = text.replace("sa.text('0')", "sa.false()")
    if not heads:
        insert = f"op.execute(\"INSERT INTO sessions (id, name) VALUES ('{DEFAULT_SESSION}', '{DEFAULT_SESSION}')\")"
        text = text.replace("\n\n\ndef downgrade", f"\n    {insert}\n\n\ndef downgrade")
    used = ", ".join(name for name in ("now", "transaction_number") if f"{name}()" in text)
    imported = "from wtb.store.tables.sweeps import now, transaction_number\n"
    made.write_text(
        text.replace(imported, imported if "," in used else used and f"from wtb.store.tables.sweeps import {used}\n")
    )
    for how in (["format"], ["check", "--fix"]):
        subprocess.run([sys.executable, "-m", "ruff", *how, "-q", str(made)], check=True)
    return made


if __name__ == "__main__":
    print(rewrite(sys.argv[1]))
