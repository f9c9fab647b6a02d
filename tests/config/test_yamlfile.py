"""Strict reading of one YAML mapping."""

import itertools
import json
import os
import time
from pathlib import Path

import pytest

from tests.support.inputs import name_in_errors
from tests.support.prose import sentence
from wtb.config import yaml_reader
from wtb.config.yaml_reader import Located, key_text, parse, read
from wtb.core.errors import InputError, describe


def refusal(content: str | bytes) -> str:
    """The single line of the error that rejects a document."""
    raw = content if isinstance(content, bytes) else content.encode()
    with pytest.raises(InputError) as caught:
        parse(raw, "f.yaml")
    assert len(caught.value.problems) == 1
    assert "\n" not in str(caught.value)
    return str(caught.value)


def parse_text(content: str | bytes) -> object:
    return parse(content if isinstance(content, bytes) else content.encode(), "f.yaml").data


def test_a_mapping_is_read_as_plain_values() -> None:
    text = "name: x\nn: 3\nf: 1.5\nlist: [a, {b: null}]\nyes_: true\n"
    assert parse_text(text) == {"name": "x", "n": 3, "f": 1.5, "list": ["a", {"b": None}], "yes_": True}


def test_every_key_and_item_knows_its_line_and_what_is_not_there_that_of_its_nearest_ancestor() -> None:
    document = parse(b"a: 1\nb:\n  c: x\n  d:\n    - one\n    - {e: 2,\n       f: 3}\n", "f.yaml")
    assert [document.line(loc) for loc in [(), ("a",), ("b",), ("b", "d"), ("b", "d", 1)]] == [1, 1, 2, 4, 6]
    assert [document.line(loc) for loc in [("b", "d", 1, "f"), ("b", "missing", 3), ("missing",)]] == [7, 2, 1]


@pytest.mark.parametrize("word", ["on", "off", "yes", "no", "y", "n", "On", "NO"])
def test_words_of_yaml_1_1_for_booleans_are_text(word: str) -> None:
    assert parse_text(f"{word}: {word}") == {word: word}


TEXTS = ["12:30", "1:30:00", "2024-01-01", "2024-01-01T10:00:00Z", "1_000", "0b11", "0o17", "0x1F", "007", "-01"]


@pytest.mark.parametrize("text", [*TEXTS, "00.5", "1e", "e5", "1.2.3", "=", "1,5", "NaN", "Infinity", "١"])
def test_what_json_does_not_call_a_number_is_text(text: str) -> None:
    assert parse_text(f"a: {text}") == {"a": text}


@pytest.mark.parametrize("text", ["+1", ".5", "-.5", "1.", "+1.5e3", "1.e3", ".inf", "-.Inf", "+.INF", ".nan", ".NaN"])
def test_what_only_yaml_calls_a_number_is_refused(text: str) -> None:
    assert refusal(f"a: {text}") == (
        f"f.yaml:1: {text} is no number in JSON; expected one such as 0.5, or text in quotes"
    )
    assert parse_text(f"a: '{text}'") == {"a": text}


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_integers_of_more_than_64_bits_are_refused(number: int) -> None:
    assert "f.yaml:1: " in refusal(f"a: {number}")
    assert parse_text(f"a: '{number}'") == {"a": str(number)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("NULL", None),
        ("-7", -7),
        ("-0", 0),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1e3", 1000.0),
        ("1E-5", 0.00001),
        ("0.5", 0.5),
        ("-0.0", -0.0),
        ("'1'", "1"),
        ('"true"', "true"),
    ],
)
def test_plain_scalars_are_what_json_says(text: str, expected: object) -> None:
    parsed = parse(f"a: {text}".encode(), "f").data["a"]
    assert parsed == expected
    assert type(parsed) is type(expected)


def test_a_json_file_is_read_as_it_is(tmp_path: Path) -> None:
    document = {"a": [1, 2.5, None, True, {"b": "x/é\n"}], "c": {}}
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(document, indent="\t"))
    assert read(path).data == document


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert parse_text(b"\xef\xbb\xbfa: 1") == {"a": 1}


