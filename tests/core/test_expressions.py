"""Safe expressions."""

from __future__ import annotations

import math

import pytest

from tests.support.prose import sentence
from wtb.core.expressions import LARGEST, MAX_DEPTH, MAX_LENGTH, Name, UnknownValue, parse_condition

FIGURES = {"a": 1.0, "b.mean": 2.0, "zero": 0.0, "c d.p50": 4.0, "min:b": -1.0, "max:b": 3.0}


def look_up(name: Name) -> float:
    key = f"{name.extreme}:{'.'.join(name.parts)}".lstrip(":")
    if key not in FIGURES:
        raise UnknownValue(f"there is no {key}")
    return FIGURES[key]


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("a < b.mean", True),
        ("a >= b.mean", False),
        ("0.5 < a <= 1", True),
        ("0.5 < a < 1", False),
        ("a != 1 or b.mean == 2", True),
        ("a == 1 and not b.mean > 2", True),
        ("-a + 2 * b.mean - 6 / 2 == 0", True),
        ('"c d".p50 > 3', True),
        ("min(b) < 0 < max(b)", True),
        ("(a - 1) ** 1 == 0", sentence("not allowed here")),
        ("  a == 1\n", True),
    ],
)
def test_a_condition_is_true_or_false(text: str, holds: bool | str) -> None:
    if isinstance(holds, str):
        with pytest.raises(ValueError, match=holds):
            parse_condition(text)
    else:
        assert parse_condition(text).answer(look_up).holds is holds


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("gone > 1", None),
        ("not gone > 1", None),
        ("gone > 1 and a == 1", None),
        ("gone > 1 and a == 2", False),
        ("gone > 1 or a == 1", True),
        ("gone > 1 or a == 2", None),
        ("3 < a < gone", False),
        ("gone + a > 1", None),
    ],
)
def test_what_cannot_be_told_decides_nothing_that_the_rest_decides(text: str, holds: bool | None) -> None:
    answer = parse_condition(text).answer(look_up)
    assert answer.holds is holds
    assert answer.because == (sentence("there is no {}", "gone") if holds is None else "")
    assert answer.values["gone"] is None


def test_an_answer_has_the_values_of_the_names_as_they_are_written() -> None:
    answer = parse_condition('a < b.mean and "c d".p50 > min(b)').answer(look_up)
    assert answer.values == {"a": 1.0, "b.mean": 2.0, '"c d".p50': 4.0, "min(b)": -1.0}


@pytest.mark.parametrize("text", ["a / zero > 1", "1 / (a - a) > 1"])
def test_a_division_by_zero_cannot_be_told(text: str) -> None:
    answer = parse_condition(text).answer(look_up)
    assert (answer.holds, answer.because) == (None, sentence("it divides by zero"))


@pytest.mark.parametrize(
    ("text", "holds"),
    [("zero == 0 or a / zero < 1", True), ("a / zero < 1 or zero == 0", True), ("a / zero > 1 and a == 2", False)],
)
def test_a_division_by_zero_decides_nothing_that_the_rest_decides(text: str, holds: bool) -> None:
    assert parse_condition(text).answer(look_up).holds is holds


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("", sentence("cannot be read")),
        ("a >", sentence("cannot be read")),
        ("a = 1", sentence("cannot be read")),
        ("a", sentence("{} is not allowed here", "'a'")),
        ("1 < 2", "names no figure"),
        ("a is 1", sentence("not allowed here")),
        ("a in b", sentence("not allowed here")),
        ("a[0] > 1", sentence("{} is not allowed here", "'a\\[0\\]'")),
        ("len(a) > 1", sentence("{} is not allowed here", "'len\\(a\\)'")),
        ("min(a, b) > 1", sentence("not allowed here")),
        ("__import__('os').x > 1", sentence("not allowed here")),
        ("(lambda: 1)() > a", sentence("not allowed here")),
        ("a > True", "expected a number"),
        ("a > 10 ** 400", sentence("not allowed here")),
        ("a > 1e999", f"a number beyond {LARGEST:g}".replace("+", r"\+")),
        ("a > " + "9" * 400, f"a number beyond {LARGEST:g}".replace("+", r"\+")),
        ("a > " + "-" * (MAX_DEPTH + 1) + "1", sentence("nested more than")),
        ("a > " + "1" * MAX_LENGTH, sentence("characters; expected at most")),
        ("not " * 240 + "a > 1", sentence("nested more than")),
        ("a > 1\0", sentence("cannot be read")),
    ],
)
def test_what_is_no_condition_is_refused(text: str, because: str) -> None:
    with pytest.raises(ValueError, match=because):
        parse_condition(text)


def test_figures_beyond_the_largest_float_are_no_numbers() -> None:
    huge = "a * 1e299 * 1e299"
    assert parse_condition(f"{huge} > b.mean").answer(look_up).holds is True
    assert parse_condition(f"{huge} - {huge} == 0").answer(look_up).holds is False


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("third >= 0.7", True),
        ("third > 0.7 or third < 0.7", False),
        ("third == 0.7 and not third != 0.7", True),
        ("sum <= 0.3", True),
        ("sum - 0.3 > 0", False),
        ("sum - 0.3 >= 0 and 0.3 - sum >= 0", True),
        ("2 * sum / 2 == 0.3", True),
        ("sum > 0.2999999", True),
        ("tiny > 0", True),
        ("tiny >= 2 * tiny", False),
        ("1e299 * 1e299 > 1e299 + sum - sum", True),
    ],
)
def test_figures_that_differ_by_rounding_only_are_equal(text: str, holds: bool) -> None:
    figures = {"third": math.fsum([0.7] * 3) / 3, "sum": 0.1 + 0.2, "tiny": 1e-12}
    assert figures["third"] < 0.7
    assert parse_condition(text).answer(lambda name: figures[name.parts[0]]).holds is holds
