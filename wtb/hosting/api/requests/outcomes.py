"""How an execution has ended, for who started it or asks for it: when it has, or when their time is up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from wtb.core.documents.executions import OutcomeDocument
from wtb.display.json_text import as_json
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.requests.long_answers import Prefer, Wait, seconds_to_wait
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.api.threads import run_quickly
from wtb.operations.context import Context
from wtb.operations.identity import Identity
from wtb.operations.inspection.sweeps import outcome, statuses_of
from wtb.operations.registry import Permission

RESULT = f"{PREFIX}/executions/{{ref}}/result"
GOING_ON = ("pending", "running")
ENDED = ("completed", "failed", "cancelled", "forked")

CancelOnDisconnect = Annotated[
    bool, Query(description="Cancel the execution if the connection closes before the answer is complete.")
]

_FIRST_LOOK_S, _LOOK_S = 0.05, 0.5  # between two looks at what runs elsewhere: longer and longer ones


def outcome_routes(context: Context) -> APIRouter:
    """Return the route by which the result of an execution is read.

    Args:
        context: Where the executions are.
    """
    routes = APIRouter(tags=["executions"])

    goes_on: dict[int | str, dict[str, Any]] = {HTTPStatus.ACCEPTED: {"description": "It has not ended."}}

    @routes.get(
        RESULT,
        summary="Show how an execution has ended, or stands when the time is up.",
        response_model=None,
        responses=goes_on,
    )
    async def result(request: Request, ref: str, wait: Wait = None, prefer: Prefer = None) -> Response:
        identity: Identity = request.state.identity
        if refusal := identity.refusal(Permission.read):
            return Problem(HTTPStatus.FORBIDDEN, refusal)
        reading = context.acting_as(identity, Permission.read)
        found = await when_stopped(reading, ref, seconds_to_wait(wait, prefer, 0.0), request.is_disconnected)
        return response_of_outcome(found, HTTPStatus.OK)

    return routes


async def when_stopped(
    context: Context, ref: str, wait_s: float, is_given_up: Callable[[], Awaitable[bool]]
) -> OutcomeDocument:
    """Return how an execution has ended, waits or is paused; or how it stands when the time is up.

    Args:
        context: Where, for who may read it.
        ref: The execution.
        wait_s: Seconds to wait at most.
        is_given_up: Returns whether nobody waits any more.

    Raises:
        WTBError: If there is no such execution, or the database cannot be read.
    """
    end, pause = time.monotonic() + wait_s, _FIRST_LOOK_S
    id = (await run_quickly(outcome, context, ref))["execution"]
    while True:
        _, status = await run_quickly(statuses_of, context, id)
        rest = end - time.monotonic()
        if status not in GOING_ON or rest <= 0 or await is_given_up():
            return await run_quickly(outcome, context, id)
        await asyncio.sleep(min(pause, rest))
        pause = min(pause * 1.5, _LOOK_S)


def response_of_outcome(found: OutcomeDocument, ended: HTTPStatus) -> Response:
    """Return an outcome as a response: `ended` if the execution has ended, else 202 with where to ask again."""
    location = f"{PREFIX}/executions/{found['execution']}"
    status = ended if found["status"] in ENDED else HTTPStatus.ACCEPTED
    return Response(as_json(found), status, {"Location": location}, media_type="application/json")
