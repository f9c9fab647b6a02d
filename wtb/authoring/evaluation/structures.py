"""Evaluators of what has a structure: JSON and SQL that mean what is expected, and trajectories of tool calls."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase, evaluator
from wtb.authoring.evaluation.fields import (
    expected_value,
    field_of,
    filled_value,
    json_of,
    json_value,
    lacks_expected_by,
    needs,
    needs_expected,
    parse_json,
    references_of,
    text_of,
)
from wtb.core.errors import InputError, describe
from wtb.core.frozen import frozen
from wtb.core.scoring.scores import LEFT_OUT, PASS_OR_FAIL
from wtb.core.values import Options


@needs_expected(json_value)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def json_equal(case: ScoredCase, result: CellResult, *, field: str, ignore_order: bool = False) -> bool:
    expected = json_value(case.expected, field)
    if isinstance(expected, str):
        expected = parse_json(expected)
    try:
        document = json_of(result, field)
    except ValueError:
        return False
    return _canonical(document, ignore_order) == _canonical(expected, ignore_order)


def _canonical(document: Any, ignore_order: bool) -> str:
    """Return a JSON value as text: whole floats as integers, and lists sorted if their order does not matter."""
    return json.dumps(_plain(document, ignore_order), sort_keys=True, separators=(",", ":"))


def _plain(document: Any, ignore_order: bool) -> Any:
    if isinstance(document, dict):
        return {str(key): _plain(part, ignore_order) for key, part in document.items()}
    if isinstance(document, list | tuple):
        parts = [_plain(part, ignore_order) for part in document]
        return sorted(parts, key=lambda part: json.dumps(part, sort_keys=True)) if ignore_order else parts
    return int(document) if isinstance(document, float) and document.is_integer() else document


@needs_expected()
@needs("sqlglot", extra="sql")
@evaluator(better="higher", scale=PASS_OR_FAIL)
def sql_equal(case: ScoredCase, result: CellResult, *, field: str, dialect: str = "") -> bool:
    from sqlglot.errors import SqlglotError

    try:
        references = [_normalized(reference, dialect) for reference in references_of(case, field)]
    except SqlglotError as error:
        raise InputError(f"'expected' of {field!r} is not SQL: {error!s:.200}") from None
    try:
        return _normalized(text_of(result, field), dialect) in references
    except (SqlglotError, RecursionError):  # no SQL is not the SQL that is expected
        return False


def _normalized(sql: str, dialect: str) -> Any:
    """Return the tree of one statement, with names in one case, and conditions simplified and sorted."""
    from sqlglot import parse_one
    from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
    from sqlglot.optimizer.simplify import simplify

    tree = normalize_identifiers(parse_one(sql, dialect=dialect or None), dialect=dialect or None)
    return simplify(tree, dialect=dialect or None)


# One number and one unit, and nothing that a calculator could take for ever for, such as 9^9^9.
_NUMBER = r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?"
_UNIT = r"[A-Za-zµμΩ°%](?:[A-Za-z_µμΩ°%/ ]|\^-?\d(?!\^)){0,40}"
_QUANTITY = re.compile(rf"\s*({_NUMBER})\s*({_UNIT})?\s*")


@needs_expected()
@needs("pint", extra="units")
@evaluator(better="higher", scale=PASS_OR_FAIL)
def quantity_close(case: ScoredCase, result: CellResult, *, field: str, abs: float = 0, rel: float = 1e-6) -> bool:
    """Compare a quantity with the expected one; `abs` is in the unit of the latter."""
    expected = _read(filled_value(case.expected, field))
    if expected is None:
        raise InputError(
            f"'expected' of {field!r} is {describe(filled_value(case.expected, field))}; expected one such as '5 km'"
        )
    quantity = _read(field_of(result, field))
    if quantity is None or not quantity.is_compatible_with(expected):
        return False
    return math.isclose(quantity.to(expected.units).magnitude, expected.magnitude, abs_tol=abs, rel_tol=rel)


def _read(written: Any) -> Any:
    """Read a number, or a text with a number and a unit, as a quantity; None for anything else."""
    from pint.errors import PintError

    match = _QUANTITY.fullmatch(str(written)) if not isinstance(written, bool) else None
    if match is None:
        return None
    try:
        return _units().Quantity(float(match[1]), (match[2] or "").strip())
    # As pint answers to units that are none, and to those that are not written as units are.
    except (PintError, AssertionError, AttributeError, SyntaxError, TypeError, ValueError):
        return None


@cache
def _units() -> Any:
    from pint import UnitRegistry

    return UnitRegistry()


@frozen
class ToolCall:
    """A call of a tool by a model."""

    name: str
    arguments: Any

    @property
    def key(self) -> str:
        """Return a text that is the same for calls of the same tool with the same arguments."""
        return json.dumps([self.name, self.arguments], sort_keys=True, default=repr)


def _lacks_tools(options: Options, expected: Any) -> bool:
    """Return whether a case names no tools. An empty list forbids all of them only if the order is exact."""
    if options.get("tools") is not None:
        return False
    read = expected_value if options.get("order") == "exact" else filled_value
    return read(expected, options["field"]) is None


@lacks_expected_by(_lacks_tools)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def tools_called(
    case: ScoredCase, result: CellResult, *, field: str, tools: list[str] | None = None, order: str = "any"
) -> bool:
    called = [call.name for call in _calls(result, field)]
    expected = _names(expected_value(case.expected, field) if tools is None else tools, field)
    return _ordered(called, expected, order)


@evaluator(better="higher", scale=PASS_OR_FAIL)
def tools_avoided(case: ScoredCase, result: CellResult, *, field: str, tools: list[str]) -> bool:
    return not {call.name for call in _calls(result, field)} & set(tools)


@needs_expected()
@evaluator(better="higher", scale=PASS_OR_FAIL)
def tool_arguments(case: ScoredCase, result: CellResult, *, field: str) -> bool:
    """Every expected call was made, with these arguments at least; each call answers for one of them."""
    calls = list(_calls(result, field))
    for expected in _expected_calls(case, field):
        fitting = next((call for call in calls if call.name == expected.name and _includes(call, expected)), None)
        if fitting is None:
            return False
        # Each call answers for one expected call only, so that a call expected twice must be made twice.
        calls.remove(fitting)
    return True


@evaluator(better="lower", on_failure=LEFT_OUT)
def tool_calls(case: ScoredCase, result: CellResult, *, field: str) -> float:
    return float(sum(1 for _ in _calls(result, field)))


@evaluator(better="lower", on_failure=LEFT_OUT)
def repeated_tool_calls(case: ScoredCase, result: CellResult, *, field: str) -> float:
    keys = [call.key for call in _calls(result, field)]
    return float(len(keys) - len(set(keys)))


@evaluator(better="higher", scale=PASS_OR_FAIL)
def nodes_visited(case: ScoredCase, result: CellResult, *, nodes: list[str], order: str = "any") -> bool:
    return _ordered(result.path, nodes, order)


def _ordered(done: Sequence[str], expected: Sequence[str], order: str) -> bool:
    """Return whether all that is wanted was done: in any order, in this one with others between, or exactly so."""
    if order == "exact":
        return list(done) == list(expected)
    if order == "any":
        return set(expected) <= set(done)
    # `in` consumes the iterator up to the match, so that the order counts.
    rest = iter(done)
    return all(name in rest for name in expected)


def _includes(call: ToolCall, expected: ToolCall) -> bool:
    if isinstance(expected.arguments, Mapping) and isinstance(call.arguments, Mapping):
        return all(
            key in call.arguments and call.arguments[key] == argument for key, argument in expected.arguments.items()
        )
    return bool(call.arguments == expected.arguments)


def _names(names: object, field: str) -> list[str]:
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InputError(f"'expected' of {field!r} is {describe(names)}; expected a list of names of tools")
    return list(names)


def _expected_calls(case: ScoredCase, field: str) -> list[ToolCall]:
    expected = filled_value(case.expected, field)
    parsed = [_one_call(call) for call in expected] if isinstance(expected, list | tuple) else [None]
    calls = [call for call in parsed if call is not None]
    if len(calls) < len(parsed) or not calls:
        raise InputError(
            f"'expected' of {field!r} is {describe(expected)}; expected a list of calls with 'name' and 'args'"
        )
    return calls


def _calls(result: CellResult, field: str) -> Iterator[ToolCall]:
    """Yield the calls in a list of messages, in their order. Raises InputError."""
    messages = field_of(result, field)
    if not isinstance(messages, list | tuple):
        raise InputError(f"{field!r} of the final state is {describe(messages)}; expected a list of messages")
    for message in messages:
        inner = _inner_calls(message)
        if inner is None:
            call = _one_call(message)
            inner = [] if call is None else [call]
        yield from inner


def _inner_calls(message: object) -> list[ToolCall] | None:
    """Return the calls that a message holds; None if it is no message, and may be a call itself."""
    tool_calls = _get(message, "tool_calls")
    # LangChain's messages of Anthropic models have their calls here and in the content, and each must count once.
    if isinstance(tool_calls, list | tuple) and tool_calls:
        return [call for call in map(_one_call, tool_calls) if call is not None]
    content = _get(message, "content")
    if isinstance(content, list | tuple):
        blocks = [block for block in content if _get(block, "type") == "tool_use"]
        return [call for call in map(_one_call, blocks) if call is not None]
    return None if _get(message, "role") is None and content is None else []


def _one_call(call: object) -> ToolCall | None:
    """Read a call as OpenAI (in `function`, arguments as JSON), LangChain (`args`) and Anthropic (`input`) write it."""
    function = _get(call, "function")
    call = call if function is None else function
    name = _get(call, "name")
    if not isinstance(name, str):
        return None
    arguments: Any = next(
        (content for key in ("args", "arguments", "input") if (content := _get(call, key)) is not None), {}
    )
    if isinstance(arguments, str):
        try:
            arguments = parse_json(arguments)
        except ValueError:  # a model may write invalid JSON, which stays a text
            return ToolCall(name, arguments)
    return ToolCall(name, arguments)


def _get(message: object, key: str) -> Any:
    return message.get(key) if isinstance(message, Mapping) else getattr(message, key, None)
