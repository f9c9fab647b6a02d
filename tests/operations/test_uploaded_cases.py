"""Cases in uploaded files: the file name selects the format, and only the uploader's projects read them."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from tests.support.prose import sentence
from wtb.core.errors import ConflictError, InputError
from wtb.core.ids import new_id
from wtb.operations.running import previews
from wtb.operations.running.previews import with_uploaded_cases
from wtb.store.access import requests
from wtb.store.access.requests import KEPT_S, NewUpload
from wtb.store.database import Database
from wtb.store.transactions import Scope


def send(database: Database, *parts: bytes, project: str = "default") -> str:
    digest = sha256(b"".join(parts)).hexdigest()
    new = NewUpload(new_id(), project, digest, "ann")
    requests.begin_upload(database, new)
    for number, part in enumerate(parts):
        requests.add_part(database, new, number, part)
    requests.complete_upload(database, new)
    return digest


def read(database: Database, digest: str, name: str) -> Any:
    cases: Any = with_uploaded_cases(database, {"cases": {"upload": digest, "name": name}})["cases"]
    return cases


def test_a_file_that_came_in_parts_is_read_as_one(database: Database) -> None:
    digest = send(database, b'{"input": {"x"', b": 1}}\n", b'{"input": {"x": 2}}\n')
    assert read(database, digest, "cases.jsonl") == [{"input": {"x": 1}}, {"input": {"x": 2}}]


def test_a_list_and_columns_are_read_by_the_ending_of_the_name(database: Database) -> None:
    assert read(database, send(database, b'[{"input": {}}]'), "cases.JSON") == [{"input": {}}]
    digest = send(database, b"ID;x\na;1\n")
    assert read(database, digest, "cases.csv") == {"headings": ["ID", "x"], "rows": [["a", "1"]]}


def test_what_is_wrong_is_told_by_its_line_and_the_name_that_it_was_sent_as(database: Database) -> None:
    digest = send(database, b"{}\n{nonsense\n")
    with pytest.raises(InputError, match=r"^mine\.jsonl:2: ") as failure:
        read(database, digest, "mine.jsonl")
    assert failure.value.argument == "keys"


@pytest.mark.parametrize(
    "cases", [{"upload": "0" * 64}, {"upload": 1, "name": "a.csv"}, {"upload": "0" * 64, "name": "a.exe"}, {}]
)
def test_what_names_no_upload_is_refused_with_what_is_expected(database: Database, cases: object) -> None:
    with pytest.raises(InputError, match=r"expected a list of cases, or \{upload: SHA-256, name: FILE\}"):
        with_uploaded_cases(database, {"cases": cases})


def test_no_more_cases_are_read_than_an_upload_may_have(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previews, "MOST_CASES", 3)
    assert len(read(database, send(database, b"{}\n" * 3), "cases.jsonl")) == 3
    digest = send(database, b"{}\n" * 4 + b"which is not looked at\n" * 20)
    with pytest.raises(InputError, match=r"^cases: mine\.jsonl has more than 3 cases, which is the limit$"):
        read(database, digest, "mine.jsonl")


def test_an_upload_of_another_project_is_not_there(database: Database) -> None:
    digest = send(database, b"[]", project="zebras")
    with pytest.raises(InputError, match=sentence("there is no upload")):
        read(database.within(Scope(frozenset({"quokka"}))), digest, "cases.json")
    assert read(database.within(Scope(frozenset({"zebras"}))), digest, "cases.json") == []


def test_an_upload_that_is_sent_again_while_it_is_read_is_read_whole(database: Database) -> None:
    parts = [b"x\n", b"1\n", b"2\n"]
    upload = requests.find_upload(database, send(database, *parts))
    assert upload is not None
    reading = requests.read_upload(database, upload)
    first_parts = [next(reading)]
    send(database, *parts)
    assert [*first_parts, *reading] == parts
    second = requests.find_upload(database, upload.digest)
    assert second is not None
    assert second.id == upload.id
    assert second.created_at > upload.created_at
    assert database.scalar(requests.sa.select(requests.sa.func.count()).select_from(requests.uploads)) == 1


def test_an_upload_that_is_removed_before_it_is_read_is_no_shorter_file(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = send(database, b"x\n", b"1\n", b"2\n")
    upload = requests.find_upload(database, digest)
    database.execute(requests.upload_parts.delete().where(requests.upload_parts.c.number == 2))
    monkeypatch.setattr("wtb.operations.running.previews.find_upload", lambda *_: upload)
    with pytest.raises(ConflictError, match=sentence("was removed while it was read; send the file again")):
        read(database, digest, "cases.csv")
    database.execute(requests.uploads.delete())
    with pytest.raises(ConflictError, match=sentence("was removed while it was read; send the file again")):
        read(database, digest, "cases.csv")


def test_an_upload_of_more_than_a_day_ago_is_not_found(database: Database) -> None:
    digest = send(database, b"[]")
    database.execute(requests.uploads.update().values(created_at=requests.uploads.c.created_at - KEPT_S - 1))
    assert requests.find_upload(database, digest) is None


def test_uploads_of_a_project_are_limited_and_removed_after_a_day(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "QUOTA_BYTES", 10)
    first = send(database, b"[       ]")
    with pytest.raises(ConflictError, match=sentence("would take more than {} bytes", 10)):
        send(database, b"[1]")
    send(database, b"[1]", project="zebras")
    aged = requests.uploads.c.created_at - KEPT_S - 1
    database.execute(requests.uploads.update().values(created_at=aged))
    second = send(database, b"[2]")
    assert requests.find_upload(database, first) is None
    assert requests.find_upload(database, second) is not None
    assert database.scalar(requests.sa.select(requests.sa.func.count()).select_from(requests.upload_parts)) == 1
