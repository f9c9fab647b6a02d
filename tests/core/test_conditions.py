"""Conditions over a state: true, false, or unknown; they read no more than they need."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.prose import sentence
from wtb.core.expressions import UnknownValue, parse_state_condition

STATE: dict[str, Any] = {
    "docs": [{"score": 0.5, "title": "one"}],
    "answer": {"text": "a refund"},
    "n": 3,
    "note": "",
    "approved": None,
    "wide": {"a-b": [1, 2]},
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("len(docs) == 1", True),
        ("len(docs) == 0 or docs[0].score < 0.6", True),
        ("docs[-1].title == 'one' and not note", True),
        ("'refund' in answer.text", True),
        ("'score' in docs[0] and 'rank' not in docs[0]", True),
        ("n in [1, 2]", False),
        ("1 < n <= 3", True),
        ("n % 2 == 1 and -n + 4 == 1 and n * 2 / 4 > 1", True),
        ("approved is None", True),
        ("approved is not None or approved == True", False),
        ("wide['a-b'][1] == 2", True),
        ("note", False),
        # An unknown part decides nothing that the rest decides.
        ("missing > 1 or n == 3", True),
        ("missing > 1 and n == 4", False),
        ("n / 0 > 1 or n == 3", True),
        ("n < 1 < missing", False),
    ],
)
def test_a_condition_says_what_python_would_say(text: str, holds: bool) -> None:
    assert parse_state_condition(text).holds(STATE) is holds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("missing > 1", sentence("the state has no key {} yet", "'missing'")),
        ("docs[3].score > 1", sentence("there is no {}", "docs\\[3\\]")),
        ("docs[0].rank > 1", r"there is no docs\[0\].rank"),
        ("docs.__class__ == 1", "there is no docs.__class__"),
        ("n.real == 3", sentence("there is no {}", "n.real")),
        ("docs < 3", sentence("compares {} with {}", "a list", "a number")),
        ("n in 3", "compares a number with a number"),
        ("docs * 1000000 == 1", sentence("{} is {}, not a number", "docs", "a list")),
        ("len(n) == 1", sentence("{} is {}, which has no len", "n", "a number")),
        ("n / 0 > 1", sentence("it divides by zero")),
        ("n * 1e308 * 1e308 > 1 and 10 ** 2", sentence("is not allowed here")),
    ],
)
def test_what_cannot_be_told_says_why(text: str, why: str) -> None:
    with pytest.raises((UnknownValue, ValueError), match=why):
        parse_state_condition(text).holds(STATE)


@pytest.mark.parametrize(
    "text",
    [
        "open('x')",
        "n.real()",
        "(lambda: 1)()",
        "[x for x in docs]",
        "len(*docs)",
        "docs[0:1] == n",
        "f'{n}'",
        "n if n else n",
        "n := 3",
        "n ** 9",
        "",
        "1 < 2",
        "n == " + "(" * 60 + "1" + ")" * 60 + " + 1" * 60,
        "n == " + "1" * 2000,
    ],
)
def test_nothing_else_is_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"allowed here|cannot be read|names no key|nested|characters"):
        parse_state_condition(text)
