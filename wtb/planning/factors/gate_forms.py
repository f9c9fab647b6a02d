"""The forms of a gate: a condition on the row that is chosen, on rows by their levels, or `no_worse_than: NAME`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import Final

from wtb.config.field_types import condition, name_of
from wtb.config.validation_messages import expected, problem
from wtb.core.classes.frozen import frozen
from wtb.core.expressions.figures import Condition, parse_condition
from wtb.core.factors.level_names import level_label

NO_WORSE_THAN: Final = "no_worse_than"  # not worse than a baseline
_LONGEST = 2_000
_OF_ROWS = re.compile(r'((?:[^":]|"(?:[^"\\]|\\.)*"|:(?!\s))+):\s+(.*)', re.DOTALL)
_CHOICE = re.compile(r'\s*([^=,"]+?)\s*=\s*("(?:[^"\\]|\\.)*"|[\[{]\S*?(?=,\s|\s*$)|[^,"]+?)\s*(?:,|$)')
_FORMS = (
    f"a comparison such as 'contains.mean >= 0.9', one of rows such as 'answer.model=mini: contains.mean >= 0.9', or "
    f"'{NO_WORSE_THAN}: NAME' of a baseline"
)


@frozen
class Gate:
    """A gate that was read.

    Attributes:
        text: As it is shown and stored.
        condition: What must hold; None of a gate on a baseline.
        rows: Node -> variant, or `node.parameter` -> level: the condition must hold for every row that has these.
            Empty if it is about the row that is chosen.
        baseline: The name of the baseline of a gate on one.
    """

    text: str
    condition: Condition | None = None
    rows: Mapping[str, str] = field(default_factory=dict)
    baseline: str | None = None


@lru_cache(maxsize=1_024)
def parse_gate(text: str) -> Gate:
    """Read a gate of a sweep that was checked: its text, as `read_gate` returned it."""
    key, _, name = text.partition(":")
    if key.strip() == NO_WORSE_THAN:
        return Gate(text, baseline=name.strip())
    rows, figures = _split(text)
    return Gate(text, parse_condition(figures), _choices(rows))


def read_gate(item: object) -> object:
    """Check a gate of a sweep file, text or a mapping with one key, and return its text."""
    if isinstance(item, dict) and len(item) == 1:
        ((key, value),) = item.items()
        if key == NO_WORSE_THAN:
            return f"{NO_WORSE_THAN}: {name_of(value)}"
        if isinstance(key, str) and "=" in key and isinstance(value, str):
            item = f"{key}: {value}"
    if not isinstance(item, str):
        raise expected(_FORMS)
    if len(item) > _LONGEST:
        raise problem(f"{len(item):,} characters; expected at most {_LONGEST:,}")
    key, _, name = item.partition(":")
    if key.strip() == NO_WORSE_THAN:
        return f"{NO_WORSE_THAN}: {name_of(name.strip())}"
    rows, figures = _split(item)
    checked = condition(figures)
    if not rows:
        return checked
    choices = _choices(rows)
    if not choices:
        raise expected("FACTOR=LEVEL before the colon, such as 'answer.model=mini: contains.mean >= 0.9'")
    return f"{', '.join(f'{key}={text}' for key, text in choices.items())}: {checked}"


def _split(text: str) -> tuple[str, str]:
    """Return what names rows, if anything does, and the condition."""
    match = _OF_ROWS.fullmatch(text.strip())
    return (match[1], match[2]) if match is not None else ("", text)


def _choices(text: str) -> dict[str, str]:
    """Read FACTOR=LEVEL, ...; a level with a comma stands in double quotes. Returns nothing of any other text."""
    choices: dict[str, str] = {}
    place = 0
    while place < len(text):
        match = _CHOICE.match(text, place)
        if match is None or match[1] in choices:
            return {}
        choices[match[1]] = _as_label(match[2])
        place = match.end()
    return choices


def _as_label(text: str) -> str:
    """Return a level without quotes that it does not need."""
    label = level_label(level := unquoted(text))
    return text if label == text else level


def unquoted(text: str) -> str:
    """Return what stands in double quotes, as JSON has them; any other text as it is."""
    if not text.startswith('"'):
        return text
    try:
        content = json.loads(text)
    except ValueError:
        return text
    return content if isinstance(content, str) else text
