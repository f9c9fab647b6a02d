"""Values in a terminal: short values are on one line, text is shown literally, and cannot look like a key."""

from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len

from wtb.display.text.approvals import nested


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        ({"x": 1, "y": None}, ['{"x": 1, "y": null}']),
        ("send_email", ["send_email"]),
        ("1182", ['"1182"']),
        ("true", ['"true"']),
        ("", ['""']),
        ("end ", ['"end "']),
        ("- a", ['"- a"']),
        ("\x1b[2J", ["\N{REPLACEMENT CHARACTER}[2J"]),
        ([], ["[]"]),
        ({"text": "a\nb: 1"}, ["text:", "  │ a", "  │ b: 1"]),
        ({"a\nb": "x\n"}, ["a\N{REPLACEMENT CHARACTER}b:", "  │ x", "  │"]),
        ([["a\n"], {"b": "c\n"}], ["- - │ a", "    │", "- b:", "    │ c", "    │"]),
    ],
)
def test_a_value_is_shown_as_it_reads(value: Any, lines: list[str]) -> None:
    assert nested(value, 40) == lines


def test_no_line_is_too_wide_however_deep_or_long_a_value_is() -> None:
    value: Any = "a word, " * 20
    for depth in range(200):
        value = {"key": value, "n": depth} if depth % 2 else [value, "漢字" * 30]
    assert max(map(cell_len, nested(value, 60))) <= 60
    assert nested({"k" * 100: ["v" * 50]}, 40)[0] == "k" * 40


def test_what_does_not_fit_continues_below() -> None:
    value = {"to": "ana", "args": {"subject": "A refund for the order", "lines": [{"sku": "kettle", "n": 1}]}}
    assert nested(value, 40) == [
        "to: ana",
        "args:",
        "  subject: A refund for the order",
        "  lines:",
        '    - {"sku": "kettle", "n": 1}',
    ]
