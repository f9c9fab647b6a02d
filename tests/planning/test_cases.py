"""Reading cases."""

import json
import os
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.prose import sentence
from wtb.config.yaml_reader import Located, parse
from wtb.core.errors import InputError
from wtb.planning import case_files
from wtb.planning.cases import Case, CaseSource, read_cases


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def source(folder: Path, name: str, content: str | bytes) -> CaseSource:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_cases(name, folder, Located())


def refusals(cases: CaseSource) -> list[str]:
    """Return the problems that a check finds, with only the file names of paths."""
    with pytest.raises(InputError) as caught:
        cases.check()
    assert all("\n" not in problem for problem in caught.value.problems)
    return [problem.removeprefix(f"{Path(cases.name).parent}{os.sep}") for problem in caught.value.problems]


def inline(*rows: Any, folder: Path = Path()) -> CaseSource:
    return read_cases(rows, folder, Located())


def test_json_lines_are_read_with_all_keys(folder: Path) -> None:
    (folder / "a.txt").write_text("x")
    line = {
        "id": "one",
        "input": {"q": "007"},
        "expected": {"a": 1},
        "tags": ["t"],
        "files": ["a.txt"],
        "cluster": "doc",
    }
    cases = source(folder, "cases.jsonl", json.dumps(line) + "\n")
    assert cases.check().cases == 1
    assert list(cases) == [Case("one", {"q": "007"}, {"a": 1}, ("t",), {"a.txt": folder / "a.txt"}, "doc")]


def test_a_json_file_holds_one_list(folder: Path) -> None:
    assert [case.input for case in source(folder, "c.json", '[{"input": {"q": 1}},\n {"input": {}}]')] == [
        {"q": 1},
        {},
    ]
    assert refusals(source(folder, "c.json", '{"input": {}}')) == [
        sentence("{}; expected a list of cases", "c.json: a mapping")
    ]


def test_a_list_of_mappings_or_cases_is_a_source() -> None:
    assert [case.id for case in inline({"input": {}}, Case("x", {}))] == ["1", "x"]


def test_a_source_can_be_read_again_and_again(folder: Path) -> None:
    cases = source(folder, "cases.jsonl", '{"input": {"q": 1}}\n{"input": {"q": 2}}\n')
    assert [case.input["q"] for case in cases] == [case.input["q"] for case in cases] == [1, 2]


def test_a_case_without_an_id_is_known_by_its_position(folder: Path) -> None:
    cases = source(folder, "cases.jsonl", '\n{"input": {}}\n\n{"id": 7, "input": {}}\n{"input": {}}\n')
    assert [case.id for case in cases] == ["1", "7", "3"]


def test_a_byte_order_mark_blank_lines_and_crlf_are_no_matter(folder: Path) -> None:
    text = b'\xef\xbb\xbf{"input": {"q": 1}}\r\n\r\n{"input": {"q": 2}}\r\n'
    assert [case.input["q"] for case in source(folder, "cases.jsonl", text)] == [1, 2]
    assert [case.input for case in source(folder, "cases.csv", b"\xef\xbb\xbfq\r\n1\r\n\r\n2\r\n")] == [
        {"q": "1"},
        {"q": "2"},
    ]


def test_values_of_a_csv_file_stay_text(folder: Path) -> None:
    text = 'id,zip,n,input.flag,expected,tags\na,007,1e3,true,42,"x; y z"\n,"multi\nline",,null,,\n'
    first, second = source(folder, "cases.csv", text)
    assert first == Case("a", {"zip": "007", "n": "1e3", "flag": "true"}, "42", ("x", "y", "z"))
    assert second == Case("2", {"zip": "multi\nline", "n": "", "flag": "null"}, None, ())


def test_dotted_columns_of_a_csv_file_fill_input_and_expected(folder: Path) -> None:
    (case,) = source(folder, "cases.csv", "input.q,expected.a,expected.b,input\nx,1,2,text\n")
    assert (case.input, case.expected) == ({"q": "x", "input": "text"}, {"a": "1", "b": "2"})


def test_a_csv_column_says_what_cases_came_from(folder: Path) -> None:
    cases = source(folder, "cases.csv", "q,cluster\nx,doc 1\ny,\n")
    assert [case.cluster for case in cases] == ["doc 1", None]
    assert [case.cluster for case in inline({"input": {}, "cluster": 7})] == ["7"]


