"""What built-in evaluators read: a field of the final state, and what a case expects of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase
from wtb.core.errors import InputError, describe, did_you_mean


def field_of(result: CellResult, name: str) -> Any:
    """A key of the final state. Raises InputError where there is none."""
    if name not in result.state:
        raise InputError(f"the final state has no key {name!r}{did_you_mean(name, result.state)}")
    return result.state[name]


def json_of(result: CellResult, name: str) -> Any:
    """A key of the final state as a JSON value: one that is text is read. Raises ValueError where that is no JSON."""
    found = field_of(result, name)
    return parse_json(found) if isinstance(found, str) else found


def parse_json(text: str) -> Any:
    """The JSON value that a text writes. Raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def expected_of(case: ScoredCase, name: str) -> Any:
    """What a case expects of a field: `expected[field]` if that is a mapping with the field, else `expected`."""
    if isinstance(case.expected, Mapping) and name in case.expected:
        return case.expected[name]
    return case.expected


def text_of(result: CellResult, name: str) -> str:
    """A key of the final state that is text. Raises InputError."""
    found = field_of(result, name)
    if not isinstance(found, str):
        raise InputError(f"{name!r} of the final state is {describe(found)}; expected text")
    return found


def references_of(case: ScoredCase, name: str) -> list[str]:
    """The texts that a case expects of a field, any of which would be right. Raises InputError."""
    expected = expected_of(case, name)
    found = [expected] if isinstance(expected, str) else expected
    if not isinstance(found, list | tuple) or not found or not all(isinstance(one, str) for one in found):
        raise InputError(f"'expected' of {name!r} is {describe(expected)}; expected a text, or a list of texts")
    return list(found)
