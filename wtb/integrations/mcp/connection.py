"""A connection of this process to an MCP server: made with the first call, on an event loop of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from wtb.authoring.context.connections import explained
from wtb.config.credentials import VARIABLE
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError
from wtb.core.mappings import Arguments
from wtb.integrations.mcp import transports

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, ListToolsResult, Tool

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
        wtb.integrations.mcp.connection.ToolFailed: files.read: no such file
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

    folder: where the command runs. env: what it is given besides `PATH`, `HOME` and the like. timeout_s: of one call.
    names_variables: `${NAME}` in `env` and `headers` is a variable of the environment.
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
        """`env` or `headers`, as the server is given them. Raises InputError for a variable that is not set."""
        if not self.names_variables:
            return dict(texts)
        try:
            return {key: VARIABLE.sub(lambda found: os.environ[found[1]], text) for key, text in texts.items()}
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
        """Of which version a tool was when it was called last."""
        return self._versions.get(tool)

    def tools(self) -> list[Tool]:
        """The tools that the server has now. Raises ServerLost, ToolFailed."""
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
                self._thread = threading.Thread(target=self._loop.run_forever, name="wtb-mcp", daemon=True)
                self._thread.start()
            with explained():  # calls of tools are recorded
                return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _call(self, tool: str, arguments: Arguments) -> Any:
        name = f"{self.server.name}.{tool}"
        await self._look()
        return _result(name, await self._answer(name, lambda client: client.call_tool(tool, dict(arguments))))

    async def _look(self) -> None:
        """List the tools where that was not done lately."""
        if time.monotonic() >= self._listed_until:
            self._versions = {one.name: version_of(one) for one in await self._tools()}
            self._listed_until = time.monotonic() + LISTED_S

    async def _tools(self) -> list[Tool]:
        found: list[Tool] = []
        cursor = None
        for _ in range(MOST_PAGES):
            page = await self._answer(f"{self.server.name}: its list of tools", partial(_page, cursor=cursor))
            found += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise ServerLost(f"MCP server {self.server.name!r} lists its tools without an end")

    async def _answer(self, what: str, ask: Callable[[Client], Awaitable[T]]) -> T:
        """What the server answers to a request. Raises ToolFailed, ServerLost."""
        client = await self._connected()
        try:
            async with asyncio.timeout(self.server.timeout_s):
                return await ask(client)
        except TimeoutError as error:
            raise ToolFailed(f"{what} did not answer within {self.server.timeout_s:g} s") from error
        except Exception as error:
            if _is_refusal(error):
                raise ToolFailed(f"{what}: {error}") from error
            why = await self._closed() or error
            raise ServerLost(f"MCP server {self.server.name!r} was lost during {what}: {_told(why)}") from error

    async def _connected(self) -> Client:
        if self._client is None or self._holding is None:
            self._client, self._end = asyncio.get_running_loop().create_future(), asyncio.Event()
            self._holding = asyncio.create_task(_hold(self.server, self._client, self._end))
        client, holding = self._client, self._holding
        either: list[asyncio.Future[Any]] = [client, holding]
        await asyncio.wait(either, timeout=START_S, return_when=asyncio.FIRST_COMPLETED)
        if client.done():
            return client.result()
        error = holding.exception() if holding.done() else None
        await self._closed()
        what = f"no answer within {START_S:g} s" if error is None else _told(error)
        how = f"`{' '.join(self.server.command)}`" if self.server.command else self.server.url
        raise ServerLost(f"MCP server {self.server.name!r} ({how}) cannot be used: {what}") from error

    async def _closed(self) -> BaseException | None:
        """End the connection. Returns what it had ended with, if it had by itself."""
        self._listed_until = 0.0
        end, holding, self._client, self._end = self._end, self._holding, None, None
        if end is not None and holding is not None:
            end.set()
            done, _ = await asyncio.wait([holding], timeout=CLOSE_S)
            holding.cancel()
            return holding.exception() if done else None
        return None


def version_of(tool: Tool) -> str:
    """A digest of what a server says of a tool."""
    text = json.dumps([tool.name, tool.description, tool.input_schema], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


async def _page(client: Client, cursor: str | None) -> ListToolsResult:
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
        command, env = transports.program(server.command), server.filled(server.env)
        # What the server writes there is the process's: sys.stderr may be one node's alone, and no file.
        errors = sys.__stderr__ or sys.stderr
        async with Client(transports.started(command, env, server.folder, errors)) as client:
            yield client
        return
    web = transports.web(server.filled(server.headers), server.timeout_s)
    async with web, Client(streamable_http_client(server.url, http_client=web)) as client:
        yield client


def _is_refusal(error: Exception) -> bool:
    """Whether the server is there, and says no."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and error.code != CONNECTION_CLOSED


def _told(error: BaseException) -> str:
    """What an error says, of a group of errors what the first of them says."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _result(name: str, answer: CallToolResult) -> Any:
    size = len(answer.model_dump_json())
    if size > MOST_BYTES:
        raise ToolFailed(f"{name} returned {size:,} bytes; at most {MOST_BYTES:,} are taken")
    texts = [one.text for one in answer.content if one.type == "text"]
    if answer.is_error:
        raise ToolFailed(f"{name}: {' '.join(texts) or 'it failed, and says nothing'}")
    structured = answer.structured_content
    if structured is not None:
        return structured["result"] if structured.keys() == {"result"} else structured
    if len(texts) == len(answer.content):
        return "\n".join(texts)
    return [one.model_dump(mode="json", exclude_none=True) for one in answer.content]