def test_a_blank_cell_expects_nothing_and_a_row_of_them_is_no_case(folder: Path) -> None:
    text = "id,q,expected\n q1 ,1,\n,,\nq3, ,  \n , ,\t\n,x,yes\n"
    cases = source(folder, "cases.csv", text)
    assert [(case.id, case.input["q"], case.expected) for case in cases] == [
        ("q1", "1", None),
        ("q3", " ", None),
        ("3", "x", "yes"),
    ]
    assert cases.check() == (3, 2)
    (case,) = source(folder, "fields.csv", "q,expected.a,expected.b\nx,,2\n")
    assert case.expected == {"b": "2"}


def test_spaces_around_ids_clusters_and_tags_are_dropped(folder: Path) -> None:
    row = {"id": " q1 ", "input": {}, "cluster": "doc ", "tags": [" geo"]}
    (case,) = source(folder, "c.json", json.dumps([row]))
    assert (case.id, case.cluster, case.tags) == ("q1", "doc", ("geo",))
    twice = source(folder, "d.json", json.dumps([row, {**row, "id": "q1"}]))
    assert refusals(twice) == [sentence("{} a second time; expected each id once", "d.json: case 2: id 'q1'")]


def test_a_csv_column_of_files_is_parted_by_semicolons(folder: Path) -> None:
    (folder / "a b.txt").write_text("")
    (folder / "c.txt").write_text("")
    (case,) = source(folder, "cases.csv", "q,files\nx,a b.txt; c.txt\n")
    assert list(case.files) == ["a b.txt", "c.txt"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("q,r\n1\n", sentence("{}; expected {}, one for each column", "c.csv:2: 1 value", 2)),
        ('q,r\n"a\nb",2\n1,2,3\n', sentence("{}; expected {}, one for each column", "c.csv:4: 3 values", 2)),
        ("q,q\n1,2\n", sentence("{} a second time; expected each column once", "c.csv:1: column 'q'")),
        (
            "q,input.q\n1,2\n",
            "c.csv:1: "
            + sentence("columns {} and {} are both '{}'", "'q'", "'input.q'", "q")
            + sentence("; expected one of them, and the other one in 'columns.{}' of the sweep file", "ignore"),
        ),
        (
            "expected,expected.a\n1,2\n",
            "c.csv:1: columns 'expected' and 'expected.a' are both 'expected'; expected one of them, and the other one "
            "in 'columns.ignore' of the sweep file",
        ),
        (
            "q,\n1,2\n3,4\n",
            sentence("{} and {} more", "c.csv:2", 1)
            + ": "
            + sentence("a value in column {}, which has no heading; expected a heading for each column", 2),
        ),
        ('q\n"open\n', sentence("{}: not CSV: {}; expected one row of values", "c.csv:2", "unexpected end of data")),
        (
            'q\nok\n"a"b\n',
            sentence("{}: not CSV: {}; expected one row of values", "c.csv:3", "',' expected after '\"'"),
        ),
        (b"q\n1\n\xff\n", sentence("{}: byte 0x{} is not UTF-8; expected text in UTF-8", "c.csv:3", "ff")),
    ],
)
def test_a_bad_row_of_a_csv_file_is_named_with_its_line(folder: Path, text: str | bytes, problem: str) -> None:
    assert refusals(source(folder, "c.csv", text)) == [problem]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes (column 2); expected"),
        ('{"input": {}} x', sentence("not JSON: {} ({}); expected one JSON value", "Extra data", "column 15")),
        ('{"input": {"x": NaN}}', sentence("{} is not JSON ({}); expected a number or null", "NaN", "column 17")),
        (
            '{"input": {"NaN": "\\"NaN", "x": -Infinity}}',
            sentence("{} is not JSON ({}); expected a number", "-Infinity", "column 33"),
        ),
        ('{"input": {"x": 1e999}}', sentence("{} is too large for a number; expected a smaller one", "1e999")),
        ('{"input": {"x": 1, "x": 2}}', sentence("key {} a second time; expected each key once", "'x'")),
        ('{"input": {"x": "\\ud800"}}', sentence("half of a surrogate pair in text; expected whole characters")),
        ('{"input": {"x": ' + "9" * 5000 + "}}", sentence("a number of too many digits; expected a shorter one")),
        ("[" * 100_000, sentence("JSON nested too deeply; expected a flatter value")),
        (b'{"input": "\xff"}', sentence("byte 0x{} is not UTF-8; expected text in UTF-8", "ff")),
        ("[1]", sentence("{} as a case; expected a mapping with 'input'", "a list of 1")),
        ('{"id": 1}', sentence("'input' is {}; expected a mapping from keys of the state to values", "missing")),
        ('{"input": "q"}', sentence("'input' is {}; expected a mapping from keys of the state to values", "'q'")),
        (
            '{"input": {}, "cluster": " "}',
            sentence("'cluster' is {}; expected the name of what the case came from", "' '"),
        ),
        (
            '{"input": {}, "cluster": ["a"]}',
            sentence("'cluster' is {}; expected the name of what the case came from", "a list of 1"),
        ),
        ('{"input": {}, "tags": "a"}', sentence("'tags' is {}; expected a list of texts", "'a'")),
        (
            '{"input": {}, "id": ""}',
            sentence("'id' is {}; expected 1 to 500 printable characters or a whole number", "''"),
        ),
        ('{"input": {}, "id": "a\\nb"}', sentence("'id' is {}; expected 1 to 500 printable", "'a\\nb'")),
        ('{"input": {}, "id": true}', sentence("'id' is {}; expected 1 to 500 printable", "true")),
        ('{"input": {}, "id": 1.5}', sentence("'id' is {}; expected 1 to 500 printable", "1.5")),
    ],
)
def test_a_bad_line_is_named_with_its_number(folder: Path, line: str | bytes, problem: str) -> None:
    raw = line if isinstance(line, bytes) else line.encode()
    (refusal,) = refusals(source(folder, "c.jsonl", b'{"input": {}}\n\n' + raw + b'\n{"input": {}}\n'))
    assert refusal.startswith(f"c.jsonl:3: {problem}")


