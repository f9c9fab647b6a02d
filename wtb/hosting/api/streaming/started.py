"""The answer to a request that started an execution: its address, its outcome, or all its events and its result."""

from __future__ import annotations

import logging
from http import HTTPStatus

import orjson
from fastapi import Request
from starlette.responses import Response

from wtb.core.documents.executions import OutcomeDocument
from wtb.core.errors import AccessDenied, ConflictError, StoreError, WTBError
from wtb.display.json_text import as_json
from wtb.hosting.api.identities import origin_of
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.requests.ends import when_ended
from wtb.hosting.api.requests.outcomes import ENDED, GOING_ON, when_stopped
from wtb.hosting.api.streaming.execution import ExecutionStream, WantedEvents, wants_stream
from wtb.hosting.api.streaming.sending import full
from wtb.hosting.api.streaming.streams import MOST_SUBSCRIBERS, Streams
from wtb.hosting.api.threads import run_quickly
from wtb.operations.context import Context
from wtb.operations.control.pause_cancel import cancel
from wtb.operations.identity import Identity
from wtb.operations.inspection.log import severities_from
from wtb.operations.inspection.sweeps import outcome
from wtb.operations.registry import Permission
from wtb.store.log import START

_CANCELLED = "the connection of the request that started it was closed"
_log = logging.getLogger("wtb")


class Started:
    """Answers requests that start an execution.

    Args:
        context: Where the executions are.
        streams: The server's streams.
    """

    def __init__(self, context: Context, streams: Streams) -> None:
        self._context, self._streams = context, streams

    def refusal(self, request: Request, cancels: bool) -> Problem | None:
        """Return why a request may not start an execution in its way; None if it may.

        Args:
            request: It.
            cancels: Whether it cancels the execution when its connection closes.
        """
        identity: Identity = request.state.identity
        streams = wants_stream(request)
        needs = [Permission.steer] * cancels + [Permission.read] * streams
        text = next((text for permission in needs if (text := identity.refusal(permission))), None)
        if text is not None:
            return Problem(HTTPStatus.FORBIDDEN, text)
        return full() if streams and self._streams.followers >= MOST_SUBSCRIBERS else None

    async def followed(self, request: Request, response: Response, wait_s: float, cancels: bool) -> Response:
        """Return the answer: all events if the request accepts a stream, else the outcome if it waits.

        Args:
            request: It.
            response: That the execution was started, or why not.
            wait_s: How long it waits.
            cancels: Whether the execution is cancelled if the connection closes before the answer is complete.
        """
        identity: Identity = request.state.identity
        if response.status_code != HTTPStatus.CREATED:
            return response
        if identity.refusal(Permission.read):  # then its status only, and nothing of its state
            return await when_ended(self._context.acting_as(identity, Permission.submit), response, wait_s)
        ref = orjson.loads(bytes(response.body))["sweep"]
        reading = self._context.acting_as(identity, Permission.read)
        if not (wants_stream(request) or wait_s):
            return response
        try:
            if wants_stream(request):
                return await self._streamed(request, reading, ref, cancels)
            found = await when_stopped(reading, ref, wait_s, request.is_disconnected)
        except WTBError as error:  # it was started all the same
            _log.warning("the outcome of execution %s was not read: %s", ref, error)
            return response
        if cancels and found["status"] in GOING_ON and await request.is_disconnected():
            await self._cancel(request, ref)
        return _with_outcome(response, found)

    async def _streamed(self, request: Request, reading: Context, ref: str, cancels: bool) -> Response:
        identity: Identity = request.state.identity
        about = await run_quickly(outcome, reading, ref)
        wanted = WantedEvents(severities_from("debug"))

        async def given_up() -> None:
            await self._cancel(request, ref)

        return ExecutionStream(
            reading,
            self._streams,
            about,
            wanted,
            START,
            identity.follower,
            status=HTTPStatus.CREATED,
            given_up=given_up if cancels else None,
        )

    async def _cancel(self, request: Request, ref: str) -> None:
        """Cancel an execution whose client has gone, by the identity that started it."""
        origin = origin_of(request, f"{request.method} {request.url.path}")
        acting = self._context.acting_as(request.state.identity, Permission.steer, origin)
        try:
            await run_quickly(lambda: cancel(acting, ref, reason=_CANCELLED))
        except ConflictError:  # it has ended
            pass
        except (AccessDenied, StoreError) as error:
            _log.warning("execution %s was not cancelled although its client has gone: %s", ref, error)


def _with_outcome(response: Response, found: OutcomeDocument) -> Response:
    """Return the answer that an execution was started, with how it has ended, or 202 if it has not."""
    document = orjson.loads(bytes(response.body)) | found
    status = HTTPStatus.CREATED if found["status"] in ENDED else HTTPStatus.ACCEPTED
    headers = {"Location": response.headers["Location"]}
    return Response(as_json(document), status, headers, media_type="application/json")
