"""A tool called outside of a node: taken back by its reverse, or made again. Needs no database, as node processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, meant_or_known
from wtb.core.failures import Failure, check_interrupt
from wtb.core.serialization.codec import decode, encode

if TYPE_CHECKING:
    from wtb.authoring.tools import Tool


class Calls(Protocol):
    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any: ...


@frozen(slots=True)
class ToolCall:
    """What is to be called. arguments, result: typed JSON, as they were recorded."""

    tool: str
    direction: Literal["forward", "reverse"]
    arguments: str
    result: str | None = None


def call_tool(tools: Mapping[str, Tool], call: ToolCall, calls: Calls) -> str | Failure:
    """What the tool returned, as typed JSON. What its code raises is kept as a failure."""
    try:
        tool = tools.get(call.tool)
        if tool is None:
            raise InputError(f"the workflow has no tool {call.tool!r} any more{meant_or_known(call.tool, tools)}")
        arguments = decode(call.arguments.encode())
        if call.direction == "forward":
            return encode(calls.call(tool.forward, timeout=None, **arguments)).decode()
        if tool.reverse is None:
            raise InputError(f"tool {call.tool!r} has no reverse any more")
        result = None if call.result is None else decode(call.result.encode())
        calls.call(tool.reverse, result, timeout=None, **arguments)
    except BaseException as error:  # noqa: BLE001 - the boundary between user code and the runner
        check_interrupt(error)
        return Failure.of(error)
    return "null"
