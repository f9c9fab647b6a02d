"""Warnings if the first cases of a file are not a random sample of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import prose
from wtb.planning.cases import Case
from wtb.planning.findings import Ordering

Make = Callable[[int], dict[str, Any]]


def order_warnings(limit: int, cases: int, make: Make, *, names_labels: bool = True) -> list[str]:
    order = Ordering(limit, names_labels=names_labels)
    for number in range(cases):
        order.add(Case(str(number), **{"input": {}, **make(number)}))
    return [finding["sentence"] for finding in order.findings()]


def test_a_file_that_is_sorted_by_tag() -> None:
    (sentence,) = order_warnings(20, 300, lambda n: {"tags": ("all", "easy" if n < 100 else "hard")})
    assert sentence == (
        "the first 20 of 300 cases are no random sample, because the file is sorted by tag ('easy': 100% of the first, "
        "33% of all), so figures are not those of all cases: `sample` draws cases at random"
    )


def test_a_file_that_is_sorted_by_label() -> None:
    def by_field(number: int) -> dict[str, Any]:
        return {"expected": {"kind": "refund" if number < 30 else "other", "text": f"unique {number}"}}

    (sentence,) = order_warnings(20, 300, by_field)
    assert "sorted by label ('kind=refund': 100% of the first, 10% of all)" in sentence
    (hidden,) = order_warnings(20, 300, by_field, names_labels=False)
    assert "sorted by label (one of them: 100% of the first, 10% of all)" in hidden
    (plain,) = order_warnings(20, 300, lambda n: {"expected": n < 150})
    assert "sorted by label ('True': 100% of the first, 50% of all)" in plain


def test_a_file_that_is_sorted_by_length() -> None:
    (sentence,) = order_warnings(20, 300, lambda n: {"input": {"q": ["x" * n, {"more": "y"}], "k": n}})
    assert "sorted by length (a median of 10 characters in the first, 150 in all)" in sentence
    (sentence,) = order_warnings(20, 300, lambda n: {"input": {"q": "x" * (300 - n)}})
    assert prose.sentence("sorted by {}", "length") in sentence


@pytest.mark.parametrize(
    ("limit", "cases", "make"),
    [
        (300, 300, lambda n: {"tags": ("easy" if n < 100 else "hard",)}),  # all of it
        (1, 300, lambda n: {"tags": ("easy" if n < 100 else "hard",)}),
        (20, 300, lambda n: {"tags": ("one",)}),
        (20, 300, lambda n: {"tags": (f"t{n}",), "expected": n}),  # each once
        (20, 300, lambda n: {"tags": ("easy" if n % 2 else "hard",)}),
        (20, 300, lambda n: {"tags": ("easy" if n // 5 % 2 else "hard",)}),  # in blocks, and the first are like all
        (20, 300, lambda n: {"input": {"k": n}}),  # no texts
        (4, 8, lambda n: {"tags": ("easy" if n < 4 else "hard",)}),  # too few for more than chance
        (20, 300, lambda n: {"expected": n * 0.5}),
        (20, 300, lambda n: {"tags": ("rare",) if n == 299 else ()}),
    ],
)
def test_files_that_are_not(limit: int, cases: int, make: Make) -> None:
    assert order_warnings(limit, cases, make) == []


def test_few_files_in_random_order_are_called_sorted() -> None:
    draw = random.Random(1)
    called = 0
    for _ in range(300):
        few = draw.choice((12, 40, 200))
        called += bool(
            order_warnings(
                draw.choice((3, 10)),
                few,
                lambda n: {
                    "tags": (draw.choice("abc"),),
                    "expected": draw.choice(("yes", "no")),
                    "input": {"q": "x" * draw.randrange(50)},
                },
            )
        )
    assert called <= 3
