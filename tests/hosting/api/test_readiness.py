"""Anybody can read whether a server is ready to work, and nothing confidential."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from tests.hosting.api.serving import TOKEN
from tests.support.prose import sentence
from wtb.core.errors import StoreAway
from wtb.hosting.api import app as application
from wtb.hosting.api.routes import PREFIX
from wtb.operations.context import Context
from wtb.store.database import Database

READY = f"{PREFIX}/ready"


@pytest.fixture
def client(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setattr(application, "_READY_S", -1.0)  # what was known is asked again
    return TestClient(application.make_app(Context(database, files=tmp_path), token=TOKEN, hosts=["testserver"]))


def test_it_is_ready_while_its_database_answers_at_its_version(client: TestClient, database: Database) -> None:
    assert client.get(READY).json()["status"] == "ready"
    with database.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))
    refused = client.get(READY)
    assert refused.status_code == 503
    assert sentence("is of version {}; this server expects", "0001") in refused.json()["detail"]
    assert client.get(f"{PREFIX}/health").status_code == 200, "it answers all the same"


def test_whose_database_is_away_says_so_and_not_which_it_is(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: Database) -> str:
        raise StoreAway("database postgresql://wtb@db.example/wtb: connection lost")

    monkeypatch.setattr(Database, "revision", away)
    refused = client.get(READY)
    assert (refused.status_code, refused.json()["detail"]) == (503, sentence("the database is out of reach"))


def test_its_database_is_asked_once_a_second_at_most(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = []
    revision = Database.revision
    monkeypatch.setattr(Database, "revision", lambda self: queries.append(self) or revision(self))
    monkeypatch.setattr(application, "_READY_S", 60.0)
    client = TestClient(application.make_app(Context(database, files=tmp_path), token=TOKEN, hosts=["testserver"]))
    assert {client.get(READY).status_code for _ in range(20)} == {200}
    assert len(queries) == 1
