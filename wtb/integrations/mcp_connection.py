"""A connection of this process to an MCP server, made with the first call, and its bounded transports."""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from wtb.authoring.context.connections import explained
from wtb.config.credentials import VARIABLE
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.values import Arguments

if TYPE_CHECKING:
    import httpx2
    from mcp import Client
    from mcp.types import CallToolResult, ListToolsResult, Tool

MOST_LINE = 12_000_000  # bytes of one message: more than a result that is taken has
GRACE_S = 2.0  # that a program has to end once its input is closed, and again once it got a signal


class TooLong(ValueError):
    """A server sends a message that is longer than any that is taken."""

    def __init__(self) -> None:
        super().__init__(f"it sent a message of more than {MOST_LINE:,} bytes")


@asynccontextmanager
async def started(
    command: Sequence[str], env: Mapping[str, str], folder: str, errors: Any
) -> AsyncIterator[tuple[Any, Any]]:
    """Start a program as a server over its standard input and output. Raises TooLong, from the block.

    Args:
        command: The program with its arguments.
        env: Variables besides those that the SDK lets programs have.
        folder: The working directory of the program.
        errors: The file for its standard error.
    """
    import anyio
    from mcp.client.stdio import get_default_environment

    environment = {**get_default_environment(), **env}
    pipe = asyncio.subprocess.PIPE
    # Its own session, so that what it starts ends with it.
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=pipe,
        stdout=pipe,
        stderr=errors,
        env=environment,
        cwd=folder,
        limit=MOST_LINE,
        start_new_session=True,
    )
    arrives, incoming = anyio.create_memory_object_stream[Any](0)
    outgoing, leaves = anyio.create_memory_object_stream[Any](0)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_receive, process, arrives)
            tasks.start_soon(_send, process, leaves)
            try:
                yield incoming, outgoing
            finally:
                tasks.cancel_scope.cancel()
    finally:
        for stream in (arrives, incoming, outgoing, leaves):
            stream.close()
        # A cancelled block must still end the program, or it would outlive the connection.
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _receive(process: asyncio.subprocess.Process, arrives: Any) -> None:
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    assert process.stdout is not None
    with arrives, suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:  # asyncio's error for a line beyond the limit
                raise TooLong from None
            if not line:
                return
            try:
                message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValueError as error:  # such as what a program prints beside
                await arrives.send(error)
                continue
            await arrives.send(message)