def test_duplicate_keys_are_refused_with_both_lines_at_any_depth() -> None:
    assert refusal("a: 1\nb: 2\na: 3") == "f.yaml:3: " + sentence(
        "key '{}' twice (first in line {})", "a", 1
    ) + sentence("; expected each key once")
    assert refusal("a:\n - {b: 1, b: 2}").startswith("f.yaml:2: key 'b' twice")


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\nb: &x 1", 2, "anchor '&x'"),
        ("a: *x", 1, "alias '*x'"),
        ("a: 1\nb: !!python/name:os.system x", 2, "tag 'tag:yaml.org,2002:python/name:os.system'"),
        ("a: !mine x", 1, "tag '!mine'"),
        ("a: !!str 1", 1, "tag 'tag:yaml.org,2002:str'"),
        ("a: 1\n<<: {b: 2}", 2, "merge key '<<'"),
        ("a: 1\n---\nb: 2", 2, "a second document"),
        ("1: a", 1, sentence("{}; expected text", "1 as a key") + sentence("; put it in quotes")),
        ("true: a", 1, "true as a key"),
        ("? [a, b]\n: c", 1, "a list as a key"),
        ("- a", 1, sentence("{}; expected a mapping", "a list")),
        ("just words", 1, sentence("{}; expected a mapping", "'just words'")),
        ("", 1, sentence("{}; expected a mapping", "the file is empty")),
        ("# only a comment\n", 1, sentence("the file is empty")),
        ("a: 1\nb: [1, 2\nc: 3", 3, "not YAML: "),
        ("a: 1\n\tb: 2", 2, sentence("a tab in the indentation")),
        ("a: 1\nb: '", 2, "not YAML: "),
        ("a: 1\nb: \x07", 2, "not YAML: character U+0007"),
        ('a: "\\0"', 1, sentence("a NUL character in text")),
        ('"a\\nb": 1', 1, "key 'a\\nb'; expected printable characters only"),
        ("a: " + "9" * 5000, 1, sentence("a number of {} digits", "5,000")),
        ("a: 1e999", 1, sentence("{} is too large for a number", "1e999")),
    ],
)
def test_what_is_not_plain_is_refused_with_its_line(text: str, line: int, problem: str) -> None:
    message = refusal(text)
    assert message.startswith(f"f.yaml:{line}: {problem}")
    assert "; expected " in message


def test_a_file_that_is_not_utf_8_is_refused_with_its_line() -> None:
    assert refusal(b"a: 1\nb: \xff") == sentence(
        "{}: byte 0x{} is not UTF-8; expected a text file in UTF-8", "f.yaml:2", "ff"
    )


@pytest.mark.parametrize("deep", ["[" * 60, "{a: " * 60, "[" * 500_000])
def test_deep_nesting_is_refused(deep: str) -> None:
    assert "nesting deeper than 50 levels; expected a flatter file" in refusal(f"a: {deep}")


def test_fifty_levels_are_accepted() -> None:
    assert parse_text("a: " + "[" * 49 + "]" * 49)


def test_a_yaml_bomb_is_refused_at_once() -> None:
    names = "abcdefghij"
    levels = (f"{name}: &{name} [*{last}, *{last}, *{last}]\n" for last, name in itertools.pairwise(names))
    bomb = "a: &a [x, x]\n" + "".join(levels)
    started = time.process_time()
    assert refusal(bomb).startswith("f.yaml:1: anchor '&a'")
    assert time.process_time() - started < 1


def test_a_file_of_100_mb_is_refused_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    started = time.process_time()
    with pytest.raises(
        InputError,
        match="big.yaml:1: "
        + sentence("the file has {} bytes", "100,000,000")
        + sentence("; expected at most {}", "1,048,576"),
    ):
        read(path)
    assert time.process_time() - started < 1


def test_a_missing_file_is_refused_with_a_near_match(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text("a: 1")
    with pytest.raises(InputError, match=r"no such file; expected a YAML file; did you mean 'sweep.yaml'\?"):
        read(tmp_path / "swep.yaml")


def test_a_folder_or_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    for path in (tmp_path, tmp_path / "pipe.yaml"):
        with name_in_errors(path), pytest.raises(InputError, match=sentence("not a regular file")):
            read(path)


def test_the_same_is_refused_without_the_c_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    monkeypatch.setattr(yaml_reader, "_Loader", yaml.SafeLoader)
    assert parse_text("no: on\nb: [1, 2]") == {"no": "on", "b": [1, 2]}
    assert refusal("a: 1\nb: &x 1").startswith("f.yaml:2: anchor")
    assert refusal("a: 1\nb: \x07").startswith("f.yaml:2: not YAML: character U+0007")
    assert refusal("a: " + "[" * 1000).startswith("f.yaml:1: nesting deeper than 50")


def test_located_names_file_and_line_or_else_the_key_but_not_twice() -> None:
    located = Located(parse(b"a: 1\nb: [x, y]", "s.yaml"))
    assert located.problem(("b", 1), "no node 'y'") == "s.yaml:2: no node 'y'"
    assert Located().problem(("b", 1), "no node 'y'") == "b[1]: no node 'y'"
    assert Located(where="Sweep()").problem(("b",), "wrong") == "Sweep(): b: wrong"
    assert Located().problem((), "wrong") == "wrong"
    assert Located(where="Sweep()").problem(("a", "b"), "key 'a.b' is wrong") == "Sweep(): key 'a.b' is wrong"


def test_key_paths_read_as_they_would_be_written() -> None:
    assert key_text(("vary", "answer", 2, "name")) == "vary.answer[2].name"


def test_what_was_found_is_described_in_a_few_words() -> None:
    values = [None, True, "x" * 90, 10**100, {}, {"a": 1}, [], [1], b""]
    described = [describe(sample) for sample in values]
    assert described[:2] == ["nothing", "true"]
    assert all(len(text) <= 45 for text in described)
