"""Short reasons for scores of built-in evaluators: what was expected, and what is there instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase
from wtb.authoring.evaluation.fields import expected_value, field_of, filled_value, json_of
from wtb.core.errors import WTBError
from wtb.core.mappings import Options

_MAX_TEXT: Final = 120  # characters of a value
_Explain = Callable[[ScoredCase, CellResult, Options], str | None]


def explanation(name: str, options: Options) -> Callable[[ScoredCase, CellResult], str | None] | None:
    """Return what explains the scores of a built-in evaluator that are not the best one; None if nothing does.

    Args:
        name: That of the evaluator.
        options: Those that it is called with.
    """
    explain = _EXPLAIN.get(name)
    if explain is None:
        return None

    def explained(case: ScoredCase, result: CellResult) -> str | None:
        try:
            return explain(case, result, options)
        except (WTBError, ValueError, TypeError):  # the score stands without a reason
            return None

    return explained


def _exact_match(case: ScoredCase, result: CellResult, options: Options) -> str:
    field = options["field"]
    return f"{field} is {_shorten(field_of(result, field))}; expected {_shorten(expected_value(case.expected, field))}"


def _contains(case: ScoredCase, result: CellResult, options: Options) -> str:
    field = options["field"]
    answer, expected = field_of(result, field), _expected_by(case, options, "text")
    missing = [text for text in (expected if isinstance(expected, list) else [expected]) if text not in answer]
    return f"{', '.join(map(_shorten, missing))} is not in {field}"


def _contains_any(case: ScoredCase, result: CellResult, options: Options) -> str:
    expected = _expected_by(case, options, "text")
    texts = [expected] if isinstance(expected, str) else expected
    return f"none of {', '.join(map(_shorten, texts))} is in {options['field']}"


def _regex(case: ScoredCase, result: CellResult, options: Options) -> str:
    return f"the pattern {_shorten(_expected_by(case, options, 'pattern'))} is not found in {options['field']}"


def _json_schema(case: ScoredCase, result: CellResult, options: Options) -> str:
    field = options["field"]
    try:
        json_of(result, field)
    except ValueError as error:
        return f"{field} is no JSON: {error}"
    return f"{field} does not fit the schema: it is {_shorten(json_of(result, field))}"


def _tools_called(case: ScoredCase, result: CellResult, options: Options) -> str:
    field, tools = options["field"], options.get("tools")
    expected = expected_value(case.expected, field) if tools is None else tools
    order = options.get("order", "any")
    how = "" if order == "any" else f" ({order} order)"
    return f"expected calls of {_shorten(expected)}{how} in {field}"


def _tools_avoided(case: ScoredCase, result: CellResult, options: Options) -> str:
    return f"a tool was called that must be avoided: one of {_shorten(options['tools'])}"


def _expected_by(case: ScoredCase, options: Options, option: str) -> Any:
    override = options.get(option)
    return filled_value(case.expected, options["field"]) if override is None else override


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


_EXPLAIN: Final[Mapping[str, _Explain]] = {
    "exact_match": _exact_match,
    "json_equal": _exact_match,
    "numeric_close": _exact_match,
    "quantity_close": _exact_match,
    "contains": _contains,
    "contains_any": _contains_any,
    "regex": _regex,
    "json_schema": _json_schema,
    "tools_called": _tools_called,
    "tools_avoided": _tools_avoided,
}