async def _send(process: asyncio.subprocess.Process, leaves: Any) -> None:
    assert process.stdin is not None
    with leaves, suppress(ConnectionError):
        async for session_message in leaves:
            text = session_message.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close its input, then terminate it and what it started, then kill them."""
    assert process.stdin is not None
    process.stdin.close()
    for hard in (None, False, True):
        if hard is not None:
            _stop(process, hard=hard)
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await _drained(process)
                break
    _stop(process, hard=True)  # what it left behind


def _stop(process: asyncio.subprocess.Process, *, hard: bool) -> None:
    """Signal a program and its descendants; on Windows, which has no process groups, only the program."""
    with suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL if hard else signal.SIGTERM)
        elif hard:
            process.kill()
        else:
            process.terminate()


async def _drained(process: asyncio.subprocess.Process) -> None:
    """Wait for its end, and read what it still writes, so that it can come to it."""
    assert process.stdout is not None
    while await process.stdout.read(65_536):
        pass
    await process.wait()


def web(headers: Mapping[str, str], timeout_s: float) -> httpx2.AsyncClient:
    """Make an HTTP client whose responses are bounded. Reading one that is too long raises TooLong."""
    import httpx2

    class Body(httpx2.AsyncByteStream):
        def __init__(self, body: Any, *, events: bool) -> None:
            self._body, self._events = body, events

        async def __aiter__(self) -> AsyncIterator[bytes]:
            buffered, last = 0, b""
            async for part in self._body:
                # The end of an event, of up to four bytes, may be split between two parts.
                last = last[-3:] + part
                # Of a stream of events one is held at a time; it ends with an empty line.
                buffered = 0 if self._events and (b"\n\n" in last or b"\r\n\r\n" in last) else buffered + len(part)
                if buffered > MOST_LINE:
                    raise TooLong
                yield part

        async def aclose(self) -> None:
            await self._body.aclose()

    class Transport(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            response = await super().handle_async_request(request)
            if "content-encoding" in response.headers:  # which was not asked for, and may grow without bound
                await response.aclose()
                raise httpx2.DecodingError("it sent a compressed response, which was not asked for", request=request)
            events = response.headers.get("content-type", "").startswith("text/event-stream")
            response.stream = Body(response.stream, events=events)
            return response

    # The bound is on bytes that arrive, which would say little about a compressed body.
    all_headers = {**headers, "Accept-Encoding": "identity"}
    return httpx2.AsyncClient(headers=all_headers, timeout=timeout_s, transport=Transport())


def program(command: Sequence[str]) -> Sequence[str]:
    """Return a command in which `python` is the one that WTB runs with, as in the commands of a sweep file."""
    return [sys.executable if command[0] == "python" else command[0], *command[1:]]


T = TypeVar("T")
START_S = 30.0  # until a server has to have answered its first request
CLOSE_S = 8.0  # that a server has to end: it is terminated after 2 s, and killed after 4
MOST_BYTES = 10_000_000  # of what a tool returns
LISTED_S = 1.0  # for which a list of tools is taken for what the server has: not all say that they change it
MOST_PAGES = 100  # of a list of tools: a server that never comes to its end is at fault


class ToolFailed(RuntimeError):
    """A tool of an MCP server answered with an error, not in time, or with what cannot be used.

    Example:
        >>> from wtb.integrations.mcp import ToolFailed
        >>> raise ToolFailed("files.read: no such file")
        Traceback (most recent call last):
        wtb.integrations.mcp_connection.ToolFailed: files.read: no such file
    """


class ServerLost(ConnectionError):
    """An MCP server cannot be started or reached, or went away during a call.

    Example:
        >>> from wtb.integrations.mcp import ServerLost
        >>> issubclass(ServerLost, ConnectionError)
        True
    """


@frozen
class Server:
    """An MCP server: a command that is started, or an address.

    Attributes:
        name: Its name in the workflow.
        command: The command that starts it; empty if it has an address.
        url: Its address; empty if it is started.
        env: Variables for the command besides `PATH`, `HOME` and the like.
        headers: Headers of requests to the address.
        folder: The working directory of the command.
        timeout_s: Seconds that one call may take.
        names_variables: `${NAME}` in `env` and `headers` stands for a variable of the environment.
    """

    name: str
    command: Sequence[str] = ()
    url: str = ""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    folder: str = field(default_factory=os.getcwd)
    timeout_s: float = 60.0
    names_variables: bool = False

    def filled(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return `env` or `headers` as the server gets them. Raises InputError for a variable that is not set."""
        if not self.names_variables:
            return dict(texts)
        try:
            return {key: VARIABLE.sub(lambda match: os.environ[match[1]], text) for key, text in texts.items()}
        except KeyError as error:
            raise InputError(f"the variable {error.args[0]} is not set") from None


