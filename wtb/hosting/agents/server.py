"""The server of the Model Context Protocol, over both of its transports and for both of its eras.

It is the SDK's; what tools do is in `calling`. Sources: modelcontextprotocol.io, revisions 2025-11-25 and 2026-07-28.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, BinaryIO, Final, cast

import anyio
import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.context import ServerRequestContext
from mcp.server.extension import compose_tool_call_handler
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from starlette.types import Receive, Scope, Send

from wtb.core.errors import InputError, NotFound, WTBError
from wtb.core.ids import new_id
from wtb.core.telemetry.log_ids import log_ids
from wtb.core.values import Json
from wtb.core.version import __version__
from wtb.display.json_text import as_json
from wtb.hosting.agents.calling import LOOK_S, Answer, Caller, Calls, WaitingFor, find_tool
from wtb.hosting.agents.replies import REPLY_SCHEMA
from wtb.hosting.agents.resources import SCHEME, TEMPLATE, read
from wtb.hosting.agents.tasks import SweepTasks
from wtb.hosting.agents.tools import TOOLS, Tool
from wtb.hosting.api.identities import address_of
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.routes import PREFIX
from wtb.operations.context import Context
from wtb.operations.identity import OPERATOR
from wtb.operations.registry import OPERATIONS, Effect

_log = logging.getLogger("wtb")
MOST_LINE: Final = 8_000_000  # bytes of a request over stdio: more than the arguments of any have

INSTRUCTIONS = (
    "WTB runs a workflow under every combination of its nodes' variants, over a set of cases, and says which is best "
    "by how much. Plan before you submit, wait with `status`, and take the decision of `matrix` as it stands: figures "
    "hold however often you look, and what you add after you have seen results counts as tried. What costs or destroys "
    "asks back: nothing is done until you send its token."
)

_Request = ServerRequestContext[Any, Any]
WhoCalls = Callable[[_Request], Caller]


def make_server(context: Context, who: WhoCalls) -> Server[Any]:
    """Make a server of tools and resources.

    Args:
        context: Where operations act.
        who: Says who calls.
    """
    calls = Calls(context)

    async def list_tools(_: _Request, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_listed(tool) for tool in TOOLS])

    async def call_tool(request: _Request, params: types.CallToolRequestParams) -> types.CallToolResult:
        return await _called(calls, params.name, params.arguments or {}, who(request))

    async def call_for(request: _Request, name: str, arguments: Mapping[str, Json]) -> types.CallToolResult:
        return await _called(calls, name, arguments, who(request))

    async def list_templates(_: _Request, __: types.PaginatedRequestParams | None) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            name="document", uri_template=TEMPLATE, description="What GET of the REST API answers.", mime_type=_JSON
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def list_resources(_: _Request, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[])

    async def read_resource(request: _Request, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        caller = who(request)
        with _logged(caller, "resources/read"):
            try:
                text = await run_sync(read, context, str(params.uri), caller.identity, caller.address)
            except WTBError as error:
                raise MCPError(types.INVALID_PARAMS, str(error)) from None
            except Exception:  # noqa: BLE001 - clients of earlier revisions would be told what it says
                _log.exception("mcp cannot read %s", str(params.uri)[:200])
                raise MCPError(types.INTERNAL_ERROR, _FAULT) from None
        content = types.TextResourceContents(uri=params.uri, mime_type=_JSON, text=text)
        return types.ReadResourceResult(contents=[content])

    server: Server[Any] = Server(
        "wtb",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )
    tasks = SweepTasks(call_for)
    server.extensions[tasks.identifier] = tasks.settings()
    for method in tasks.methods():
        server.add_request_handler(method.method, method.params_type, method.handler)
    calling = compose_tool_call_handler([tasks], call_tool)
    server.add_request_handler("tools/call", types.CallToolRequestParams, calling)
    return server


async def serve_stdio(context: Context) -> None:
    """Answer whoever started this process, until they close its input.

    Args:
        context: Where operations act; whoever started the process has the database anyway.

    Raises:
        InputError: If they send a line that is longer than any request.
    """
    server = make_server(context.importing_nothing(), lambda _: Caller(OPERATOR))
    lines = _Lines(sys.stdin.buffer)
    async with stdio_server(stdin=cast("anyio.AsyncFile[str]", lines)) as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())
    if lines.too_long:
        raise InputError(f"a request of more than {MOST_LINE:,} bytes came; nothing after it is read")


class _Lines:
    """The lines of a file, as long as none is too long: the SDK's own reader holds one however long it becomes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.too_long = False

    async def __aiter__(self) -> AsyncIterator[str]:
        while line := await run_sync(self._file.readline, MOST_LINE + 1, abandon_on_cancel=True):
            if len(line) > MOST_LINE:
                self.too_long = True
                return
            yield line.decode(errors="replace")


