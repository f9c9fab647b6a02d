"""How a server of tools is reached: what the SDK does, with bounds on what a server makes this process hold.

The SDK's own client over stdio collects a line however long it becomes, and httpx a body however large.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

MOST_LINE = 12_000_000  # bytes of one message: more than a result that is taken has
GRACE_S = 2.0  # that a program has to end once its input is closed, and again once it is told to


class TooLong(ValueError):
    """A server sends a message that is longer than any that is taken."""

    def __init__(self) -> None:
        super().__init__(f"it sent a message of more than {MOST_LINE:,} bytes")


@asynccontextmanager
async def started(
    command: Sequence[str], env: Mapping[str, str], folder: str, errors: Any
) -> AsyncIterator[tuple[Any, Any]]:
    """A program as a server over its standard input and output. Raises TooLong, from the block.

    env: what it is given besides what the SDK lets programs have. errors: where its standard error goes.
    """
    import anyio
    from mcp.client.stdio import get_default_environment

    given = {**get_default_environment(), **env}
    pipe = asyncio.subprocess.PIPE
    # Its own session, so that what it starts ends with it.
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=errors, env=given, cwd=folder, limit=MOST_LINE, start_new_session=True
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
            except ValueError:  # as asyncio says that the limit is passed
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
        async for one in leaves:
            text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
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
    """Signal a program and what it started; on Windows, which knows no groups of processes, the program alone."""
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
    """A client over HTTP whose responses are bounded. Reading one that is too long raises TooLong."""
    import httpx2

    class Body(httpx2.AsyncByteStream):
        def __init__(self, body: Any, *, events: bool) -> None:
            self._body, self._events = body, events

        async def __aiter__(self) -> AsyncIterator[bytes]:
            held, last = 0, b""
            async for part in self._body:
                last = last[-3:] + part
                # Of a stream of events one is held at a time; it ends with an empty line.
                held = 0 if self._events and (b"\n\n" in last or b"\r\n\r\n" in last) else held + len(part)
                if held > MOST_LINE:
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

    given = {**headers, "Accept-Encoding": "identity"}
    return httpx2.AsyncClient(headers=given, timeout=timeout_s, transport=Transport())


def program(command: Sequence[str]) -> Sequence[str]:
    """A command; `python` is the one that WTB runs with, as in the commands of a sweep file."""
    return [sys.executable if command[0] == "python" else command[0], *command[1:]]
