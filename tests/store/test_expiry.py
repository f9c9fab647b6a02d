"""Uploads, operations and responses are kept for a day, in all projects."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from wtb.operations.context import Context
from wtb.operations.garbage_collection import collect
from wtb.store.access.requests import (
    KEPT_S,
    Claim,
    NewOperation,
    NewUpload,
    begin_operation,
    begin_upload,
    end_operation,
    keep_answer,
)
from wtb.store.database import Database
from wtb.store.tables.schema import idempotency_keys, operations, uploads
from wtb.store.transactions import Scope

TIMES = {table: table.c.created_at for table in (uploads, idempotency_keys)} | {operations: operations.c.began_at}


def keep_one_of_each(database: Database) -> None:
    begin_upload(database, NewUpload("u", "default", "0" * 64, "ann"))
    begin_operation(database, NewOperation("o", "sweeps.compare", "ann"))
    end_operation(database, "o", 200, None, "{}")
    with database.write() as connection:
        Claim("d", "r").store(connection)
    keep_answer(database, "d", 200, None, "{}")


def age(database: Database, seconds: float) -> None:
    for table, column in TIMES.items():
        database.execute(table.update().values({column: column - seconds}))


def counted(database: Database) -> list[int | None]:
    return [database.scalar(sa.select(sa.func.count()).select_from(table)) for table in TIMES]


def test_a_collection_removes_what_has_been_kept_for_a_day(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keep_one_of_each(database)
    age(database, KEPT_S - 60)
    collect(Context(database, files=tmp_path / "files"))
    assert counted(database) == [1, 1, 1]
    age(database, 61)
    collect(Context(database, files=tmp_path / "files"))
    assert counted(database) == [0, 0, 0]


@pytest.mark.parametrize("began", ["an upload", "an operation", "an answer"])
def test_whatever_is_begun_removes_what_is_old_of_all_kinds_and_projects(database: Database, began: str) -> None:
    keep_one_of_each(database)
    age(database, KEPT_S + 1)
    limited = database.within(Scope(frozenset({"zebras"})))
    if began == "an upload":
        begin_upload(limited, NewUpload("new", "zebras", "0" * 64, "ann"))
    elif began == "an operation":
        begin_operation(limited, NewOperation("new", "sweeps.compare", "ann"))
    else:
        keep_answer(limited, "of no key", 200, None, "{}")
    kinds = ["an upload", "an answer", "an operation"]
    assert counted(database) == [int(kind == began and kind != "an answer") for kind in kinds]
