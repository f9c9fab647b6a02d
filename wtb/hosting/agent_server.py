"""The server of the Model Context Protocol, over both transports and for both protocol eras.

It is the SDK's server; `calling` runs the tools. Sources: modelcontextprotocol.io, revisions 2025-11-25 and 2026-07-28.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import Any, BinaryIO, Final, cast, get_type_hints
from urllib.parse import parse_qs, unquote, urlsplit

import anyio
import mcp_types as types
from anyio.to_thread import run_sync
from mcp.server.context import ServerRequestContext
from mcp.server.extension import compose_tool_call_handler
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError
from starlette.types import Receive, Scope, Send

from wtb.core.errors import AccessDenied, InputError, NotFound, WTBError
from wtb.core.ids import log_ids, new_id
from wtb.core.values import Arguments, Json
from wtb.core.version import __version__
from wtb.display.json_text import as_json
from wtb.hosting.agent_calls import LOOK_S, REPLY_SCHEMA, Answer, Caller, Calls, WaitingFor, find_tool
from wtb.hosting.agent_tasks import SweepTasks
from wtb.hosting.agent_tools import TOOLS, Tool
from wtb.hosting.api.identities import address_of
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.routes import PREFIX, ROUTES, Lines, Route
from wtb.operations.auditing import note_refusal
from wtb.operations.context import Context, Origin
from wtb.operations.identity import OPERATOR, Identity
from wtb.operations.registry import OPERATIONS, Effect, arguments_of

SCHEME: Final = "wtb:"
TEMPLATE: Final = f"{SCHEME}{PREFIX}/{{+path}}"
MOST_BYTES: Final = 1_000_000


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"(\{\w+\})", path)
    return re.compile(
        "".join(f"(?P<{part[1:-1]}>[^/]+)" if part.startswith("{") else re.escape(part) for part in parts)
    )


_READS: Final = [(_pattern(route.path), route) for route in ROUTES if route.method == "GET"]


def read(context: Context, uri: str, identity: Identity, address: str | None = None) -> str:
    """Return a document.

    Args:
        context: Where operations act.
        uri: Its URI, such as `wtb:/api/v1/sweeps/ID/matrix`.
        identity: The caller.
        address: The caller's address; None for this machine.

    Returns:
        JSON.

    Raises:
        NotFound: If there is no such document.
        AccessDenied: If the caller may not read it.
        InputError: If it is too long, or an argument is invalid.
    """
    route, arguments = _resolve(uri)
    refusal = identity.refusal(route.needs, everywhere=route.operation.everywhere)
    origin = Origin(f"mcp {route.path}", address, identity.token)
    if refusal is not None:
        denied = AccessDenied(refusal)
        note_refusal(context.noting_for(identity.attribution, origin), route.name, denied)
        raise denied
    acting = context.acting_as(identity, route.needs, origin)
    document = route.present(route.function(acting, **arguments))
    pieces = document.pieces if isinstance(document, Lines) else [as_json(document)]
    content = bytearray()
    for piece in pieces:
        content += piece.encode() if isinstance(piece, str) else piece
        if len(content) > MOST_BYTES:
            raise InputError(f"{uri} is longer than {MOST_BYTES:,} bytes; get it from the REST API")
    try:
        return content.decode()
    except UnicodeDecodeError:  # a file that a node left
        raise InputError(f"{uri} is not text; get it from the REST API") from None


def _resolve(uri: str) -> tuple[Route, Arguments]:
    try:
        split = urlsplit(uri)
    except ValueError:  # of brackets that are no address
        raise NotFound(f"there is no resource {uri[:200]!r}; expected {TEMPLATE}") from None
    path = split.path.removeprefix(PREFIX)
    if f"{split.scheme}:" != SCHEME or path == split.path:
        raise NotFound(f"there is no resource {uri[:200]!r}; expected {TEMPLATE}")
    for pattern, route in _READS:
        match = pattern.fullmatch(path)
        if match is not None:
            path_arguments = {name: unquote(segment) for name, segment in match.groupdict().items()}
            return route, {**path_arguments, **_query(route, split.query)}
    raise NotFound(f"there is no resource {uri[:200]!r}; expected {TEMPLATE}")


def _query(route: Route, query: str) -> Arguments:
    """Parse a query into arguments of the operation: numbers, switches, texts and lists."""
    names = set(arguments_of(route.function)) - route.left_out
    values_by_name = parse_qs(query, keep_blank_values=True)
    if unknown := values_by_name.keys() - names:
        raise InputError(f"{route.path} has no {sorted(unknown)[0]!r}; it has {', '.join(sorted(names))}")
    hints = get_type_hints(route.function)
    return {name: _as(name, hints[name], values) for name, values in values_by_name.items()}


def _as(name: str, hint: Any, values: Sequence[str]) -> Any:
    for candidate in (values[-1], list(values)):
        with suppress(ValidationError):
            return TypeAdapter(hint).validate_python(candidate)
    raise InputError(f"{name} is {values[-1][:100]!r}, which it cannot be", argument=name)


_log = logging.getLogger("wtb")
MOST_LINE: Final = 8_000_000  # bytes of a request over stdio: more than the arguments of any have

INSTRUCTIONS = (
    "WTB runs a workflow under every combination of its nodes' variants, over a set of cases, and reports which is "
    "best and by how much. Plan before you submit, wait with `status`, and take the decision of `matrix` as it stands: "
    "figures hold however often you look, and what you add after you have seen results counts as tried. Tools that "
    "spend or destroy require confirmation: nothing is done until you send the token of their first reply."
)

_Request = ServerRequestContext[Any, Any]
WhoCalls = Callable[[_Request], Caller]


def make_server(context: Context, who: WhoCalls) -> Server[Any]:
    """Make a server of tools and resources.

    Args:
        context: Where operations act.
        who: Returns the caller of a request.
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
            name="document", uri_template=TEMPLATE, description="The response of GET in the REST API.", mime_type=_JSON
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
    """Serve the parent process over stdin and stdout, until it closes stdin.

    Args:
        context: The context of operations. The parent process has the database anyway.

    Raises:
        InputError: If a line is longer than any request.
    """
    server = make_server(context.importing_nothing(), lambda _: Caller(OPERATOR))
    lines = _Lines(sys.stdin.buffer)
    async with stdio_server(stdin=cast("anyio.AsyncFile[str]", lines)) as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())
    if lines.too_long:
        raise InputError(f"a request of more than {MOST_LINE:,} bytes came; nothing after it is read")