def test_a_line_over_the_cap_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert case_files.MAX_LINE == 64 * 1024 * 1024
    monkeypatch.setattr(case_files, "MAX_LINE", 100)
    cases = source(folder, "c.jsonl", '{"input": {}}\n{"input": {"x": "' + "a" * 200 + '"}}\n')
    assert refusals(cases) == ["c.jsonl:2: " + sentence("a line of more than {} bytes; expected a shorter one", 100)]


def test_text_of_a_csv_file_may_be_longer_than_python_allows_at_first(folder: Path) -> None:
    (case,) = source(folder, "c.csv", "q\n" + "a" * 200_000 + "\n")
    assert len(case.input["q"]) == 200_000


def test_an_unknown_key_of_a_case_is_refused_with_a_near_match() -> None:
    assert refusals(inline({"input": {}, "expect": 1})) == [
        "cases[0]: "
        + sentence("key {} of a case is not known", "'expect'")
        + sentence("; did you mean '{}'?", "expected")
    ]


def test_a_case_without_input_is_refused_rather_than_guessed() -> None:
    (problem,) = refusals(inline({"question": "x"}))
    assert problem.endswith("expected, tags, cluster, files; put what goes into the state under 'input'")


def test_no_cases_at_all_are_refused(folder: Path) -> None:
    assert refusals(source(folder, "c.jsonl", "\n")) == ["c.jsonl: " + sentence("no cases; expected at least one")]
    assert refusals(source(folder, "c.csv", "q\n")) == ["c.csv: " + sentence("no cases; expected at least one")]
    assert refusals(source(folder, "c.csv", "")) == ["c.csv: " + sentence("no cases; expected at least one")]
    assert refusals(inline()) == ["cases: " + sentence("no cases; expected at least one")]


def test_ids_that_come_twice_are_refused(folder: Path) -> None:
    cases = source(folder, "c.jsonl", '{"id": "a", "input": {}}\n{"id": "2", "input": {}}\n{"id": "a", "input": {}}\n')
    assert refusals(cases) == [sentence("{} a second time; expected each id once", "c.jsonl:3: id 'a'")]


def test_a_check_names_ten_problems_at_most_and_each_once(folder: Path) -> None:
    problems = refusals(source(folder, "c.jsonl", "".join(f'{{"input": {{}}, "zz{n}": 1}}\n' for n in range(50))))
    assert [problem.split(":")[1] for problem in problems] == [str(line) for line in range(1, 11)]
    (refusal,) = refusals(source(folder, "d.jsonl", '{"input": {}}\n' + "{}\n" * 50))
    assert refusal.startswith("d.jsonl:2 and 49 more: 'input' is missing; expected")


