"""What is said of operations that take longer than a request: how they stand, what came of them, how long to wait.

Source: RFC 9110, 15.3.3 (202 Accepted); RFC 7240, 4.3 (`Prefer: wait`).
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Annotated, TypedDict

import orjson
from fastapi import Header, Query
from starlette.responses import Response

from wtb.core.serialization.plain_json import iso
from wtb.display.json_text import as_json
from wtb.hosting.api.problems import Problem, ProblemDocument, answer_again
from wtb.hosting.api.routes import PREFIX
from wtb.store.access.operations import FoundOperation, Status

PATH = f"{PREFIX}/operations/{{id}}"
WAIT_S = 10.0  # where nobody says how long they wait
LONGEST_WAIT_S = 60.0  # proxies cut what is silent for longer

Wait = Annotated[
    float | None,
    Query(
        ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for the end; the header `Prefer: wait=10` says the same."
    ),
]
Prefer = Annotated[str | None, Header(description="`wait=SECONDS`, as in RFC 7240.")]


class OperationDocument(TypedDict):
    """An operation that takes longer than a request, and how it stands."""

    id: str
    operation: str
    by: str
    status: Status
    began_at: str
    ended_at: str | None
    result: str | None
    problem: ProblemDocument | None


def seconds_to_wait(wait: float | None, prefer: str | None, default: float) -> float:
    """Return how long somebody waits for an answer: by the query, else by what they prefer, else the default."""
    if wait is not None:
        return wait
    preferred = re.search(r"(?:^|[,;\s])wait\s*=\s*(\d{1,9})(?:$|[,;\s])", prefer or "")
    return default if preferred is None else min(float(preferred[1]), LONGEST_WAIT_S)


def document_of(found: FoundOperation) -> OperationDocument:
    """Return how an operation stands, as a document."""
    row, result, problem = found.row, None, None
    if found.status is Status.done:
        result = f"{PATH.format(id=row.id)}/result"
    elif found.status is not Status.running:
        problem = orjson.loads(bytes(response_of(found).body))
    began, ended = iso(row.began_at), iso(row.ended_at)
    return OperationDocument(
        id=row.id,
        operation=row.name,
        by=row.by,
        status=found.status,
        began_at=began,
        ended_at=ended,
        result=result,
        problem=problem,
    )


def response_of(found: FoundOperation) -> Response:
    """Return what an operation was answered; 202 while there is nothing yet."""
    row = found.row
    if found.status is Status.lost:
        detail = (
            f"the server that carried out {row.name!r} ended before it was done; look at what it was to change, "
            "and ask again"
        )
        return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail)
    if row.status is None or row.body is None:
        return accepted(row.id, row.name)
    return answer_again(row.status, row.location, row.body)


def accepted(id: str, name: str) -> Response:
    """Return what somebody is told whose operation goes on: where it will be, by its id."""
    where = PATH.format(id=id)
    document = {"id": id, "operation": name, "status": Status.running, "result": f"{where}/result"}
    return Response(as_json(document), HTTPStatus.ACCEPTED, {"Location": where}, media_type="application/json")