class AgentEndpoint:
    """Streamable HTTP, a request at a time: nothing is kept between two of them but consents."""

    def __init__(self, context: Context) -> None:
        """Make it.

        Args:
            context: Where operations act.
        """
        server = make_server(context, _caller)
        # Hosts are checked by the guard in front of it, and so are tokens, at every request.
        self._manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer requests, inside the block."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] != "POST":  # what would be sent by itself is asked for
            await Problem(HTTPStatus.METHOD_NOT_ALLOWED, "expected POST", headers={"Allow": "POST"})(
                scope, receive, send
            )
            return
        await self._manager.handle_request(scope, receive, send)


_JSON = "application/json"
_FAULT = "this is a fault of the server; its log says more"


def _caller(request: _Request) -> Caller:
    asked = request.request
    assert asked is not None  # over HTTP there is one
    return Caller(asked.state.identity, address_of(asked.scope))


def _listed(tool: Tool) -> types.Tool:
    effects = {OPERATIONS[name].effect for name in tool.operations}
    hints = types.ToolAnnotations(
        read_only_hint=effects == {Effect.reads}, destructive_hint=Effect.destroys in effects, open_world_hint=False
    )
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.schema,
        output_schema=REPLY_SCHEMA,
        annotations=hints,
    )


async def _called(calls: Calls, name: str, arguments: Mapping[str, Json], caller: Caller) -> types.CallToolResult:
    try:
        find_tool(name)
    except NotFound as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from None
    with _logged(caller, name):
        return await _carried_out(calls, name, arguments, caller)


def _logged(caller: Caller, what: str) -> AbstractContextManager[None]:
    """Have the log say within which request something happened."""
    return log_ids(request=new_id(), by=caller.identity.name, operation=f"mcp {what}")


async def _carried_out(calls: Calls, name: str, arguments: Mapping[str, Json], caller: Caller) -> types.CallToolResult:
    try:
        if name == "status" and arguments.get("wait_s"):
            await _wait(await run_sync(calls.waiting, name, arguments, caller))
        answer = await run_sync(partial(calls.call, name, arguments, caller))
        if name == "start" and answer.reply["done"] and arguments.get("wait_s"):
            execution = str(answer.reply["document"]["execution"])
            await _wait(await run_sync(calls.waiting, name, arguments, caller, execution))
            answer = await run_sync(calls.started, execution, arguments, caller)
    except WTBError as error:
        return _refused(str(error))
    except Exception:  # noqa: BLE001 - the caller is told nothing of the inside; the log has it
        _log.exception("mcp %s failed", name[:60])
        return _refused(_FAULT)
    return _told(answer)


async def _wait(waiting: WaitingFor) -> None:
    while await run_sync(waiting.goes_on):
        await anyio.sleep(LOOK_S)


def _refused(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text[:4000])], is_error=True)


def _told(answer: Answer) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(text=as_json(answer.reply))]
    content += [
        types.ResourceLink(name=name, uri=f"{SCHEME}{PREFIX}{path}", mime_type=_JSON)
        for name, path in answer.links.items()
    ]
    return types.CallToolResult(content=content, structured_content=answer.reply)