class _Lines:
    """The lines of a file, up to one that is too long: the SDK's own reader would hold a line of any length."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.too_long = False

    async def __aiter__(self) -> AsyncIterator[str]:
        # A blocked read cannot be interrupted, and would keep the server from ending before the next line.
        while line := await run_sync(self._file.readline, MOST_LINE + 1, abandon_on_cancel=True):
            if len(line) > MOST_LINE:
                self.too_long = True
                return
            yield line.decode(errors="replace")


class AgentEndpoint:
    """Streamable HTTP without sessions: only used consents are kept between two requests."""

    def __init__(self, context: Context) -> None:
        """Make it.

        Args:
            context: Where operations act.
        """
        server = make_server(context, _caller)
        # The guard in front of it checks hosts and tokens of every request, so the SDK does not have to.
        self._manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer requests, inside the block."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        # GET would open a stream of messages from the server, and this one sends none by itself.
        if scope["method"] != "POST":
            await Problem(HTTPStatus.METHOD_NOT_ALLOWED, "expected POST", headers={"Allow": "POST"})(
                scope, receive, send
            )
            return
        await self._manager.handle_request(scope, receive, send)


_JSON = "application/json"
_FAULT = "this is a fault of the server; its log has the details"


def _caller(request: _Request) -> Caller:
    http_request = request.request
    assert http_request is not None  # over HTTP there is one
    return Caller(http_request.state.identity, address_of(http_request.scope))


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
        # An unknown tool is an error of the protocol. All other errors are results, which agents can read.
        find_tool(name)
    except NotFound as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from None
    with _logged(caller, name):
        return await _carried_out(calls, name, arguments, caller)


def _logged(caller: Caller, what: str) -> AbstractContextManager[None]:
    """Add the request, the caller and the operation to log lines of the block."""
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
    return _to_tool_result(answer)


async def _wait(waiting: WaitingFor) -> None:
    # Between two looks no thread is blocked, because few threads serve all callers.
    while await run_sync(waiting.should_wait):
        await anyio.sleep(LOOK_S)


def _refused(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text[:4000])], is_error=True)


def _to_tool_result(answer: Answer) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(text=as_json(answer.reply))]
    content += [
        types.ResourceLink(name=name, uri=f"{SCHEME}{PREFIX}{path}", mime_type=_JSON)
        for name, path in answer.links.items()
    ]
    return types.CallToolResult(content=content, structured_content=answer.reply)
