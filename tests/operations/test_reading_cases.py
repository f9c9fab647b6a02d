"""Files of cases are previewed as a sweep reads them, and each problem is reported once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.planning.test_workbooks import book
from tests.support.prose import sentence
from wtb import Bench, Workflow
from wtb import open as open_bench
from wtb.core.errors import InputError
from wtb.core.ids import new_id
from wtb.operations.context import Context
from wtb.operations.running.previews import read_case_file
from wtb.store.access import requests
from wtb.store.access.requests import NewUpload

SHEET = [
    ["ID", "Question ", "Expected Answer", "Area"],
    ["a", "1 + 1?", "2", "easy"],
    [None, None, None, None],
    ["b", "2 + 2?", "4", None],
]


class State(BaseModel):
    question: str
    times: int = 1
    answer: str = ""


def shop() -> Workflow:
    """A workflow whose state has types."""
    wf = Workflow("shop", state=State)
    wf.entry(wf.node(lambda state: {"answer": state.question}, name="answer"))
    return wf


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with open_bench(f"sqlite:///{tmp_path}/wtb.db") as new_bench:
        yield new_bench


@pytest.fixture
def shop_path(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys.modules[__name__], "wf", shop(), raising=False)
    return f"{__name__}:wf"


def served(bench: Bench) -> Context:
    """Return the context of a server, which imports nothing and reads no files."""
    return Context(bench.database, imports=False)


def send(bench: Bench, content: bytes) -> str:
    digest = sha256(content).hexdigest()
    new = NewUpload(new_id(), "default", digest, "ann")
    requests.begin_upload(bench.database, new)
    requests.add_part(bench.database, new, 0, content)
    requests.complete_upload(bench.database, new)
    return digest


@pytest.mark.parametrize("name", ["c.xlsx", "c.csv"])
def test_headings_that_are_no_keys_are_offered_and_blank_rows_counted(
    bench: Bench, shop_path: str, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    if file.suffix == ".xlsx":
        book(file, SHEET)
    else:
        file.write_text("\n".join(";".join(cell or "" for cell in row) for row in SHEET))
    document = bench.read_case_file(file, workflow=shop_path)
    assert (document["name"], document["cases"], document["blank_rows"], document["problems"]) == (name, 2, 1, [])
    assert document["mapping"] == {"expected": "Expected Answer", "ignore": ["Area"]}
    columns = [(column["heading"], column["key"], column["offered"]) for column in document["columns"] or ()]
    assert columns == [
        ("ID", "id", False),
        ("Question", "question", False),
        ("Expected Answer", "expected", True),
        ("Area", "ignore", True),
    ]
    assert document["preview"][1] == {"id": "b", "input": {"question": "2 + 2?"}, "expected": "4", "tags": []}
    second = bench.read_case_file(
        file, workflow=shop_path, columns={**document["mapping"], "id": "Area", "ignore": ["ID"]}
    )
    assert [case["id"] for case in second["preview"]] == ["easy", "2"]
    assert not any(column["offered"] for column in second["columns"] or ()), "the mapping is whole"


def test_each_problem_is_named_once_with_the_line_of_the_file(bench: Bench, shop_path: str, tmp_path: Path) -> None:
    file = tmp_path / "c.csv"
    rows = "".join(f"q{number},{'many' if number > 2 else 1}\n" for number in range(1, 51))
    file.write_text("question,times\n" + rows + "q0\n")
    document = bench.read_case_file(file, workflow=shop_path)
    assert document["cases"] == 50, "one of them cannot be read"
    assert len(document["problems"]) == 2, document["problems"]
    assert document["problems"][0].startswith("c.csv:4 and 47 more: key 'times'")
    assert "1 value; expected 2" in document["problems"][1]


def test_two_columns_of_one_key_are_a_problem_and_still_shown(bench: Bench, shop_path: str, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("question,QUESTION\na,b\n")
    document = bench.read_case_file(tmp_path / "c.csv", workflow=shop_path)
    assert [column["key"] for column in document["columns"] or ()] == ["question", "question"]
    assert "columns 'question' and 'QUESTION' are both 'question'" in document["problems"][0]
    mended = bench.read_case_file(tmp_path / "c.csv", workflow=shop_path, columns={"ignore": ["QUESTION"]})
    assert (mended["problems"], mended["cases"]) == ([], 1)


def test_headings_that_come_twice_can_be_ignored(bench: Bench, shop_path: str, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("question,Area,Area\na,b,c\n")
    document = bench.read_case_file(tmp_path / "c.csv", workflow=shop_path)
    assert (document["problems"], document["mapping"]) == ([], {"ignore": ["Area"]})


def test_a_server_reads_what_was_sent_and_no_file_of_its_machine(bench: Bench, tmp_path: Path) -> None:
    context = served(bench)
    secret = tmp_path / "secret.jsonl"
    secret.write_text('{"input": {"x": "hunter2"}}\n')
    with pytest.raises(InputError, match=sentence("names a file, and files of this machine are not read")):
        read_case_file(context, str(secret))
    rows: list[Any] = [{"input": {"x": 1}, "files": [str(secret)]}]
    sent = {"upload": send(bench, b'{"input": {}, "files": ["/etc/passwd"]}\n'), "name": "mine.jsonl"}
    for cases in (rows, sent):
        (problem,) = read_case_file(context, cases)["problems"]
        assert sentence("a case names files, and files of this machine are not read") in problem
        assert str(tmp_path) not in problem
        assert "/etc" not in problem
        assert "wtb-upload" not in problem


NO_CASES = ": " + sentence("no cases; expected at least one")
NO_TABLES = [
    (b"\x89PNG\r\n\x1a\n....", "csv", ": a PNG picture; expected a table as text in UTF-8"),
    (b"%PDF-1.7 ....", "xlsx", sentence("{}; expected an XLSX workbook without a password", ": a PDF document")),
    (b"", "csv", NO_CASES),
    (b"question\n", "csv", NO_CASES),
    (b"\xff\xfeq\x00", "csv", sentence("{}: byte 0x{} is not UTF-8; expected text in UTF-8", ":1", "ff")),
    (b"{}\n{", "jsonl", ":2: not JSON"),
]


def test_what_is_no_table_is_named_as_what_it_is(bench: Bench) -> None:
    for content, suffix, problem in NO_TABLES:
        document = read_case_file(served(bench), {"upload": send(bench, content), "name": f"cases.{suffix}"})
        begin = f"cases.{suffix}{problem}"
        assert any(text.startswith(begin) for text in document["problems"]), (content, document["problems"])


def test_what_is_not_there_is_refused(bench: Bench, tmp_path: Path) -> None:
    for cases, text in (
        ({"upload": "0" * 64, "name": "c.csv"}, "there is no upload"),
        ({"upload": "0" * 64, "name": "c.png"}, "expected a list of cases, or {upload: SHA-256"),
        ({"rows": 3, "headings": []}, "expected a list of cases, a table or an upload"),
        (7, "expected a list of cases, a table or an upload"),
    ):
        with pytest.raises(InputError) as caught:
            read_case_file(served(bench), cases)
        assert text in str(caught.value)
    (tmp_path / "c.csv").write_text("x\n1\n")
    with pytest.raises(
        InputError, match=sentence("'columns.{}' is {}, a heading that is {}", "x", "'y'", "not in c.csv")
    ):
        bench.read_case_file(tmp_path / "c.csv", columns={"x": "y"})
    with pytest.raises(InputError, match=r"columns: .*expected a mapping from keys to headings"):
        bench.read_case_file(tmp_path / "c.csv", columns={"x": 1})
    with pytest.raises(InputError, match=sentence("no worker publishes a workflow {}", "'shop'")):
        read_case_file(served(bench), [], workflow="shop")


def test_long_values_are_cut(bench: Bench) -> None:
    document = bench.read_case_file([{"id": "a", "input": {"x": "y" * 5000, "z": list(range(5000))}}])
    assert all(len(text) <= 1_000 for text in document["preview"][0]["input"].values())
    assert document["takes_any"]
