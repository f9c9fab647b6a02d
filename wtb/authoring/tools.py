"""Tools: functions that nodes call through `ctx.tools`, so that each call is recorded and can be taken back.

@wf.tool
def book(*, flight: str) -> str: ...

@book.reversed_by
def cancel(booking: str, *, flight: str) -> None: ...

A node calls `ctx.tools.book(flight="LH 1")`; a rollback calls `cancel(booking, flight="LH 1")`.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, Protocol, TypedDict

from wtb.core.errors import InputError, StateError, meant_or_known
from wtb.core.failures import Failure, check_interrupt
from wtb.core.frozen import frozen
from wtb.core.serialization.codec import decode, encode
from wtb.core.serialization.plain_json import storable
from wtb.core.values import Arguments

ERROR = 2000  # characters of the message of an error


@dataclass
class Tool:
    """A function that nodes call by name, and the function that reverses such a call, if there is one.

    Attributes:
        forward: Called with the arguments, by keyword; sync or async.
        reverse: Called as `reverse(result, **arguments)`.
        version: Returns the version of a server's tool at its last call.
    """

    name: str
    forward: Callable[..., Any]
    reverse: Callable[..., Any] | None = None
    description: str = ""
    version: Callable[[], str | None] = lambda: None

    def reversed_by(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Set the function that reverses a call, as `fn(result, **arguments)`. Used as a decorator."""
        self.reverse = fn
        return fn

    def problems(self) -> Iterable[str]:
        """Yield its problems, as messages."""
        functions: dict[str, Any] = {"forward": self.forward, "reverse": self.reverse}
        for what, fn in functions.items():
            if fn is not None and not callable(fn):
                yield f"tool {self.name!r}: its {what} function is {type(fn).__name__}; expected a callable"
            elif what == "forward":
                parameters = inspect.signature(fn).parameters.values()
                for name in (p.name for p in parameters if p.kind is p.POSITIONAL_ONLY):
                    yield f"tool {self.name!r}: {name!r} is positional-only; tools are called with arguments by name"


class ToolReport(TypedDict):
    """A call of a tool that has ended.

    Attributes:
        arguments: Typed JSON.
        result: Typed JSON.
        at: Seconds since the epoch.
        version: A digest of the server's description of the tool.
        number: The number of the call in its node run, once it is recorded.
    """

    tool: str
    arguments: str
    result: str | None
    error: str | None
    at: float
    duration_s: float
    status: str
    version: str | None
    number: NotRequired[int]


OnCall = Callable[[ToolReport], None]


class Gate(Protocol):
    """Checks calls of tools against policies."""

    def check(self, tool: str, arguments: Arguments, stored: str, result: str | None) -> str | None:
        """Return the result of an earlier call, or None if this one must be made; see `ToolGate`."""


class Tools:
    """The tools of a workflow, as one attempt calls them: `tools.book(flight=...)` or `tools["book"](flight=...)`.

    Args:
        tools: The tools by name.
        on_call: Called with each call as soon as it has ended.
        done: Calls of this node run that are not made again, in order: the n-th call of a tool with the same arguments
            returns its earlier result. The first call that is not among them ends the replay.
        gate: Checks each call against policies, if there are any.
    """

    def __init__(
        self, tools: Mapping[str, Tool], on_call: OnCall, done: Iterable[ToolReport] = (), gate: Gate | None = None
    ) -> None:
        self.gate = gate
        self._tools = tools
        self._on_call = on_call
        self._lock = threading.Lock()
        self._returned: dict[tuple[str, str], deque[str]] = {}
        self._failed: set[tuple[str, str]] = set()
        for call in done:
            key = (call["tool"], call["arguments"])
            if call["status"] == "done" and call["result"] is not None:
                self._returned.setdefault(key, deque()).append(call["result"])
            else:
                self._failed.add(key)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Look a tool up. Raises InputError with a near match."""
        if name not in self._tools:
            hint = meant_or_known(name, self._tools) if self._tools else "; it has none: add it with @wf.tool"
            raise InputError(f"the workflow has no tool {name!r}{hint}")
        return _Bound(self, self._tools[name])

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # Python and notebooks look for such attributes, and expect AttributeError.
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def of(self, server: str) -> ServerTools:
        """Return the tools of a server, by their own names. Raises InputError if the workflow declares none."""
        prefix = f"{server}."
        names = [name.removeprefix(prefix) for name in self._tools if name.startswith(prefix)]
        if not names:
            servers = {name.partition(".")[0] for name in self._tools if "." in name}
            none = "; it has none: declare it with use_server(), or under 'mcp' of the sweep file"
            hint = meant_or_known(server, servers) if servers else none
            raise InputError(f"the workflow has no MCP server {server!r}{hint}")
        return ServerTools(self, server, names)

    def before(self, name: str, arguments: str) -> str | None:
        """Return the result of an earlier attempt's call, as typed JSON, or None if this one must be made."""
        key = (name, arguments)
        with self._lock:
            if results := self._returned.get(key):
                return results.popleft()
            # A call that no attempt has made: the node takes another path, on which earlier results may be wrong. A
            # call that failed is the same path.
            if key not in self._failed:
                self._returned.clear()
        return None

    def report(
        self, tool: Tool, arguments: str, at: float, duration_s: float, *,
        status: str, result: str | None = None, error: str | None = None,
    ) -> None:  # fmt: skip
        """Report a call that has ended. `at` is in seconds since the epoch."""
        self._on_call(
            {
                "tool": tool.name,
                "arguments": arguments,
                "result": result,
                "error": error,
                "at": at,
                "duration_s": duration_s,
                "status": status,
                "version": tool.version(),
            }
        )


