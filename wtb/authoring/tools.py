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
from typing import Any, NotRequired, Protocol, TypedDict

from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, StateError, meant_or_known
from wtb.core.mappings import Arguments
from wtb.core.serialization.codec import decode, encode
from wtb.core.serialization.plain_json import storable

ERROR = 2000  # characters of what an error says


@dataclass
class Tool:
    """A function that nodes call by name, and what takes such a call back, where anything does.

    forward: called with the arguments, by keyword; sync or async. reverse: called as `reverse(result, **arguments)`.
    version: says of which version the tool of a server was that was called last.
    """

    name: str
    forward: Callable[..., Any]
    reverse: Callable[..., Any] | None = None
    description: str = ""
    version: Callable[[], str | None] = lambda: None

    def reversed_by(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: `fn(result, **arguments)` takes a call back."""
        self.reverse = fn
        return fn

    def problems(self) -> Iterable[str]:
        """What is wrong with it, in words."""
        functions: dict[str, Any] = {"forward": self.forward, "reverse": self.reverse}
        for what, fn in functions.items():
            if fn is not None and not callable(fn):
                yield f"tool {self.name!r}: its {what} function is {type(fn).__name__}; expected a callable"
            elif what == "forward":
                parameters = inspect.signature(fn).parameters.values()
                for one in (p.name for p in parameters if p.kind is p.POSITIONAL_ONLY):
                    yield f"tool {self.name!r}: {one!r} is positional-only; tools are called with arguments by name"


class ToolReport(TypedDict):
    """A call of a tool that has ended.

    arguments, result: typed JSON. at: seconds since the epoch. number: which call of its node run it is, once recorded.
    version: a digest of what the server said of the tool.
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
    """Holds calls of tools against policies."""

    def check(self, tool: str, arguments: Arguments, stored: str, result: str | None) -> str | None:
        """Return what an earlier call returned, or None if this one is to be made; see `ToolGate`."""


class Tools:
    """The tools of a workflow, as one attempt calls them: `tools.book(flight=...)` or `tools["book"](flight=...)`.

    on_call: called with each call as soon as it has ended.
    done: calls of this node run that are not made again, in their order: the n-th call of a tool with the same
    arguments returns what it returned then. The first call that is not among them ends that.
    gate: holds each call against policies; None without any.
    """

    def __init__(
        self, known: Mapping[str, Tool], on_call: OnCall, done: Iterable[ToolReport] = (), gate: Gate | None = None
    ) -> None:
        self.gate = gate
        self._known = known
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
        if name not in self._known:
            known = meant_or_known(name, self._known) if self._known else "; it has none: add it with @wf.tool"
            raise InputError(f"the workflow has no tool {name!r}{known}")
        return _Bound(self, self._known[name])

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):  # what Python and notebooks look for
            raise AttributeError(name)
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def of(self, server: str) -> ServerTools:
        """The tools of a server, by their own names. Raises InputError where the workflow declares none."""
        prefix = f"{server}."
        names = [name.removeprefix(prefix) for name in self._known if name.startswith(prefix)]
        if not names:
            servers = {name.partition(".")[0] for name in self._known if "." in name}
            none = "; it has none: declare it with use_server(), or under 'mcp' of the sweep file"
            known = meant_or_known(server, servers) if servers else none
            raise InputError(f"the workflow has no MCP server {server!r}{known}")
        return ServerTools(self, server, names)

    def before(self, name: str, arguments: str) -> str | None:
        """What an earlier attempt's call returned, as typed JSON, or None where this one has to be made."""
        key = (name, arguments)
        with self._lock:
            if results := self._returned.get(key):
                return results.popleft()
            if key not in self._failed:
                self._returned.clear()
        return None

    def report(
        self, tool: Tool, arguments: str, at: float, duration_s: float, *,
        status: str, result: str | None = None, error: str | None = None,
    ) -> None:  # fmt: skip
        """Report a call that has ended. at: seconds since the epoch."""
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
            known = meant_or_known(name, self.names)
            raise InputError(f"no tool {name!r} of MCP server {self.server!r} is declared{known}")
        return self.tools[f"{self.server}.{name}"]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):  # what Python and notebooks look for
            raise AttributeError(name)
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)


@frozen
class _Bound:
    """A tool, to be called by an attempt. Async tools give what can be awaited; a sync node has their result."""

    tools: Tools
    tool: Tool

    def __call__(self, *unnamed: Any, **arguments: Any) -> Any:
        name = self.tool.name
        if unnamed:
            raise InputError(f"tool {name!r} was called with {len(unnamed)} unnamed; expected its arguments by name")
        given = encoded_arguments(name, arguments)
        asynchronous = inspect.iscoroutinefunction(self.tool.forward)
        before = self.tools.before(name, given)
        if self.tools.gate is not None:
            before = self.tools.gate.check(name, arguments, given, before)
        if before is not None:
            returned = decode(before.encode())
            return _given(returned) if asynchronous and _in_loop() else returned
        if asynchronous:
            calling = self._awaited(self.tool.forward(**arguments), given, time.time(), time.perf_counter())
            return calling if _in_loop() else _run(calling)
        at, clock = time.time(), time.perf_counter()
        try:
            result = self.tool.forward(**arguments)
        except Exception as error:
            self._failed(error, given, at, clock)
            raise
        if inspect.iscoroutine(result):
            calling = self._awaited(result, given, at, clock)
            return calling if _in_loop() else _run(calling)
        return self._done(result, given, at, clock)

    async def _awaited(self, awaitable: Awaitable[Any], given: str, at: float, clock: float) -> Any:
        try:
            result = await awaitable
        except Exception as error:
            self._failed(error, given, at, clock)
            raise
        return self._done(result, given, at, clock)

    def _done(self, result: Any, given: str, at: float, clock: float) -> Any:
        duration = time.perf_counter() - clock
        try:
            stored = encode(result).decode()
        except StateError as error:
            problem = StateError(f"tool {self.tool.name!r}: what it returned cannot be stored: {error}")
            self._failed(problem, given, at, clock)
            raise problem from error
        self.tools.report(self.tool, given, at, duration, result=stored, status="done")
        return result

    def _failed(self, error: Exception, given: str, at: float, clock: float) -> None:
        text = storable(f"{type(error).__name__}: {error}", ERROR)
        self.tools.report(self.tool, given, at, time.perf_counter() - clock, error=text, status="failed")


def encoded_arguments(tool: str, arguments: Arguments) -> str:
    """The arguments of a call as typed JSON. Raises StateError naming tool and argument."""
    for name, value in arguments.items():
        try:
            encode(value)
        except StateError as error:
            raise StateError(f"tool {tool!r}, argument {name!r} cannot be stored: {error}") from error
    return encode(dict(sorted(arguments.items()))).decode()


def _run(calling: Coroutine[Any, Any, Any]) -> Any:
    import asyncio

    return asyncio.run(calling)


def _in_loop() -> bool:
    import asyncio  # which takes its time: most tools are not async

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _given(returned: Any) -> Any:
    return returned
