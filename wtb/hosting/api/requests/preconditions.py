"""Changes by two people: one that names the version it was made for is refused where another change came first.

Source: RFC 9110, 8.8.3 (ETag), 13.1.1 (If-Match), 13.1.2 (If-None-Match), 15.5.13 (412 Precondition Failed).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request
from starlette.responses import Response

from wtb.core.errors import NotFound
from wtb.core.mappings import Arguments
from wtb.display.json_text import as_json
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.requests.idempotency import request_digest
from wtb.hosting.api.routes import ROUTES, Route
from wtb.operations.context import Context
from wtb.operations.registry import arguments_of
from wtb.store.access.idempotency import Claim, Repeated, find_answer, forget
from wtb.store.database import Database

_BY_PATH: Mapping[str, Route] = {route.path: route for route in ROUTES if route.version is not None}


def tag_of(route: Route, found: Any) -> str | None:
    """Return the ETag of what a route reads; None where nobody edits it."""
    if route.version is None:
        return None
    return f'"{hashlib.sha256(as_json(route.version(found)).encode()).hexdigest()[:32]}"'


def is_known(request: Request, tag: str | None) -> bool:
    """Return whether who asks has what they ask for already."""
    return tag is not None and tag in _tags(request, "If-None-Match")


def changed_if_current(
    acting: Context, request: Request, route: Route, arguments: Arguments, answer: Callable[[], Response]
) -> Response:
    """Carry a change out if what it is about is as the request says, in `If-Match`.

    Of two changes that name the same version one is carried out: the version is claimed in the transaction of the
    change, as an `Idempotency-Key` is.

    Args:
        acting: Where, and for whom.
        request: What is asked.
        route: Of the change.
        arguments: Of its operation.
        answer: Carries it out.

    Returns:
        Its answer, or 412 with how things stand.
    """
    wanted = _tags(request, "If-Match")
    if route.edits is None or not wanted:
        return answer()
    read, database = _BY_PATH[route.edits], acting.database
    known = arguments_of(read.function)
    given = {name: value for name, value in arguments.items() if name in known}
    # What a reference means is in the version: one thing may be named in several ways, by its id and by its name.
    named = ("If-Match", read.name, sorted((name, value) for name, value in given.items() if name != "ref"))
    claimed = {tag: find_answer(database, request_digest(*named, tag)) for tag in wanted}  # before it is read
    try:
        found = read.function(acting, **given)
    except NotFound as error:
        return Problem(HTTPStatus.PRECONDITION_FAILED, str(error))
    tag = tag_of(read, found)
    if tag is None or not wanted & {tag, "*"}:
        return _changed(read, found)
    earlier = claimed.get(tag)
    if earlier is not None:  # it has become what it once was
        forget(database, earlier)
    claim = Claim(digest := request_digest(*named, tag), digest)
    try:
        return _carried_out(database, claim, answer)
    except Repeated as error:
        if error.digest != claim.digest:
            raise
        return _changed(read, read.function(acting, **given))


def _carried_out(database: Database, claim: Claim, answer: Callable[[], Response]) -> Response:
    with database.joined(claim.store):
        return answer()


def _changed(read: Route, found: Any) -> Problem:
    """Return what somebody is told whose version is past, with what is there now."""
    assert read.version is not None
    detail = "it was changed since it was read; it is now " + " ".join(as_json(read.version(found)).split())
    headers = {"ETag": tag_of(read, found) or ""}
    return Problem(HTTPStatus.PRECONDITION_FAILED, detail[:2_000], headers=headers)


def _tags(request: Request, header: str) -> frozenset[str]:
    return frozenset(tag.strip() for tag in request.headers.get(header, "").split(",") if tag.strip())