@frozen
class ServerTools:
    """The tools of one MCP server: `files.read(path="a.txt")` or `files["read"](path="a.txt")`."""

    tools: Tools
    server: str
    names: Sequence[str]

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in self.names:
            hint = meant_or_known(name, self.names)
            raise InputError(f"no tool {name!r} of MCP server {self.server!r} is declared{hint}")
        return self.tools[f"{self.server}.{name}"]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):  # what Python and notebooks look for
            raise AttributeError(name)
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)


@frozen
class _Bound:
    """A tool for calls by an attempt. Async tools return awaitables in async nodes, and results in sync ones."""

    tools: Tools
    tool: Tool

    def __call__(self, *unnamed: Any, **arguments: Any) -> Any:
        name = self.tool.name
        if unnamed:
            raise InputError(f"tool {name!r} was called with {len(unnamed)} unnamed; expected its arguments by name")
        encoded = encoded_arguments(name, arguments)
        asynchronous = inspect.iscoroutinefunction(self.tool.forward)
        before = self.tools.before(name, encoded)
        if self.tools.gate is not None:
            before = self.tools.gate.check(name, arguments, encoded, before)
        if before is not None:
            returned = decode(before.encode())
            return _as_awaitable(returned) if asynchronous and _in_loop() else returned
        if asynchronous:
            calling = self._awaited(self.tool.forward(**arguments), encoded, time.time(), time.perf_counter())
            return calling if _in_loop() else _run(calling)
        at, clock = time.time(), time.perf_counter()
        try:
            result = self.tool.forward(**arguments)
        except Exception as error:
            self._failed(error, encoded, at, clock)
            raise
        if inspect.iscoroutine(result):
            calling = self._awaited(result, encoded, at, clock)
            return calling if _in_loop() else _run(calling)
        return self._done(result, encoded, at, clock)

    async def _awaited(self, awaitable: Awaitable[Any], encoded: str, at: float, clock: float) -> Any:
        try:
            result = await awaitable
        except Exception as error:
            self._failed(error, encoded, at, clock)
            raise
        return self._done(result, encoded, at, clock)

    def _done(self, result: Any, encoded: str, at: float, clock: float) -> Any:
        duration = time.perf_counter() - clock
        try:
            stored = encode(result).decode()
        except StateError as error:
            problem = StateError(f"tool {self.tool.name!r}: what it returned cannot be stored: {error}")
            self._failed(problem, encoded, at, clock)
            raise problem from error
        self.tools.report(self.tool, encoded, at, duration, result=stored, status="done")
        return result

    def _failed(self, error: Exception, encoded: str, at: float, clock: float) -> None:
        text = storable(f"{type(error).__name__}: {error}", ERROR)
        self.tools.report(self.tool, encoded, at, time.perf_counter() - clock, error=text, status="failed")


def encoded_arguments(tool: str, arguments: Arguments) -> str:
    """Encode the arguments of a call as typed JSON. Raises StateError with tool and argument."""
    for name, argument in arguments.items():
        try:
            encode(argument)
        except StateError as error:
            raise StateError(f"tool {tool!r}, argument {name!r} cannot be stored: {error}") from error
    # Sorted, so that a repeat with the arguments in another order is recognized as the same call.
    return encode(dict(sorted(arguments.items()))).decode()


def _run(calling: Coroutine[Any, Any, Any]) -> Any:
    import asyncio

    return asyncio.run(calling)


def _in_loop() -> bool:
    import asyncio  # slow to import, and most tools are not async

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _as_awaitable(returned: Any) -> Any:
    return returned


class Calls(Protocol):
    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any: ...


@frozen(slots=True)
class ToolCall:
    """A tool and how to call it. The arguments and the result are typed JSON, as they were recorded."""

    tool: str
    direction: Literal["forward", "reverse"]
    arguments: str
    result: str | None = None


def call_tool(tools: Mapping[str, Tool], call: ToolCall, calls: Calls) -> str | Failure:
    """Call the tool and return its result as typed JSON, or a failure if its code raises."""
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
