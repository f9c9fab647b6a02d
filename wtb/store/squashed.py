"""Databases of early development, from before one initial migration took the place of eleven.

The last of the eleven led to the tables that the initial migration makes. So a database that stands there is not
changed: it is checked, and takes the name of the new version. An older one needs a WTB that has those migrations.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy.engine.reflection import Inspector, ObjectScope

from wtb.store.tables.schema import metadata

INITIAL = "1000"
LAST = "0011"  # of the migrations that it took the place of
OLDER = frozenset(f"{number:04}" for number in range(1, 11))

_SHOWN = 3  # differences that a message names
_PARTS: dict[str, Callable[..., dict[Any, Any]]] = {
    "column": Inspector.get_multi_columns,
    "primary key": Inspector.get_multi_pk_constraint,
    "foreign key": Inspector.get_multi_foreign_keys,
    "unique constraint": Inspector.get_multi_unique_constraints,
    "check": Inspector.get_multi_check_constraints,
    "index": Inspector.get_multi_indexes,
}

# Where PostgreSQL writes the types of lists in a condition. After a dump was restored it writes them elsewhere.
_CASTS = re.compile(r"::(?:character varying|text)(?:\[\])?|[()]")

# table -> part of it, such as "column id" -> its definition
Tables = dict[str, dict[str, str]]


def adopt(connection: sa.Connection, migrations: str) -> str | None:
    """Name the version of a database at LAST anew, where its tables are those of the initial migration.

    Args:
        connection: in a transaction that writes, and that nobody else migrates the database in.
        migrations: the folder of the migrations.

    Returns: what differs; None where the database took the new version.
    """
    differing = _differences(_tables(connection), _initial_tables(connection, migrations))
    if differing:
        more = len(differing) - _SHOWN
        return ", ".join(differing[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    connection.execute(sa.text("UPDATE alembic_version SET version_num = :initial"), {"initial": INITIAL})
    return None


def _differences(present: Tables, expected: Tables) -> list[str]:
    """What somebody would have to change. Tables that are not WTB's are nobody's business."""
    differing = []
    for table, parts in sorted(expected.items()):
        if table not in present:
            differing.append(f"table {table} is missing")
            continue
        for part in sorted({*parts, *present[table]}):
            if part not in present[table]:
                differing.append(f"{part} of {table} is missing")
            elif part not in parts:
                differing.append(f"{part} of {table} was added")
            elif present[table][part] != parts[part]:
                differing.append(f"{part} of {table} differs")
    return differing


def _initial_tables(connection: sa.Connection, migrations: str) -> Tables:
    """The tables that the initial migration makes on this kind of database. It is left as it was."""
    if connection.dialect.name == "sqlite":
        with sa.create_engine("sqlite://", poolclass=sa.NullPool).connect() as scratch:
            _migrate(scratch, migrations)
            return _tables(scratch)
    with connection.begin_nested() as savepoint:
        # Temporary tables hide the real ones, need no right to make a schema, and go with the savepoint.
        connection.execute(sa.text("SET LOCAL search_path = pg_temp"))
        _migrate(connection, migrations)
        made = _tables(connection)
        savepoint.rollback()
    return made


def _migrate(connection: sa.Connection, migrations: str) -> None:
    script = ScriptDirectory(migrations).get_revision(INITIAL)
    with Operations.context(MigrationContext.configure(connection, opts={"target_metadata": metadata})):
        script.module.upgrade()


def _tables(connection: sa.Connection) -> Tables:
    """The tables that a statement would find which names no schema."""
    inspector = sa.inspect(connection)
    tables: Tables = defaultdict(dict)
    for kind, read in _PARTS.items():
        for (_, table), parts in read(inspector, scope=ObjectScope.ANY).items():
            for part in parts if isinstance(parts, list) else [parts]:
                tables[table][f"{kind} {part['name']}"] = _definition(part)
    return tables


def _definition(part: Any) -> str:
    """A definition as text that can be compared. Comments do not count: they are for people."""
    if isinstance(part, dict):
        return str({key: _definition(part[key]) for key in sorted(part) if key not in ("name", "comment")})
    return _CASTS.sub("", str(part))
