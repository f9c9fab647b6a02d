"""Errors in HTTP: problem details, with the same messages as in Python and on the command line.

Source: RFC 9457, Problem Details for HTTP APIs.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, NotRequired

from pydantic import TypeAdapter
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from wtb.core.errors import AccessDenied, BrokerError, ConflictError, InputError, NotFound, StoreError, WTBError
from wtb.display.json_text import as_json

# The first class that fits counts, so the base class comes last.
_STATUSES: Sequence[tuple[type[WTBError], HTTPStatus]] = (
    (NotFound, HTTPStatus.NOT_FOUND),
    (AccessDenied, HTTPStatus.FORBIDDEN),
    (InputError, HTTPStatus.BAD_REQUEST),
    (ConflictError, HTTPStatus.CONFLICT),
    (StoreError, HTTPStatus.SERVICE_UNAVAILABLE),
    (BrokerError, HTTPStatus.SERVICE_UNAVAILABLE),
    (WTBError, HTTPStatus.UNPROCESSABLE_ENTITY),
)


class ProblemDocument(TypedDict):
    """Problem details, as RFC 9457 has them; problems, argument, error and kind are ours."""

    type: str
    title: str
    status: int
    detail: str
    problems: NotRequired[list[str]]
    argument: NotRequired[str]
    error: NotRequired[str]
    kind: NotRequired[str]  # of what is not there, such as `sweep`


# As OpenAPI describes it.
PROBLEM: dict[str, Any] = {
    "description": "The problem, and what to do (RFC 9457).",
    "content": {"application/problem+json": {"schema": TypeAdapter(ProblemDocument).json_schema()}},
}


class Problem(JSONResponse):
    """A response with problem details."""

    media_type = "application/problem+json"

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        problems: Sequence[str] = (),
        argument: str | None = None,
        error: str | None = None,
        kind: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Make it.

        Args:
            status: Its status; its phrase is the title.
            detail: The finding, the expectation and the next step.
            problems: The problems one by one, if there are several.
            argument: The argument at fault.
            error: The name of the class of the error, by which `wtb.open` of a server raises it again.
            kind: The kind of the missing object, such as `sweep`.
            headers: Further headers of the response.
        """
        content: ProblemDocument = {"type": "about:blank", "title": status.phrase, "status": status, "detail": detail}
        if problems:
            content["problems"] = list(problems)
        if argument is not None:
            content["argument"] = argument
        if error is not None:
            content["error"] = error
        if kind is not None:
            content["kind"] = kind
        super().__init__(content, status, headers)


def problem_of(error: WTBError) -> Problem:
    """Return the response for an error that WTB raised deliberately."""
    status = next(status for kind, status in _STATUSES if isinstance(error, kind))
    problems = error.problems if isinstance(error, InputError) else ()
    kind = error.kind if isinstance(error, NotFound) else None
    return Problem(
        status, str(error), problems=problems, argument=error.argument, error=type(error).__name__, kind=kind
    )


def fault() -> Problem:
    """Return the response for an unexpected error, without internals, which are in the log."""
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "this is a fault of the server; its log has the details")


def json_response(document: object, status: int = HTTPStatus.OK, **headers: str) -> Response:
    """Return a document as the response to a request."""
    return Response(as_json(document), status, headers, media_type="application/json")


def answer_again(status: int, location: str | None, body: str | None) -> Response:
    """Return a stored answer.

    Args:
        status: Its status, which decides whether its body is a document or a problem.
        location: Its header `Location`, if it had one.
        body: Its body.
    """
    headers = {} if location is None else {"Location": location}
    kind = "application/json" if status < HTTPStatus.BAD_REQUEST else Problem.media_type
    return Response(body, status, headers, media_type=kind)