def test_a_bad_case_is_refused_while_iterating_too(folder: Path) -> None:
    cases = iter(source(folder, "c.jsonl", '{"input": {}}\n{\n'))
    assert next(cases).id == "1"
    with pytest.raises(InputError, match=sentence("{}: not JSON", "c.jsonl:2")):
        next(cases)


def test_files_are_relative_to_the_cases_file_and_may_have_other_names(folder: Path) -> None:
    (folder / "data" / "docs").mkdir(parents=True)
    (folder / "data" / "docs" / "a.txt").write_text("x")
    line = {"input": {}, "files": {"in/b.txt": "docs/a.txt", "./c.txt": "docs/../docs/a.txt"}}
    (folder / "data" / "c.jsonl").write_text(json.dumps(line))
    cases = read_cases("data/c.jsonl", folder, Located())
    assert cases.check().cases == 1
    (case,) = cases
    source_file = folder / "data" / "docs" / "a.txt"
    assert case.files == {"in/b.txt": source_file, "c.txt": source_file}


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ("a.txt", sentence("'files' is {}; expected a list of paths, or a mapping from names to paths", "'a.txt'")),
        ({"/etc/x": "a.txt"}, sentence("file name {}; expected a relative path without '..'", "'/etc/x'")),
        ({"a/../../x": "a.txt"}, sentence("file name {}; expected a relative path without '..'", "'a/../../x'")),
        ({"": "a.txt"}, sentence("file name {}; expected a relative path without '..'", "''")),
        ([".."], sentence("file name {}; expected a relative path without '..'", "'..'")),
        (["a.txt", "b/a.txt"], sentence("file name {} a second time; expected each name once", "'a.txt'")),
        ({"x": 3}, sentence("file {} is {}; expected a path", "'x'", 3)),
        ({"x": "a\0b"}, sentence("file {} is {}; expected a path", "'x'", "'a\\x00b'")),
        ({"x": "a.txt", "x/y": "a.txt"}, sentence("file names {} and {}; expected no file in another", "'x'", "'x/y'")),
    ],
)
def test_files_that_would_leave_the_workspace_are_refused(folder: Path, files: object, problem: str) -> None:
    (folder / "a.txt").write_text("")
    assert refusals(inline({"input": {}, "files": files}, folder=folder)) == [f"cases[0]: {problem}"]


def test_files_that_are_missing_or_not_regular_are_refused(folder: Path) -> None:
    (folder / "sub").mkdir()
    cases = inline({"input": {}, "files": ["gone.txt"]}, {"input": {}, "files": ["sub"]}, folder=folder)
    assert refusals(cases) == [
        f"cases[0]: file '{folder / 'gone.txt'}': No such file or directory; expected a file",
        sentence("{}' is not a regular file; expected one", f"cases[1]: file '{folder / 'sub'}"),
    ]


def test_a_missing_cases_file_is_refused_with_the_line_of_the_sweep_and_a_near_match(folder: Path) -> None:
    (folder / "cases.jsonl").write_text("")
    where = Located(parse(b"workflow: x\ncases: case.jsonl\n", "s.yaml"))
    with pytest.raises(InputError) as caught:
        read_cases("case.jsonl", folder, where)
    assert str(caught.value).startswith(f"s.yaml:2: cases file '{folder / 'case.jsonl'}' does not exist; expected")
    assert str(caught.value).endswith("; did you mean 'cases.jsonl'?")


@pytest.mark.parametrize("name", ["cases.xls", "cases", "pkg.mod:fn"])
def test_what_is_no_source_of_cases_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"expected a .jsonl, .csv, .json or .xlsx file, or an import path") as caught:
        read_cases(name, folder, Located())
    assert str(caught.value).endswith("; save the sheet as CSV in UTF-8") == (name == "cases.xlsx")


def test_a_folder_or_pipe_named_as_a_cases_file_is_refused(folder: Path) -> None:
    (folder / "a.csv").mkdir()
    os.mkfifo(folder / "b.csv")
    for name in ("a.csv", "b.csv"):
        with pytest.raises(InputError, match=sentence("is not a regular file")):
            read_cases(name, folder, Located())


def test_inline_cases_are_named_with_their_line() -> None:
    document = parse(b"cases:\n  - input: {}\n  - inputs: {}\n", "s.yaml")
    (problem,) = refusals(read_cases(document.data["cases"], Path(), Located(document)))
    assert problem == "s.yaml:3: " + sentence("key {} of a case is not known", "'inputs'") + sentence(
        "; did you mean '{}'?", "input"
    )


