"""Requests that wait for an end: of a long operation, of what was started, or of an execution with its outcome."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from wtb.core.documents.executions import OutcomeDocument
from wtb.core.errors import StoreError
from wtb.hosting.api.identities import needing
from wtb.hosting.api.long_running import PATH, LongOperations, Prefer, Wait, document_of, response_of, seconds_to_wait
from wtb.hosting.api.problems import Problem, json_response
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.api.threads import run_quickly
from wtb.operations.context import Context
from wtb.operations.inspection.sweeps import outcome, statuses_of
from wtb.operations.registry import Permission
from wtb.operations.running.waiting import Look, looks
from wtb.store.access.requests import FoundOperation

_LOOK_S = 0.5  # between two looks at what workers run

_log = logging.getLogger("wtb")


def operation_routes(operations: LongOperations) -> APIRouter:
    """Return the routes for the status and the results of operations.

    Args:
        operations: The operations of the server.
    """
    routes = APIRouter(tags=["operations"])

    async def find_operation(
        request: Request, id: str, wait: float | None, prefer: str | None
    ) -> FoundOperation | Problem:
        operation = await operations.find(request.state.identity, id, seconds_to_wait(wait, prefer, 0.0))
        return operation or Problem(HTTPStatus.NOT_FOUND, f"there is no operation {id!r}; they are kept for a day")

    @routes.get(PATH, summary="Show the progress of a long-running operation.", response_model=None)
    async def show(request: Request, id: str, wait: Wait = None, prefer: Prefer = None) -> Response:
        operation = await find_operation(request, id, wait, prefer)
        return operation if isinstance(operation, Problem) else json_response(document_of(operation))

    @routes.get(f"{PATH}/result", summary="Return what came of an operation that takes long.", response_model=None)
    async def result(request: Request, id: str, wait: Wait = None, prefer: Prefer = None) -> Response:
        operation = await find_operation(request, id, wait, prefer)
        return operation if isinstance(operation, Problem) else response_of(operation)

    return routes


async def when_ended(context: Context, response: Response, wait_s: float) -> Response:
    """Return the response to a start when the started sweep has ended, or the time is up.

    Args:
        context: The context of the client.
        response: The response with the id of the sweep; any other is returned unchanged.
        wait_s: Seconds to wait at most.

    Returns:
        The response with `status` and `reason` of the sweep; unchanged if these cannot be read.
    """
    if response.status_code != HTTPStatus.CREATED or not wait_s:
        return response
    document = orjson.loads(bytes(response.body))
    each, end = looks(context, document["sweep"], count=False), time.monotonic() + wait_s
    try:
        while True:
            look = await run_quickly(_next, each)
            rest = end - time.monotonic()
            if not look.is_running or rest <= 0:
                break
            await asyncio.sleep(min(_LOOK_S, rest))
    except StoreError as error:
        # An error would make the client start it again, although it was started.
        _log.warning("the end of sweep %s was not waited for: %s", document["sweep"], error)
        return response
    document |= {"status": look.ended.status, "reason": look.ended.reason}
    return json_response(document, response.status_code, Location=response.headers["Location"])


def _next(each: Iterator[Look]) -> Look:
    return next(each)


RESULT = f"{PREFIX}/executions/{{ref}}/result"
GOING_ON = ("pending", "running")
ENDED = ("completed", "failed", "cancelled", "forked")

CancelOnDisconnect = Annotated[
    bool, Query(description="Cancel the execution if the connection closes before the answer is complete.")
]

_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.05, 0.5  # between two looks at what runs elsewhere: longer and longer ones


def outcome_routes(context: Context) -> APIRouter:
    """Return the route for the result of an execution.

    Args:
        context: The context of the executions.
    """
    routes = APIRouter(tags=["executions"])

    accepted: dict[int | str, dict[str, Any]] = {HTTPStatus.ACCEPTED: {"description": "It has not ended."}}

    @routes.get(
        RESULT,
        summary="Show how an execution has ended, or stands when the time is up.",
        response_model=None,
        responses=accepted,
        dependencies=[needing(Permission.read)],
    )
    async def result(request: Request, ref: str, wait: Wait = None, prefer: Prefer = None) -> Response:
        reading = context.acting_as(request.state.identity, Permission.read)
        document = await when_stopped(reading, ref, seconds_to_wait(wait, prefer, 0.0), request.is_disconnected)
        return response_of_outcome(document, HTTPStatus.OK)

    return routes


async def when_stopped(
    context: Context, ref: str, wait_s: float, is_given_up: Callable[[], Awaitable[bool]]
) -> OutcomeDocument:
    """Return the outcome of an execution when it ends, waits or pauses, or its status when the time is up.

    Args:
        context: The context of a client who may read it.
        ref: The execution.
        wait_s: Seconds to wait at most.
        is_given_up: Returns whether the client has gone.

    Raises:
        WTBError: If there is no such execution, or the database cannot be read.
    """
    end, pause = time.monotonic() + wait_s, _FIRST_LOOK_S
    # Resolved once, because the beginning of an id may be ambiguous later.
    id = (await run_quickly(outcome, context, ref))["execution"]
    while True:
        # Only the status: the outcome, which may be large, is read once more at the end.
        _, status = await run_quickly(statuses_of, context, id)
        rest = end - time.monotonic()
        if status not in GOING_ON or rest <= 0 or await is_given_up():
            return await run_quickly(outcome, context, id)
        await asyncio.sleep(min(pause, rest))
        pause = min(pause * 1.5, _LONGEST_LOOK_S)


def response_of_outcome(document: OutcomeDocument, ended: HTTPStatus) -> Response:
    """Return an outcome as a response: `ended` if the execution has ended, else 202 with its URL."""
    location = f"{PREFIX}/executions/{document['execution']}"
    status = ended if document["status"] in ENDED else HTTPStatus.ACCEPTED
    return json_response(document, status, Location=location)
