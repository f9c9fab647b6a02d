"""Cases in XLSX workbooks: a case has the values that a person sees, and no file can exhaust the machine."""

from __future__ import annotations

import datetime
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook

from tests.support.prose import sentence
from wtb.config.yaml_reader import Located
from wtb.core.errors import InputError
from wtb.planning import case_files
from wtb.planning.cases import CaseSource, read_cases


def book(path: Path, rows: Sequence[Sequence[Any]], change: Callable[[Workbook], None] = lambda workbook: None) -> Path:
    workbook = Workbook()
    for row in rows:
        workbook.active.append(list(row))
    change(workbook)
    workbook.save(path)
    return path


def cases_of(path: Path) -> CaseSource:
    return read_cases(path, path.parent, Located(where="cases"))


def problem_of(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        cases_of(path).check()
    return str(caught.value).replace(str(path), path.name)


def test_values_are_the_texts_that_a_person_sees(tmp_path: Path) -> None:
    day = datetime.datetime(2026, 11, 29)
    values = [1, 2.0, 2.5, True, day, day.replace(hour=9), datetime.time(9, 30), 10**14, "  x ", None]
    path = book(tmp_path / "c.xlsx", [[], ["ID", *map(str, range(9))], [None] * 10, values])
    (case,) = cases_of(path)
    assert case.id == "1"
    texts = ["2", "2.5", "true", "2026-11-29", "2026-11-29 09:00:00", "09:30:00", "100000000000000", "  x ", ""]
    assert list(case.input.values()) == texts
    assert cases_of(path).check() == (1, 1), "rows above the headings are no rows of the table"


def test_the_first_visible_sheet_is_read(tmp_path: Path) -> None:
    def hide_first(workbook: Workbook) -> None:
        workbook.create_sheet("Cases").append(["id"])
        workbook["Cases"].append(["a"])
        workbook["Sheet"].sheet_state = "hidden"

    assert [case.id for case in cases_of(book(tmp_path / "c.xlsx", [["id"], ["notes"]], hide_first))] == ["a"]


def test_a_workbook_whose_cases_are_elsewhere_names_its_other_sheets(tmp_path: Path) -> None:
    def add(workbook: Workbook) -> None:
        workbook.create_sheet("Cases").append(["id"])

    problem = problem_of(book(tmp_path / "c.xlsx", [], add))
    assert (
        sentence("its first sheet, {}, is empty; expected the cases there; its other sheets: {}", "'Sheet'", "'Cases'")
        in problem
    )


def test_the_error_of_a_formula_is_no_value(tmp_path: Path) -> None:
    problem = problem_of(book(tmp_path / "c.xlsx", [["id", "x"], ["a", "1"], ["b", "#N/A"]]))
    assert problem == "c.xlsx:3: " + sentence("a formula that gives {}; expected a value", "#N/A")


def test_what_is_no_workbook_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.xlsx"
    for content, text in (
        (b"\x89PNG\r\n\x1a\n", "c.xlsx: a PNG picture; expected an XLSX workbook"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "c.xlsx: an old or protected Office document; expected an XLSX workbook"),
        (b"", "c.xlsx: not an XLSX workbook"),
        (b"id,x\na,1\n", "c.xlsx: not an XLSX workbook"),
    ):
        path.write_bytes(content)
        assert problem_of(path).startswith(text)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "x")
    assert problem_of(path).startswith("c.xlsx: a ZIP archive that is no XLSX workbook")


@pytest.mark.parametrize(
    "member", ["xl/worksheets/sheet1.xml", "xl/workbook.xml", "[Content_Types].xml", "xl/styles.xml"]
)
def test_a_workbook_that_is_cut_off_inside_is_refused_in_words(tmp_path: Path, member: str) -> None:
    whole = book(tmp_path / "whole.xlsx", [["id"], *([f"case {number}"] for number in range(200))])
    path = tmp_path / "c.xlsx"
    with zipfile.ZipFile(whole) as read, zipfile.ZipFile(path, "w") as written:
        for info in read.infolist():
            content = read.read(info)
            written.writestr(info.filename, content[: len(content) // 2] if info.filename == member else content)
    assert "expected" in problem_of(path)


def test_what_would_unpack_to_much_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "c.xlsx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
        archive.writestr("xl/worksheets/sheet1.xml", b" " * (case_files.MOST_UNPACKED_BYTES + 1))
    assert path.stat().st_size < 1_000_000
    assert sentence("once unpacked; expected at most {}", "200,000,000") in problem_of(path)


def test_wide_and_long_sheets_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def at_the_edge(workbook: Workbook) -> None:
        workbook.active["XFD3"] = "x"

    assert sentence("{} columns; expected at most {}", "16,384", "1,000") in problem_of(
        book(tmp_path / "c.xlsx", [["id"], ["a"]], at_the_edge)
    )
    monkeypatch.setattr(case_files, "MOST_CELLS", 5)
    assert sentence("more than {} cells", 5) in problem_of(
        book(tmp_path / "d.xlsx", [["id", "x"], ["a", "1"], ["b", "2"]])
    )


def test_without_the_library_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = book(tmp_path / "c.xlsx", [["id"], ["a"]])
    monkeypatch.setattr(case_files, "find_spec", lambda name: None)
    assert problem_of(path).startswith('c.xlsx: reading XLSX needs openpyxl: pip install "workflow-test-bench[sheets]"')


def test_a_text_file_that_is_none_is_named(tmp_path: Path) -> None:
    for name, content, kind in (
        ("c.csv", b"%PDF-1.7", "a PDF document"),
        ("c.jsonl", b"\xff\xd8\xff\xe0", "a JPEG picture"),
        ("c.json", b"PK\x03\x04", "a ZIP archive, as XLSX workbooks are"),
    ):
        (tmp_path / name).write_bytes(content)
        assert problem_of(tmp_path / name).startswith(f"{name}: {kind}; expected ")
