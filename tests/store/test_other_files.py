"""Files that are no database of this WTB: of other programs, of later versions, and on disks that only are read."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support.inputs import name_in_errors
from wtb.core.errors import InputError, StoreError
from wtb.store.database import Database
from wtb.store.tables.schema import projects


def url(path: Path) -> str:
    return f"sqlite:///{path}"


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize("name", ["users", "alembic_version", "sessions"])
def test_a_file_of_another_program_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    file = tmp_path / "other.db"
    execute(file, f"CREATE TABLE {name} (version_num TEXT)", f"INSERT INTO {name} VALUES ('ae1027a6acf')")
    content = file.read_bytes()
    for verb in (Database.prepare, Database.upgrade):
        refusal = pytest.raises(InputError, match=f"belongs to another program: it has the table '{name}'")
        with name_in_errors(verb), closing(Database(url(file))) as database, refusal:
            verb(database)
    assert file.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["other.db"]


def test_a_database_on_a_disk_that_is_only_read_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a #1?.db"
    database = Database(sa.URL.create("sqlite", database=str(file)).render_as_string())
    database.prepare()
    database.close()
    content = file.read_bytes()
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # as of a disk that is mounted read-only
    database = Database(sa.URL.create("sqlite", database=str(file)).render_as_string())
    database.prepare()
    assert database.scalars(sa.select(projects.c.name)) == ["default"]
    with pytest.raises(StoreError, match="readonly"):
        database.execute(projects.insert().values(name="other", created_by="me"))
    database.close()
    assert file.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