def test_an_import_path_is_resolved_once_and_called_for_each_reading(folder: Path) -> None:
    calls: list[str] = []

    def generate() -> Iterator[Case | dict[str, Any]]:
        calls.append("made")
        yield Case("a", {"q": 1})
        yield {"input": {"q": 2}}

    def resolve(path: str) -> Any:
        calls.append(path)
        return generate

    cases = read_cases("pkg.mod:fn", folder, Located(), resolve)
    assert cases.check().cases == 2
    assert [case.id for case in cases] == ["a", "2"]
    assert calls == ["pkg.mod:fn", "made", "made"]


def test_a_bad_case_from_a_callable_is_named_with_its_position(folder: Path) -> None:
    cases = read_cases("pkg.mod:fn", folder, Located(), lambda _: lambda: [{"input": {}}, 3])
    assert refusals(cases) == [sentence("{} as a case; expected a mapping with 'input'", "pkg.mod:fn: case 2: 3")]


@pytest.mark.parametrize("returned", [3, "text", {"input": {}}, iter([])])
def test_a_callable_that_gives_no_iterable_is_refused(folder: Path, returned: object) -> None:
    function: Any = returned if isinstance(returned, Iterator) else (lambda: returned)
    cases = read_cases("pkg.mod:fn", folder, Located(), lambda _: function)
    assert sentence("expected a callable that returns an iterable of cases") in refusals(cases)[0]


@pytest.mark.parametrize("name", ["c.jsonl", "c.csv"])
def test_memory_does_not_grow_with_the_cases(folder: Path, name: str) -> None:
    row = '{"input": {"q": "' + "x" * 1000 + '"}}\n' if name == "c.jsonl" else "x" * 1000 + "\n"
    cases = source(folder, name, ("" if name == "c.jsonl" else "q\n") + row * 5_000)
    tracemalloc.start()
    assert cases.check().cases == sum(1 for _ in cases) == 5_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The file has 5 MB; 5,000 ids as hashes take about half a megabyte.
    assert peak < 2_500_000


def seconds(cases: CaseSource) -> float:
    """Return the shortest processor time of several readings, in seconds."""
    durations = []
    for _ in range(3):
        began = time.process_time()
        with suppress(InputError):
            cases.check()
        durations.append(time.process_time() - began)
    return min(durations)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("c.csv", lambda n: ",".join(f"c{i}" for i in range(n)) + "\n" + ",".join("0" * n) + "\n"),
        ("c.csv", lambda n: ",".join(f"c{i}" for i in range(n)) + ",c0\n"),
        ("c.jsonl", lambda n: json.dumps({"input": {f"k{i}": 0 for i in range(n)}})),
        ("c.jsonl", lambda n: '{"input": {' + ",".join(f'"k{i}": 0' for i in range(n)) + f', "k{n - 1}": 0}}}}'),
    ],
    ids=["columns", "a column twice", "keys", "a key twice"],
)
def test_sixteen_times_as_many_names_take_nothing_like_their_square(
    folder: Path, name: str, content: Callable[[int], str]
) -> None:
    small, large = (seconds(source(folder, f"{n}-{name}", content(n))) for n in (5_000, 80_000))
    assert large < 100 * small  # the square of them would be 256


def test_an_unknown_key_among_many_is_told_at_once(folder: Path) -> None:
    row = {"input": {}} | {f"k{i}": 0 for i in range(60_000)}
    (problem,) = refusals(source(folder, "c.jsonl", json.dumps(row)))
    assert problem.startswith("c.jsonl:1: key 'k0' of a case is not known")


def test_assertions_of_a_case_stand_with_what_it_expects(folder: Path) -> None:
    rows = '{"input": {}, "assert": ["latency"]}\n{"input": {}, "expected": {"a": 1}, "assert": [{"cost": {}}]}\n'
    first, second = source(folder, "c.jsonl", rows)
    assert first.expected == {"assert": ["latency"]}
    assert second.expected == {"a": 1, "assert": [{"cost": {}}]}
    for wrong, words in (
        ('{"input": {}, "assert": "latency"}', "'assert' is 'latency'; expected a list of evaluators"),
        ('{"input": {}, "assert": []}', "'assert' is an empty list"),
        ('{"input": {}, "expected": "x", "assert": ["latency"]}', "beside 'expected', which is 'x'"),
    ):
        assert words in refusals(source(folder, "bad.jsonl", wrong + "\n"))[0]
