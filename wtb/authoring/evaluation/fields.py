"""Access for evaluators to a field of the final state, to what a case expects of it, and to packages that they need.

A case without an expected value is neither right nor wrong, so an evaluator that needs one gives it no score. It has
none if `expected` is absent, null or blank, or is a mapping without the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, TypeVar

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase
from wtb.config.distribution import pip_install
from wtb.core.errors import InputError, describe, did_you_mean
from wtb.core.values import Options


def field_of(result: CellResult, name: str) -> Any:
    """Return a key of the final state. Raises InputError if there is none."""
    if name not in result.state:
        raise InputError(f"the final state has no key {name!r}{did_you_mean(name, result.state)}")
    return result.state[name]


def json_of(result: CellResult, name: str) -> Any:
    """Return a key of the final state as a JSON value; text is parsed. Raises ValueError if it is not JSON."""
    content = field_of(result, name)
    return parse_json(content) if isinstance(content, str) else content


def parse_json(text: str) -> Any:
    """Parse a text as JSON. Raises ValueError."""
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
    """Return the expected value without blank texts, which every answer contains; None if nothing is left."""
    content = expected_value(expected, field)
    if isinstance(content, list | tuple):
        return [text for text in content if not _is_blank(text)] or None
    return None if _is_blank(content) or content == {} else content


def json_value(expected: Any, field: str) -> Any:
    """Return the expected value; None only for a blank text, because an empty list or mapping is a JSON value."""
    content = expected_value(expected, field)
    return None if _is_blank(content) else content


def _is_blank(content: Any) -> bool:
    return content is None or (isinstance(content, str) and not content.strip())


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
    """Return a key of the final state that must be text. Raises InputError."""
    content = field_of(result, name)
    if not isinstance(content, str):
        raise InputError(f"{name!r} of the final state is {describe(content)}; expected text")
    return content


def references_of(case: ScoredCase, name: str) -> list[str]:
    """Return the texts that a case expects of a field, any of which is right. Raises InputError."""
    expected = filled_value(case.expected, name)
    references = [expected] if isinstance(expected, str) else expected
    if not isinstance(references, list) or not all(isinstance(text, str) for text in references):
        raise InputError(f"'expected' of {name!r} is {describe(expected)}; expected a text, or a list of texts")
    return references


def needs(package: str, *, extra: str) -> Callable[[Fn], Fn]:
    """Declare that an evaluator imports a package, and the extra that brings it."""

    def declare(fn: Fn) -> Fn:
        setattr(fn, "wtb_needs", (package, extra))  # noqa: B010 (a function has no such attribute by its type)
        return fn

    return declare


def check_installed(name: str, fn: Callable[..., Any]) -> None:
    """Reject an evaluator whose package is missing. Raises InputError, which names the extra."""
    needed = getattr(fn, "wtb_needs", None)
    if needed is not None and find_spec(needed[0]) is None:
        package, extra = needed
        raise InputError(
            f"evaluator {name!r} needs the package {package}, which is not installed; install it with: "
            f"{pip_install(extra)}"
        )
