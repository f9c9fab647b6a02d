"""Evaluators of trajectories: which tools were called, in which order and with what, as messages in the state have it.

Messages are read as LangChain, OpenAI and Anthropic write them, as objects or as mappings; a list of calls, each with
`name` and `args`, will do as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase, evaluator
from wtb.authoring.evaluation.fields import (
    expected_value,
    field_of,
    filled_value,
    lacks_expected_by,
    needs_expected,
    parse_json,
)
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, describe
from wtb.core.mappings import Options
from wtb.core.scoring.scales import LEFT_OUT, PASS_OR_FAIL


@frozen
class ToolCall:
    """A call of a tool by a model."""

    name: str
    arguments: Any

    @property
    def key(self) -> str:
        """What is the same for calls of the same tool with the same arguments."""
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
    wanted = _names(expected_value(case.expected, field) if tools is None else tools, field)
    return _ordered(called, wanted, order)


@evaluator(better="higher", scale=PASS_OR_FAIL)
def tools_avoided(case: ScoredCase, result: CellResult, *, field: str, tools: list[str]) -> bool:
    return not {call.name for call in _calls(result, field)} & set(tools)


@needs_expected()
@evaluator(better="higher", scale=PASS_OR_FAIL)
def tool_arguments(case: ScoredCase, result: CellResult, *, field: str) -> bool:
    """Every expected call was made, with these arguments at least; each call answers for one of them."""
    calls = list(_calls(result, field))
    for wanted in _expected_calls(case, field):
        fitting = next((call for call in calls if call.name == wanted.name and _includes(call, wanted)), None)
        if fitting is None:
            return False
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


def _ordered(done: Sequence[str], wanted: Sequence[str], order: str) -> bool:
    """Return whether all that is wanted was done: in any order, in this one with others between, or exactly so."""
    if order == "exact":
        return list(done) == list(wanted)
    if order == "any":
        return set(wanted) <= set(done)
    rest = iter(done)
    return all(name in rest for name in wanted)


def _includes(call: ToolCall, wanted: ToolCall) -> bool:
    if isinstance(wanted.arguments, Mapping) and isinstance(call.arguments, Mapping):
        return all(key in call.arguments and call.arguments[key] == value for key, value in wanted.arguments.items())
    return bool(call.arguments == wanted.arguments)


def _names(given: object, field: str) -> list[str]:
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        raise InputError(f"'expected' of {field!r} is {describe(given)}; expected a list of names of tools")
    return list(given)


def _expected_calls(case: ScoredCase, field: str) -> list[ToolCall]:
    given = filled_value(case.expected, field)
    found = [_one_call(one) for one in given] if isinstance(given, list | tuple) else [None]
    calls = [call for call in found if call is not None]
    if len(calls) < len(found) or not calls:
        raise InputError(
            f"'expected' of {field!r} is {describe(given)}; expected a list of calls with 'name' and 'args'"
        )
    return calls


def _calls(result: CellResult, field: str) -> Iterator[ToolCall]:
    """The calls in a list of messages, in their order. Raises InputError."""
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
    """The calls that a message holds; None where it is no message, and may be a call itself."""
    given = _get(message, "tool_calls")
    if isinstance(given, list | tuple) and given:
        return [call for call in map(_one_call, given) if call is not None]
    content = _get(message, "content")
    if isinstance(content, list | tuple):
        blocks = [one for one in content if _get(one, "type") == "tool_use"]
        return [call for call in map(_one_call, blocks) if call is not None]
    return None if _get(message, "role") is None and content is None else []


def _one_call(call: object) -> ToolCall | None:
    """A call as OpenAI (in `function`, arguments as JSON), LangChain (`args`) and Anthropic (`input`) write it."""
    function = _get(call, "function")
    call = call if function is None else function
    name = _get(call, "name")
    if not isinstance(name, str):
        return None
    given: Any = next((found for key in ("args", "arguments", "input") if (found := _get(call, key)) is not None), {})
    if isinstance(given, str):
        try:
            given = parse_json(given)
        except ValueError:  # a model may write what is no JSON: then it is the text
            return ToolCall(name, given)
    return ToolCall(name, given)


def _get(thing: object, key: str) -> Any:
    return thing.get(key) if isinstance(thing, Mapping) else getattr(thing, key, None)
