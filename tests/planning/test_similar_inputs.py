"""Inputs that are nearly equal: which are, which only look so, and how many are compared."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from wtb.planning import equal_inputs
from wtb.planning.equal_inputs import Texts

LONG = (
    "The refund for my last order has not arrived although your colleague promised on the phone that it would be on my "
    "account within a week; please look into it and tell me when I can expect the money."
)


def groups(*inputs: Any) -> list[list[int]]:
    texts = Texts(len(inputs), seed=0)
    for number, case_input in enumerate(inputs):
        texts.add(number, f"c{number}", case_input)
    return texts.groups()


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("How long is the Nile?", "how long is  the nile?\n"),
        ("\u00e9t\u00e9", "e\u0301te\u0301"),
        (LONG, LONG.replace("colleague", "coworker")),
        (LONG, f"Hello! {LONG}"),
        (LONG, LONG.replace(";", ".").replace("please", "Please")),
        ({"a": LONG, "k": 3}, {"k": 3, "a": LONG.upper()}),
        (["x", LONG], ("x", LONG + " Thanks.")),
        ("\u4f60\u597d\u4e16\u754c" * 20, "\u4f60\u597d\u4e16\u754c" * 20 + "\uff01"),
        (LONG * 200, LONG * 200 + " Thanks."),
    ],
)
def test_texts_that_are_nearly_equal(text: Any, other: Any) -> None:
    assert groups({"q": text}, {"q": "something else"}, {"q": other}) == [[0, 2]]


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("How long is the Nile?", "How wide is the Nile?"),
        ("Compute 12345 + 17 and explain each step of the way", "Compute 12345 + 18 and explain each step of the way"),
        ("Compute 12345 + 17 and explain each step of the way", "Compute 12345 - 17 and explain each step of the way"),
        (
            LONG,
            LONG.replace("week", "year").replace("refund", "gift").replace("order", "flight").replace("money", "box"),
        ),
        ({"q": LONG, "k": 1}, {"q": LONG, "k": 2}),
        ({"q": LONG, "strict": True}, {"q": LONG, "strict": False}),
        (1, 2),
        ("", ""),
        ([0.1, 0.2], [0.1, 0.3]),
        (None, None),
    ],
)
def test_texts_that_are_not(text: Any, other: Any) -> None:
    assert groups({"q": text}, {"q": other}) == []


def test_no_or_one_case_has_no_similar_one() -> None:
    assert groups() == groups({"q": LONG}) == []


def test_of_many_cases_a_sample_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equal_inputs, "MOST_TEXTS", 100)
    texts = Texts(1_000, seed=3)
    for number in range(1_000):
        texts.add(number, f"c{number}", {"q": LONG})
    (group,) = texts.groups()
    assert 70 <= len(group) <= 130


def test_a_hundred_thousand_long_texts_take_about_a_second() -> None:
    draw = random.Random(2)
    words = ["".join(draw.choices("abcdefghij", k=draw.randrange(2, 9))) for _ in range(5_000)]
    inputs = [{"q": " ".join(draw.choices(words, k=60))} for _ in range(1_000)]
    texts = Texts(100_000, seed=0)
    began = time.process_time()
    for number in range(100_000):
        texts.add(number, f"c{number}", inputs[number % 1_000])
    assert len(texts.groups()) > 900
    assert time.process_time() - began < 10, "seconds of this process, on a machine that does other things too"