class Connection:
    """Calls tools of a server. That it was lost is an error of one call; the next one starts or reaches it anew."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: asyncio.Future[Client] | None = None
        self._end: asyncio.Event | None = None
        self._holding: asyncio.Task[None] | None = None
        self._listed_until = 0.0
        self._versions: Mapping[str, str] = {}

    def call(self, tool: str, arguments: Arguments) -> concurrent.futures.Future[Any]:
        """Call a tool. The result is what the server gave: structured content, else its text, else its contents.

        Raises, from the result:
            ToolFailed: The tool answered with an error, not in time, or with too much.
            ServerLost: The server is out of reach.
        """
        return self._submit(self._call(tool, arguments))

    def version(self, tool: str) -> str | None:
        """Return the version that a tool had when it was called last."""
        return self._versions.get(tool)

    def tools(self) -> list[Tool]:
        """Return the tools that the server has now. Raises ServerLost, ToolFailed."""
        return self._submit(self._tools()).result()

    def close(self) -> None:
        """End the connection, and the server if it was started."""
        if self._loop is not None and self._thread is not None:
            self._submit(self._closed()).result(START_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = None

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # A daemon, so that a process that never closes the connection can end.
                self._thread = threading.Thread(target=self._loop.run_forever, name="wtb-mcp", daemon=True)
                self._thread.start()
            with explained():  # calls of tools are recorded
                return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _call(self, tool: str, arguments: Arguments) -> Any:
        name = f"{self.server.name}.{tool}"
        # The version of a tool is recorded with the call, so it must be known before the call is made.
        await self._look()
        return _result(name, await self._answer(name, lambda client: client.call_tool(tool, dict(arguments))))

    async def _look(self) -> None:
        """List the tools, unless that was done lately."""
        if time.monotonic() >= self._listed_until:
            self._versions = {tool.name: version_of(tool) for tool in await self._tools()}
            self._listed_until = time.monotonic() + LISTED_S

    async def _tools(self) -> list[Tool]:
        tools: list[Tool] = []
        cursor = None
        for _ in range(MOST_PAGES):
            page = await self._answer(f"{self.server.name}: its list of tools", partial(_page, cursor=cursor))
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return tools
        raise ServerLost(f"MCP server {self.server.name!r} lists tools endlessly")

    async def _answer(self, what: str, ask: Callable[[Client], Awaitable[T]]) -> T:
        """Send a request and return the answer of the server. Raises ToolFailed, ServerLost."""
        client = await self._connected()
        try:
            async with asyncio.timeout(self.server.timeout_s):
                return await ask(client)
        except TimeoutError as error:
            raise ToolFailed(f"{what} did not respond within {self.server.timeout_s:g} s") from error
        except Exception as error:
            if _is_refusal(error):
                raise ToolFailed(f"{what}: {error}") from error
            # The error of the call is often only that a stream was closed. The error that ended the connection says
            # why.
            why = await self._closed() or error
            raise ServerLost(
                f"MCP server {self.server.name!r} was lost during {what}: {_describe_error(why)}"
            ) from error

    async def _connected(self) -> Client:
        if self._client is None or self._holding is None:
            self._client, self._end = asyncio.get_running_loop().create_future(), asyncio.Event()
            self._holding = asyncio.create_task(_hold(self.server, self._client, self._end))
        client, holding = self._client, self._holding
        either: list[asyncio.Future[Any]] = [client, holding]
        # If connecting fails, only the task ends, and the future of the client stays pending.
        await asyncio.wait(either, timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
        if client.done():
            return client.result()
        error = holding.exception() if holding.done() else None
        await self._closed()
        what = f"no answer within {START_S:g} s" if error is None else _describe_error(error)
        how = f"`{' '.join(self.server.command)}`" if self.server.command else self.server.url
        raise ServerLost(f"MCP server {self.server.name!r} ({how}) cannot be used: {what}") from error

    async def _closed(self) -> BaseException | None:
        """End the connection. Returns what it had ended with, if it had by itself."""
        self._listed_until = 0.0
        end, holding, self._client, self._end = self._end, self._holding, None, None
        if end is not None and holding is not None:
            end.set()
            # A server that does not end in time must not hold up the caller, so its task is cancelled.
            done, _ = await asyncio.wait([holding], timeout=CLOSE_S)
            holding.cancel()
            return holding.exception() if done else None
        return None


def version_of(tool: Tool) -> str:
    """Return a digest of the description of a tool: its name, its text and its schema."""
    text = json.dumps([tool.name, tool.description, tool.input_schema], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


async def _page(client: Client, cursor: str | None) -> ListToolsResult:
    # The client's own cache could hide a tool that has changed.
    return await client.list_tools(cursor=cursor, cache_mode="bypass")


async def _hold(server: Server, client_future: asyncio.Future[Client], end: asyncio.Event) -> None:
    """Hold a connection open until its end: it has to be closed by the task that opened it."""
    async with _client(server) as client:
        client_future.set_result(client)
        await end.wait()


@asynccontextmanager
async def _client(server: Server) -> AsyncIterator[Client]:
    try:
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client
    except ImportError as error:
        raise InputError('MCP servers need the package mcp: pip install "workflow-test-bench[mcp]"') from error
    if server.command:
        command, env = program(server.command), server.filled(server.env)
        # What the server writes there is the process's: sys.stderr may be one node's alone, and no file.
        errors = sys.__stderr__ or sys.stderr
        async with Client(started(command, env, server.folder, errors)) as client:
            yield client
        return
    web_client = web(server.filled(server.headers), server.timeout_s)
    async with web_client, Client(streamable_http_client(server.url, http_client=web_client)) as client:
        yield client


def _is_refusal(error: Exception) -> bool:
    """Return whether the server is reachable and refused the request."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and error.code != CONNECTION_CLOSED


def _describe_error(error: BaseException) -> str:
    """Return the message of an error, or of the first one in a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _result(name: str, answer: CallToolResult) -> Any:
    size = len(answer.model_dump_json())
    if size > MOST_BYTES:
        raise ToolFailed(f"{name} returned {size:,} bytes; at most {MOST_BYTES:,} are taken")
    texts = [part.text for part in answer.content if part.type == "text"]
    if answer.is_error:
        raise ToolFailed(f"{name}: {' '.join(texts) or 'it failed without a message'}")
    structured = answer.structured_content
    if structured is not None:
        # The SDK wraps results that are no objects in {"result": ...}, since structured content must be an object.
        return structured["result"] if structured.keys() == {"result"} else structured
    if len(texts) == len(answer.content):
        return "\n".join(texts)
    return [part.model_dump(mode="json", exclude_none=True) for part in answer.content]
