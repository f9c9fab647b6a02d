"""What built-in evaluators read: a field of the final state, and the value that a case expects of it.

A case without an expected value is neither right nor wrong, so an evaluator that needs one gives it no score. It has
none if `expected` is absent, null or blank, or is a mapping without the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase
from wtb.core.errors import InputError, describe, did_you_mean
from wtb.core.mappings import Options


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


ASSERT = "assert"  # the key of `expected` that holds the evaluators of one case, so it is no field


def expected_value(expected: Any, field: str) -> Any:
    """Return the value that a case expects of a field, None if it expects none. The keys of a mapping are fields."""
    if isinstance(expected, Mapping):
        return None if field == ASSERT else expected.get(field)
    return expected


def filled_value(expected: Any, field: str) -> Any:
    """Return the same without blank texts, by which every answer would be right: a list loses those that it has."""
    value = expected_value(expected, field)
    if isinstance(value, list | tuple):
        return [element for element in value if not _is_blank(element)] or None
    return None if _is_blank(value) or value == {} else value


def json_value(expected: Any, field: str) -> Any:
    """Return the same where an empty list or mapping is a value, and only a blank text is none."""
    value = expected_value(expected, field)
    return None if _is_blank(value) else value


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


Fn = TypeVar("Fn", bound=Callable[..., Any])
ReadExpected = Callable[[Any, str], Any]


def needs_expected(read: ReadExpected = filled_value, *, instead: str | None = None) -> Callable[[Fn], Fn]:
    """Declare that an evaluator needs an expected value.

    Args:
        read: Returns the value that a case expects of a field, None if it expects none.
        instead: The option that replaces the expected value.
    """

    def lacks(options: Options, expected: Any) -> bool:
        if instead is not None and options.get(instead) is not None:
            return False
        return read(expected, options.get("field") or "") is None

    return lacks_expected_by(lacks)


def lacks_expected_by(lacks: Callable[[Options, Any], bool]) -> Callable[[Fn], Fn]:
    """Declare when an evaluator with some options lacks the expected value of a case."""

    def declare(fn: Fn) -> Fn:
        setattr(fn, "wtb_lacks_expected", lacks)  # noqa: B010 (a function has no such attribute by its type)
        return fn

    return declare


def text_of(result: CellResult, name: str) -> str:
    """A key of the final state that is text. Raises InputError."""
    found = field_of(result, name)
    if not isinstance(found, str):
        raise InputError(f"{name!r} of the final state is {describe(found)}; expected text")
    return found


def references_of(case: ScoredCase, name: str) -> list[str]:
    """The texts that a case expects of a field, any of which would be right. Raises InputError."""
    expected = filled_value(case.expected, name)
    references = [expected] if isinstance(expected, str) else expected
    if not isinstance(references, list) or not all(isinstance(text, str) for text in references):
        raise InputError(f"'expected' of {name!r} is {describe(expected)}; expected a text, or a list of texts")
    return references
