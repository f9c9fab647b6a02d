"""The application: routes made of operations."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from http import HTTPStatus
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from anyio.to_thread import current_default_thread_limiter, run_sync
from fastapi import APIRouter, Body, Depends, FastAPI, Path, Query, Request
from fastapi.exceptions import RequestValidationError, ValidationException, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as StarletteRoute

from wtb.config.distribution import pip_install
from wtb.core.errors import AccessDenied, WTBError
from wtb.core.ids import log_ids, new_id
from wtb.core.values import Arguments
from wtb.core.version import __version__
from wtb.hosting.api import sign_in, web_pages
from wtb.hosting.api.ends import CancelOnDisconnect, operation_routes, outcome_routes, when_ended
from wtb.hosting.api.guard import Doors, Guard, Limits
from wtb.hosting.api.idempotency import answered_once, changed_if_current, is_known, key_of, tag_of, when_answered
from wtb.hosting.api.identities import Identities, needing, origin_of
from wtb.hosting.api.long_running import WAIT_S, Asked, LongOperations, Prefer, Wait, seconds_to_wait
from wtb.hosting.api.problems import PROBLEM, Problem, fault, json_response, problem_of
from wtb.hosting.api.reference import examples_of, reference_route
from wtb.hosting.api.routes import AGENTS, METRICS, PREFIX, ROUTES, Lines, Route
from wtb.hosting.api.streaming import execution, follow, subscriptions
from wtb.hosting.api.streaming.execution import Started
from wtb.hosting.api.streaming.streams import Streams
from wtb.hosting.api.threads import OPERATIONS, run_quickly
from wtb.hosting.api.uploads import upload_routes
from wtb.hosting.api.web_pages import document, is_for_people, page_routes
from wtb.operations.auditing import note_refusal
from wtb.operations.context import Context
from wtb.operations.identity import Identity
from wtb.operations.methods import arguments_described
from wtb.operations.registry import Effect, Permission, arguments_of
from wtb.store.access.requests import NewOperation
from wtb.store.tables.schema import REVISION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from wtb.hosting.agent_server import AgentEndpoint
    from wtb.operations.context import Origin
    from wtb.store.database import Database


def metrics_router(context: Context, subscribers: Callable[[], int]) -> APIRouter:
    """Return the route by which Prometheus reads a server.

    Args:
        context: The context of operations.
        subscribers: Returns the number of followed streams.
    """
    routes = APIRouter(tags=["metrics"])
    if find_spec("prometheus_client") is None:

        @routes.get(METRICS, summary="Show metrics as Prometheus reads them.")
        def missing() -> Response:
            return Problem(HTTPStatus.NOT_IMPLEMENTED, f"metrics need more packages: {pip_install('metrics')}")

        return routes

    from prometheus_client.registry import Collector

    from wtb.hosting.metrics import DatabaseMetrics, ProcessMetrics, Tallies, exposition

    tallies, process = Tallies(), ProcessMetrics(subscribers, context.database)

    @routes.get(METRICS, summary="Show metrics as Prometheus reads them.", dependencies=[needing(Permission.read)])
    def metrics(request: Request) -> Response:
        identity: Identity = request.state.identity
        database = context.acting_as(identity, Permission.read).database
        collectors: list[Collector] = [DatabaseMetrics(database, tallies)]
        # The figures of the process are those of all projects together.
        if identity.may[Permission.read] is None:
            collectors.append(process)
        body, media_type = exposition(collectors, request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": media_type})

    return routes


_log = logging.getLogger("wtb")
_READY_S = 1.0  # for so long it is known that the database answers


def make_app(
    context: Context,
    *,
    token: str,
    hosts: Collection[str],
    doors: Doors | None = None,
    limits: Limits | None = None,
    agents: bool = False,
) -> FastAPI:
    """Make the application that serves requests by operations.

    Args:
        context: The context of the operations.
        token: The operator's token, which permits everything.
        hosts: The host names that requests may use.
        doors: The ways to sign in.
        limits: The limits of a request.
        agents: Whether to serve agents, too, at `/mcp`.

    Returns:
        An ASGI application.
    """

    context = context.importing_nothing()
    identities, doors = Identities(context, token), doors or Doors()
    streams = Streams(context, identities.still_active)
    long_operations = LongOperations(context.database)
    endpoint = _agent_endpoint(context) if agents else None

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # By default AnyIO has 40 threads, more than there are connections to the database.
        current_default_thread_limiter().total_tokens = OPERATIONS
        agent_requests = endpoint.running() if endpoint else nullcontext()
        async with streams.reading(), long_operations.renewing(), agent_requests:
            yield

    app = FastAPI(
        title="WTB",
        version=__version__,
        docs_url=None,  # FastAPI's page loads scripts from another host
        redoc_url=None,
        openapi_url=f"{PREFIX}/openapi.json",
        lifespan=lifespan,
        responses={"default": PROBLEM},
    )
    app.add_middleware(Guard, identities=identities, hosts=hosts, doors=doors, limits=limits or Limits())
    app.add_exception_handler(WTBError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_bad_request)
    app.add_exception_handler(WebSocketRequestValidationError, _on_bad_request)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(Exception, _on_fault)
    app.add_api_route(f"{PREFIX}/health", _health, methods=["GET"], summary="Report that the server responds.")
    app.add_api_route(
        f"{PREFIX}/ready", _readiness(context.database), methods=["GET"], summary="Report that the server can work."
    )
    for route in ROUTES:
        app.add_api_route(
            PREFIX + route.path,
            _endpoint(route, context, long_operations, streams),
            methods=[route.method],
            summary=route.summary,
            tags=[route.path.split("/")[1]],
            operation_id=_id_of(route),
            response_model=None,
            status_code=HTTPStatus.OK if route.location is None else HTTPStatus.CREATED,
            responses=_further_responses(route),
            dependencies=[_permission(route, context)],
        )
    app.include_router(sign_in.router(identities, doors, runs=context.local is not None))
    if doors.provider is not None:
        app.include_router(sign_in.provider_router(identities, doors.provider))
    app.include_router(follow.router(context, streams, doors.requests))
    app.include_router(execution.router(context, streams))
    app.include_router(outcome_routes(context))
    app.include_router(subscriptions.router(context, streams, doors.requests))
    app.include_router(web_pages.router(context))
    app.include_router(metrics_router(context, lambda: streams.followers))
    app.include_router(operation_routes(long_operations))
    app.include_router(upload_routes(context))
    if endpoint is not None:
        app.router.routes.append(StarletteRoute(AGENTS, endpoint))
    app.router.routes.extend([reference_route(app), *page_routes()])
    app.state.streams = streams
    return app


def _agent_endpoint(context: Context) -> AgentEndpoint:
    from wtb.hosting.agent_server import AgentEndpoint  # which takes more than a second to import

    return AgentEndpoint(context)


def _health() -> Mapping[str, str | bool]:
    return {"status": "ok", "version": __version__, "idempotency": True}


def _readiness(database: Database) -> Callable[[], Awaitable[Mapping[str, str]]]:
    """Return the handler of readiness checks. They need no token, so they query the database only once a second."""
    taking_turns, fresh_until = asyncio.Lock(), 0.0

    async def ready() -> Mapping[str, str]:
        nonlocal fresh_until
        async with taking_turns:
            if time.monotonic() > fresh_until:
                try:
                    revision = await run_quickly(database.revision)
                except WTBError as error:
                    # Not the message of the error, which names the database: anyone can send this request.
                    raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "the database is out of reach") from error
                if revision != REVISION:
                    detail = f"the database is of version {revision}; this server expects {REVISION}"
                    raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, detail)
                fresh_until = time.monotonic() + _READY_S
        return {"status": "ready", "version": __version__}

    return ready


def _id_of(route: Route) -> str:
    return f"{route.method} {route.path}".lower().translate(str.maketrans("/ -", "___", "{}"))


def _further_responses(route: Route) -> dict[int | str, dict[str, Any]]:
    """Return the further successful responses of a route, for OpenAPI."""
    responses: dict[int | str, dict[str, Any]] = {}
    if route.is_long or route.starts_execution:
        responses[HTTPStatus.ACCEPTED] = {"description": "It goes on; `Location` is where to ask what comes of it."}
    if route.version is not None:
        responses[HTTPStatus.NOT_MODIFIED] = {"description": "It has the version that `If-None-Match` names."}
    return responses


def _origin(route: Route, request: Request) -> Origin:
    return origin_of(request, f"{route.method} {PREFIX}{route.path}")


def _permission(route: Route, context: Context) -> Any:
    """Return the dependency that rejects requests without permission, before their arguments are checked."""

    def check(request: Request) -> None:
        identity: Identity = request.state.identity
        refusal = identity.refusal(route.needs, everywhere=route.operation.everywhere)
        if refusal is not None:
            noting = context.noting_for(identity.attribution, _origin(route, request))
            note_refusal(noting, route.name, AccessDenied(refusal))
            raise HTTPException(HTTPStatus.FORBIDDEN, refusal)

    return Depends(check)


def _endpoint(route: Route, context: Context, long_operations: LongOperations, streams: Streams) -> Callable[..., Any]:
    """Return a function with the parameters of an operation, which FastAPI reads from requests."""
    function = route.function
    reads = route.operation.effect is Effect.reads and not route.is_long

    def answer(request: Request, arguments: Arguments) -> Response:
        identity: Identity = request.state.identity
        acting = context.acting_as(identity, route.needs, _origin(route, request))

        def carry_out() -> Response:
            # One snapshot, so that the parts of a document that several queries read fit together.
            with acting.database.snapshot() if reads else nullcontext():
                return _response(route, request, function(acting, **arguments))

        change = partial(changed_if_current, acting, request, route, arguments, carry_out)
        try:
            with log_ids(request=new_id(), by=identity.name, operation=route.name):
                return answered_once(context.database, request, change, shows_secret=route.operation.shows_secret)
        except AccessDenied as error:
            # Denied by a policy. Recorded here, because the transaction of the operation, with its audit row, is rolled
            # back.
            note_refusal(acting, route.name, error)
            raise

    async def at_once(request: Request, **arguments: Any) -> Response:
        return await when_answered(context.database, await run_sync(answer, request, arguments))

    async def in_time(
        request: Request, wait: float | None = None, prefer: str | None = None, **arguments: Any
    ) -> Response:
        identity: Identity = request.state.identity
        acting = context.acting_as(identity, route.needs)
        key = None if route.operation.effect is Effect.reads else key_of(request)
        operation = Asked(
            NewOperation(new_id(), route.name, acting.by, key),
            identity.name or "the operator",
            acting.database,
            seconds_to_wait(wait, prefer, WAIT_S),
        )
        return await long_operations.answer(operation, partial(answer, request, arguments))

    async def and_wait(
        request: Request, wait: float | None = None, prefer: str | None = None, **arguments: Any
    ) -> Response:
        response = await at_once(request, **arguments)
        acting = context.acting_as(request.state.identity, route.needs)
        return await when_ended(acting, response, seconds_to_wait(wait, prefer, 0.0))

    started = Started(context, streams)

    async def and_follow(
        request: Request,
        wait: float | None = None,
        prefer: str | None = None,
        cancel_on_disconnect: bool = False,
        **arguments: Any,
    ) -> Response:
        if refusal := started.refusal(request, cancel_on_disconnect):
            return refusal
        response = await at_once(request, **arguments)
        seconds = seconds_to_wait(wait, prefer, 0.0)
        return await started.followed(request, response, seconds, cancel_on_disconnect)

    endpoint: Callable[..., Any] = in_time if route.is_long else and_wait if route.starts else at_once
    waiting: Sequence[inspect.Parameter] = () if endpoint is at_once else (_WAIT, _PREFER)
    if route.starts_execution:
        endpoint, waiting = and_follow, (*waiting, _CANCEL)
    hints = get_type_hints(function)
    parameters = [parameter for name, parameter in arguments_of(function).items() if name not in route.left_out]
    described = arguments_described(function)
    endpoint.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            _REQUEST,
            *waiting,
            *(
                _parameter(route, parameter, hints[parameter.name], described.get(parameter.name))
                for parameter in parameters
            ),
        ]
    )
    return endpoint


def _response(route: Route, request: Request, returned: Any) -> Response:
    """Return the response for the result of an operation."""
    tag, presented = tag_of(route, returned), route.present(returned)
    tagged = {} if tag is None else {"ETag": tag}
    if is_known(request, tag):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=tagged)
    if isinstance(presented, Lines):
        return StreamingResponse(presented.pieces, headers=presented.headers, media_type=presented.media_type)
    if route.location is None:
        return json_response(presented, HTTPStatus.OK, **tagged)
    return json_response(presented, HTTPStatus.CREATED, Location=PREFIX + route.location.format_map(presented))


_REQUEST = inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)
_WAIT = inspect.Parameter("wait", inspect.Parameter.KEYWORD_ONLY, annotation=Wait, default=None)
_CANCEL = inspect.Parameter(
    "cancel_on_disconnect", inspect.Parameter.KEYWORD_ONLY, annotation=CancelOnDisconnect, default=False
)
_PREFER = inspect.Parameter("prefer", inspect.Parameter.KEYWORD_ONLY, annotation=Prefer, default=None)


def _parameter(route: Route, parameter: inspect.Parameter, hint: Any, text: str | None) -> inspect.Parameter:
    """Return a parameter of an operation as one of a request: of its path, body or query."""
    documentation: Arguments = {"description": text, "examples": examples_of(route, parameter.name)}
    source, default = Path(**documentation), parameter.default
    if f"{{{parameter.name}}}" in route.path:
        default = inspect.Parameter.empty
    elif route.method == "GET":
        source = Query(**documentation)
    elif default is ...:  # which FastAPI takes for what is required
        source, default = Body(embed=True, default_factory=lambda: ..., **documentation), inspect.Parameter.empty
    else:
        source = Body(embed=True, **documentation)
    hint = {Sequence[str]: list[str], Sequence[int]: list[int]}.get(hint, hint)
    annotation = Annotated[hint, source]
    return parameter.replace(annotation=annotation, default=default, kind=inspect.Parameter.KEYWORD_ONLY)


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, WTBError)
    return problem_of(error)


async def _on_bad_request(_: Request, error: Exception) -> Response:
    """Return FastAPI's validation errors as a problem of WTB's."""
    assert isinstance(error, ValidationException)
    problems = [
        f"{'.'.join(map(str, detail['loc'][1:])) or detail['loc'][0]}: {detail['msg']}" for detail in error.errors()
    ]
    return Problem(HTTPStatus.BAD_REQUEST, "\n".join(problems), problems=problems)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    if status is HTTPStatus.NOT_FOUND and is_for_people(request) and not request.url.path.startswith(f"{PREFIX}/"):
        return document(status)
    details = {
        HTTPStatus.NOT_FOUND: f"there is nothing at this path; {PREFIX}/openapi.json lists what there is",
        HTTPStatus.METHOD_NOT_ALLOWED: f"not by this method; {PREFIX}/openapi.json lists what there is",
    }
    headers = dict(error.headers) if error.headers else None
    return Problem(status, details.get(status, str(error.detail)), headers=headers)


async def _on_fault(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return fault()
