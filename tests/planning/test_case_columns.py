"""Tables of cases as people save them from spreadsheets: headings, separators, blank rows, columns of other things."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.prose import sentence
from wtb.config.yaml_reader import Located, parse
from wtb.core.errors import InputError
from wtb.planning.case_columns import CaseTable
from wtb.planning.cases import Case, CaseSource, read_cases
from wtb.planning.sweep_spec import parse_spec

STATE = ("question", "docs", "answer")
E_ACUTE = "é"


def table(
    folder: Path,
    text: str,
    columns: Mapping[str, Sequence[str]] | None = None,
    state: Sequence[str] | None = STATE,
) -> CaseSource:
    (folder / "c.csv").write_text(text)
    source = read_cases("c.csv", folder, Located(where="sweep"), columns=columns)
    return replace(source, columns=replace(source.columns, state=state, inputs=("question",)))


def problems(source: CaseSource) -> list[str]:
    with pytest.raises(InputError) as caught:
        source.check()
    return [problem.replace(f"{Path(source.name).parent}/", "") for problem in caught.value.problems]


def columns_of(message: str) -> dict[str, Any]:
    """Return the mapping that an error message suggests, as a sweep file reads it."""
    columns: dict[str, Any] = yaml.safe_load(message.partition("such as ")[2])["columns"]
    return parse_spec({"workflow": "a:b", "cases": "c.csv", "vary": {"a": "all"}, "columns": columns}).columns


@pytest.mark.parametrize("heading", ["ID,Question,Expected,TAGS,Cluster", " id , QUESTION ,expected,Tags,CLUSTER"])
def test_headings_match_without_case_and_spaces(tmp_path: Path, heading: str) -> None:
    cases = list(table(tmp_path, f"{heading}\na,Why?,Because,x y,doc\n"))
    assert cases == [Case("a", {"question": "Why?"}, "Because", ("x", "y"), cluster="doc")]


def test_a_prefix_matches_without_case_and_a_key_that_the_state_has_as_written_comes_first(tmp_path: Path) -> None:
    (case,) = table(tmp_path, "Input.Question,Expected.Answer\nWhy?,Because\n")
    assert (case.input, case.expected) == ({"question": "Why?"}, {"Answer": "Because"})
    (case,) = table(tmp_path, "Expected,expected\nx,y\n", state=("Expected", "question"))
    assert (case.input, case.expected) == ({"Expected": "x"}, "y")


def test_headings_stay_as_written_where_the_state_takes_any_key(tmp_path: Path) -> None:
    (case,) = table(tmp_path, "ID,Order  Number\n7,A1\n", state=None)
    assert (case.id, case.input) == ("7", {"Order Number": "A1"})


def test_a_heading_that_two_keys_differ_from_by_case_only_is_not_guessed(tmp_path: Path) -> None:
    (problem,) = problems(table(tmp_path, "QUESTION\nx\n", state=("question", "Question")))
    assert "column 'QUESTION' is no key of the state (question, Question)" in problem
    (case,) = table(tmp_path, "Question\nx\n", state=("question", "Question"))
    assert case.input == {"Question": "x"}


def test_unknown_headings_are_named_once_with_a_mapping_that_works(tmp_path: Path) -> None:
    text = "No;Question text;Expected Answer;Area\n" + "".join(f"{n};q{n};a{n};x\n" for n in range(60))
    (problem,) = problems(table(tmp_path, text))
    assert problem == (
        "c.csv:1: columns 'No', 'Question text', 'Expected Answer' and 'Area' are no keys of the state (question, "
        'docs, answer); map in the sweep file, such as columns: {question: "Question text", '
        'expected: "Expected Answer", ignore: ["No", "Area"]}'
    )
    cases = list(table(tmp_path, text, columns_of(problem)))
    assert len(cases) == 60
    assert cases[1] == Case("2", {"question": "q1"}, "a1")


def test_a_mapping_takes_headings_as_they_are_written_and_offers_what_it_has(tmp_path: Path) -> None:
    columns = {"question": ["Question "], "expected": ["expected ANSWER"], "tags": ["Area"]}
    (case,) = table(tmp_path, "Question,Expected Answer,Area\nx,y,a b\n", columns)
    assert case == Case("1", {"question": "x"}, "y", ("a", "b"))
    (problem,) = problems(table(tmp_path, "Question,Expected Answer,Area,Owner\nx,y,a b,me\n", columns))
    assert list(table(tmp_path, "Question,Expected Answer,Area,Owner\nx,y,a b,me\n", columns_of(problem))) == [case]


def test_a_mapping_to_dotted_keys_and_to_one_heading_of_several(tmp_path: Path) -> None:
    columns = {"input.question": ["Q"], "expected.answer": ["A"], "ignore": ["Owner", "Area"]}
    (case,) = table(tmp_path, "Q,A,Owner,Area\nx,y,me,z\n", columns)
    assert (case.input, case.expected, case.tags) == ({"question": "x"}, {"answer": "y"}, ())


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (
            {"questoin": ["Q"]},
            sentence("{}' maps to a key that is not in the state", "sweep: 'columns.questoin")
            + sentence("; did you mean '{}'?", "question"),
        ),
        (
            {"question": ["Frage"]},
            "sweep: "
            + sentence("'columns.{}' is {}, a heading that is {}", "question", "'Frage'", "not in c.csv:1")
            + sentence("; expected one of: {}", "Q, A"),
        ),
        (
            {"question": ["Q"], "docs": ["Q"]},
            "sweep: " + sentence("'columns.{}' is {}, a heading that is {}", "docs", "'Q'", "twice"),
        ),
    ],
)
def test_a_wrong_mapping_is_named_by_its_key(tmp_path: Path, columns: dict[str, list[str]], problem: str) -> None:
    assert problem in str(problems(table(tmp_path, "Q,A\nx,y\n", columns)))


def test_two_columns_of_one_key_are_named_and_one_may_be_ignored(tmp_path: Path) -> None:
    text = "No,ID,question\n1,a,x\n"
    (problem,) = problems(table(tmp_path, text, {"id": ["No"]}))
    assert (
        sentence("columns {} and {} are both '{}'", "'No'", "'ID'", "id") + sentence("; expected one of them")
        in problem
    )
    (case,) = table(tmp_path, text, {"id": ["No"], "ignore": ["ID"]})
    assert case.id == "1"


@pytest.mark.parametrize(
    "text",
    [
        "id;question;expected\na;x, y;z\n",
        "id\tquestion\texpected\na\tx, y\tz\n",
        'id,question,expected\na,"x, y",z\n',
        "sep=|\nid|question|expected\na|x, y|z\n",
        "SEP=;\r\nid;question;expected\r\na;x, y;z\r\n",
        '\n;;\n"id";"question";"expected"\n"a";"x, y";"z"\n',
    ],
)
def test_the_separator_is_that_of_the_headings(tmp_path: Path, text: str) -> None:
    assert list(table(tmp_path, text)) == [Case("a", {"question": "x, y"}, "z")]


def test_where_headings_have_several_separators_the_rows_settle_it(tmp_path: Path) -> None:
    source = table(tmp_path, "id;question, in full;expected\na;x;z\nb;x;\n", {"question": ["Question, in full"]})
    assert [case.input for case in source] == [{"question": "x"}] * 2
    (problem,) = problems(table(tmp_path, "id;question, docs\na;b,c\n"))
    assert problem.startswith("c.csv:1: commas and semicolons may separate the columns; expected one of them")


def test_vertical_bars_are_named(tmp_path: Path) -> None:
    (problem,) = problems(table(tmp_path, "id|question\na|b\n"))
    assert problem == "c.csv:1: " + sentence(
        "vertical bars seem to separate the columns; expected commas, semicolons or tabs"
    )


def test_a_broken_row_of_another_separator_is_named_by_its_line(tmp_path: Path) -> None:
    assert problems(table(tmp_path, "id;question\na;b\nc;d;e\n")) == [
        sentence("{}; expected {}, one for each column", "c.csv:3: 3 values", 2)
    ]


def test_blank_rows_and_columns_are_skipped_also_above_the_headings(tmp_path: Path) -> None:
    source = table(tmp_path, ",,,\nID,Question,Expected,\na,x,y,\n,,,\n , ,,\nb,z,,\n,,,\n")
    assert source.check() == (2, 3)
    assert [(case.id, case.expected) for case in source] == [("a", "y"), ("b", None)]


def test_ids_are_the_same_however_unicode_writes_them(tmp_path: Path) -> None:
    composed, decomposed = unicodedata.normalize("NFC", E_ACUTE), unicodedata.normalize("NFD", E_ACUTE)
    (problem,) = problems(table(tmp_path, f"id,question\n{composed},x\n {decomposed} ,y\n"))
    assert problem == sentence("{} a second time; expected each id once", f"c.csv:3: id {composed!r}")
    (case,) = table(
        tmp_path, f"id,Quest{decomposed},cluster\n{decomposed},x,{decomposed}\n", state=(f"Quest{composed}",)
    )
    assert (case.id, case.cluster, case.input) == (composed, composed, {f"Quest{composed}": "x"})


def test_a_table_in_the_sweep_is_read_as_a_file_is() -> None:
    rows = CaseTable(headings=("ID", "Question"), rows=(("a", "x"), ("", ""), ("b", "y")))
    source = read_cases(rows, Path(), Located())
    source = replace(source, columns=replace(source.columns, state=STATE))
    assert [(case.id, case.input) for case in source] == [("a", {"question": "x"}), ("b", {"question": "y"})]
    assert source.check() == (2, 1)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"columns": {"question": []}}, "'columns.question' is an empty list; expected the heading of a column, or a"),
        ({"columns": {"question": 3}}, "'columns.question' is 3; expected the heading of a column"),
        (
            {"columns": {"tags": ["a", "b"]}},
            sentence("{} headings; expected 1: only '{}' takes several", "'columns.tags' has 2", "ignore"),
        ),
        (
            {"cases": {"file": "c.csv"}},
            sentence("key '{}' is not known", "cases.file") + sentence("; expected one of: {}", "headings, rows"),
        ),
        ({"cases": {"headings": ["a"], "rows": [[1]]}}, sentence("{} is {}; expected text", "'cases.rows[0][0]'", 1)),
    ],
)
def test_what_is_no_mapping_or_table_is_refused(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_spec({"workflow": "a:b", "cases": "c.csv", "vary": {"a": "all"}, **keys})
    assert problem in str(caught.value)


@pytest.mark.parametrize(("cases", "kind"), [("c.jsonl", "'c.jsonl'"), ("pkg:cases", "'pkg:cases'"), ([], "a list")])
def test_a_mapping_of_columns_is_for_tables(cases: Any, kind: str) -> None:
    document = parse(b"columns: {question: Q}\n", "s.yaml")
    with pytest.raises(InputError) as caught:
        read_cases(cases, Path(), Located(document), columns={"question": ["Q"]})
    text = f"s.yaml:1: 'columns' is for tables, and 'cases' is {kind}; expected a .csv or .xlsx file"
    assert str(caught.value) == text


def test_the_only_heading_left_is_offered_for_the_only_input_left(tmp_path: Path) -> None:
    (message,) = problems(table(tmp_path, "ID,Ticket,Expected Answer\na,Why?,Because\n"))
    assert columns_of(message) == {"expected": ("Expected Answer",), "question": ("Ticket",)}
    (message,) = problems(table(tmp_path, "ID,Ticket,Area,Expected Answer\na,Why?,x,Because\n"))
    assert columns_of(message) == {"expected": ("Expected Answer",), "ignore": ("Ticket", "Area")}
