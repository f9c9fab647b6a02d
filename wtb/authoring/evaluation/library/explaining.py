"""Short reasons for scores of built-in evaluators: what was expected, and what is there instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase
from wtb.authoring.evaluation.fields import expected_value, field_of, filled_value, json_of
from wtb.core.errors import WTBError
from wtb.core.mappings import Options

_SHOWN: Final = 120  # characters of a value
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
    return f"{field} is {_shown(field_of(result, field))}; expected {_shown(expected_value(case.expected, field))}"


def _contains(case: ScoredCase, result: CellResult, options: Options) -> str:
    field = options["field"]
    found, wanted = field_of(result, field), _wanted(case, options, "text")
    missing = [text for text in (wanted if isinstance(wanted, list) else [wanted]) if text not in found]
    return f"{', '.join(map(_shown, missing))} is not in {field}"


def _contains_any(case: ScoredCase, result: CellResult, options: Options) -> str:
    wanted = _wanted(case, options, "text")
    texts = [wanted] if isinstance(wanted, str) else wanted
    return f"none of {', '.join(map(_shown, texts))} is in {options['field']}"


def _regex(case: ScoredCase, result: CellResult, options: Options) -> str:
    return f"the pattern {_shown(_wanted(case, options, 'pattern'))} is not found in {options['field']}"


def _json_schema(case: ScoredCase, result: CellResult, options: Options) -> str:
    field = options["field"]
    try:
        json_of(result, field)
    except ValueError as error:
        return f"{field} is no JSON: {error}"
    return f"{field} does not fit the schema: it is {_shown(json_of(result, field))}"


def _tools_called(case: ScoredCase, result: CellResult, options: Options) -> str:
    field, tools = options["field"], options.get("tools")
    wanted = expected_value(case.expected, field) if tools is None else tools
    order = options.get("order", "any")
    how = "" if order == "any" else f" ({order} order)"
    return f"expected calls of {_shown(wanted)}{how} in {field}"


def _tools_avoided(case: ScoredCase, result: CellResult, options: Options) -> str:
    return f"a tool was called that must be avoided: one of {_shown(options['tools'])}"


def _wanted(case: ScoredCase, options: Options, option: str) -> Any:
    given = options.get(option)
    return filled_value(case.expected, options["field"]) if given is None else given


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


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
