"""The count of untyped mappings includes those that a type alias or an import hides."""

from __future__ import annotations

import pytest

from scripts.count_untyped import count

DECLARED = """
from collections.abc import Mapping
from typing import Any, TypeAlias
State: TypeAlias = Mapping[str, Any]
\"\"\"Values by key of a state, of every type that can be stored.\"\"\"
def merge(state: State, update: State) -> State: ...
"""
USER = "from a import State\nfrom b import other\ndef read(state: State) -> None: ...\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def read(row: dict[str, Any]) -> Mapping[str, object]: ...", 2),
        ("def read(row: 'dict[str, Any]') -> None: ...", 1),
        ("rows: list[dict[str, Any]] | None = None", 1),
        ("def read(row: typing.Mapping[str, typing.Any]) -> None: ...", 1),
        ("def read(row: dict[str, Any | None]) -> None: ...", 1),
        ("class Row(dict[str, Any]): ...", 1),
        ("row = cast('dict[str, Any]', read())", 1),
        ("Row = dict[str, Any]\ndef read(row: Row, other: Row) -> None: ...", 2),
        ("Row: TypeAlias = dict[str, Any]\ndef read(row: Row, other: Row) -> None: ...", 2),
        ('Row: TypeAlias = dict[str, Any]\n"""A row."""\ndef read(row: Row, other: Row) -> None: ...', 2),
        ("Row = str | dict[str, Any]\ndef read(row: Row) -> None: ...", 1),
        ("Row = dict[str, Any]\nRows = list[Row]\ndef read(rows: Rows) -> None: ...", 1),
        ("Value = Any\ndef read(row: dict[str, Value]) -> None: ...", 1),
        ("Row = NewType('Row', dict[str, Any])\ndef read(row: Row) -> None: ...", 1),
        ("def read(row: dict[str, int], rows: Mapping[str, list[Any]]) -> Any: ...", 0),
    ],
)
def test_every_way_to_write_one_counts(text: str, expected: int) -> None:
    assert count({"a": text}).total == expected


def test_an_alias_that_says_what_it_holds_counts_once() -> None:
    counts = count({"a": DECLARED, "b": USER})

    assert (counts.total, counts.declared, counts.uses) == (1, ("a.State",), 4)


def test_an_alias_counts_where_it_is_imported() -> None:
    alias = "Row = dict[str, Any]\n"

    assert count({"a": alias, "b": "from a import Row as R\nrow: R = {}"}).total == 1
    assert count({"p.a": alias, "b": "from p import a\nrow: a.Row = {}"}).total == 1
    rows = "from a import Row\nRows = list[Row]"
    assert count({"a": alias, "b": rows, "c": "from b import Rows\nx: Rows"}).total == 1
