"""Rows of a matrix by their numbers, or by the variants and levels of their combinations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from wtb.core.errors import InputError
from wtb.core.tree.combinations import in_words

_BEFORE_PAIR = re.compile(r"[ ,]+(?=[^ ,=]+=)")
_MOST_ROWS = 5  # in a message


def row_number(every: Sequence[Mapping[str, str]], name: str, row: int | str) -> int:
    """Return the number of a row.

    Args:
        every: The combinations of the sweep.
        name: The argument that names the row, for messages.
        row: Its number, or its variants or levels, such as `answer.model=mini,answer.temperature=0`.

    Raises:
        InputError: If there is no such row, or several.
    """
    if isinstance(row, int) or row.isdecimal():
        return int(row)
    numbers = _matching(every, _pairs(every, name, row), f"{name}: ")
    if len(numbers) > 1:
        rows = "; ".join(f"{number} ({in_words(every[number])})" for number in numbers[:_MOST_ROWS])
        more = f" and {len(numbers) - _MOST_ROWS:,} more" if len(numbers) > _MOST_ROWS else ""
        raise InputError(f"{name} {row!r} is {len(numbers):,} rows: {rows}{more}; expected one", argument=name)
    return numbers[0]


def row_numbers(every: Sequence[Mapping[str, str]], name: str, rows: Sequence[int | str]) -> list[int]:
    """Return the numbers of rows, as `row_number` does."""
    return [row_number(every, name, row) for row in rows]


def filtered_rows(every: Sequence[Mapping[str, str]], where: Sequence[str]) -> set[int]:
    """Return the numbers of the rows that pass all filters.

    Args:
        every: The combinations of the sweep.
        where: Each has pairs, such as `answer.model=mini`, which must all hold. Of filters on the same factors one must
            hold.

    Raises:
        InputError: If a filter names no variant or level of the sweep.
    """
    by_factors: dict[frozenset[str], set[int]] = {}
    for text in where:
        pairs = _pairs(every, "where", text)
        by_factors.setdefault(frozenset(pairs), set()).update(_matching(every, pairs, "where: "))
    return set(range(len(every))).intersection(*by_factors.values())


def split_filter(text: str) -> list[tuple[str, str]]:
    """Split `answer.model=mini,answer.temperature=0` into factors with their levels, some of which may be empty."""
    parts = (pair.partition("=") for pair in _BEFORE_PAIR.split(text.strip()))
    return [(key, label) for key, _, label in parts]


def _pairs(every: Sequence[Mapping[str, str]], name: str, text: str) -> dict[str, str]:
    """Read `answer.model=mini,answer.temperature=0`. Raises InputError."""
    pairs = split_filter(text)
    if not all(key and label for key, label in pairs):
        example = in_words(every[-1]) if every else "answer=mini"
        what = "a filter" if name == "where" else "the number of a row, or its variants,"
        raise InputError(f"{name} {text!r}: expected {what} such as {example}", argument=name)
    return dict(pairs)


def _matching(every: Sequence[Mapping[str, str]], pairs: Mapping[str, str], where: str) -> list[int]:
    from wtb.planning.prepare import matching  # which imports much that `--help` does not need

    return matching(every, pairs, where)
