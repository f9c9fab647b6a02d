"""Requests for the end of something: of an operation that takes long, of a sweep or an execution that was started."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from http import HTTPStatus

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from wtb.core.errors import StoreError
from wtb.display.json_text import as_json
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.requests.long_answers import PATH, Prefer, Wait, document_of, response_of, seconds_to_wait
from wtb.hosting.api.requests.long_running import LongOperations
from wtb.hosting.api.threads import run_quickly
from wtb.operations.context import Context
from wtb.operations.running.waiting import Look, looks
from wtb.store.access.operations import FoundOperation

_LOOK_S = 0.5  # between two looks at what workers run

_log = logging.getLogger("wtb")


def operation_routes(operations: LongOperations) -> APIRouter:
    """Return the routes by which one asks for what comes of operations.

    Args:
        operations: Those of the server.
    """
    routes = APIRouter(tags=["operations"])

    async def found(request: Request, id: str, wait: float | None, prefer: str | None) -> FoundOperation | Problem:
        operation = await operations.find(request.state.identity, id, seconds_to_wait(wait, prefer, 0.0))
        return operation or Problem(HTTPStatus.NOT_FOUND, f"there is no operation {id!r}; they are kept for a day")

    @routes.get(PATH, summary="Say how an operation that takes long stands.", response_model=None)
    async def show(request: Request, id: str, wait: Wait = None, prefer: Prefer = None) -> Response:
        operation = await found(request, id, wait, prefer)
        if isinstance(operation, Problem):
            return operation
        return Response(as_json(document_of(operation)), media_type="application/json")

    @routes.get(f"{PATH}/result", summary="Return what came of an operation that takes long.", response_model=None)
    async def result(request: Request, id: str, wait: Wait = None, prefer: Prefer = None) -> Response:
        operation = await found(request, id, wait, prefer)
        return operation if isinstance(operation, Problem) else response_of(operation)

    return routes


async def when_ended(context: Context, response: Response, wait_s: float) -> Response:
    """Return the answer to who started something when that has ended, or the time is up.

    Args:
        context: Where they act.
        response: That it was started, with the id of its sweep; any other is returned as it is.
        wait_s: How long they wait.

    Returns:
        The response, with how it stands as `status`, and why as `reason`; as it was if that cannot be seen.
    """
    if response.status_code != HTTPStatus.CREATED or not wait_s:
        return response
    document = orjson.loads(bytes(response.body))
    each, end = looks(context, document["sweep"], count=False), time.monotonic() + wait_s
    try:
        while True:
            look = await run_quickly(_next, each)
            rest = end - time.monotonic()
            if not look.goes_on or rest <= 0:
                break
            await asyncio.sleep(min(_LOOK_S, rest))
    except StoreError as error:  # it was started all the same
        _log.warning("the end of sweep %s was not waited for: %s", document["sweep"], error)
        return response
    document |= {"status": look.ended.status, "reason": look.ended.reason}
    headers = {"Location": response.headers["Location"]}
    return Response(as_json(document), response.status_code, headers, media_type="application/json")


def _next(each: Iterator[Look]) -> Look:
    return next(each)
