"""Repeated requests: a change is made once for each `Idempotency-Key`.

Source: draft-ietf-httpapi-idempotency-key-header-07, "The Idempotency-Key HTTP Header Field".
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request
from starlette.responses import Response

from wtb.core.errors import ConflictError, NotFound, WTBError
from wtb.core.values import Arguments
from wtb.display.json_text import as_json
from wtb.hosting.api.problems import Problem, answer_again, fault, problem_of
from wtb.hosting.api.routes import ROUTES, Route
from wtb.hosting.api.threads import run_quickly
from wtb.operations.context import Context
from wtb.operations.identity import Identity
from wtb.operations.registry import arguments_of
from wtb.store.access.requests import Claim, Repeated, find_answer, forget, keep_answer
from wtb.store.database import Database
from wtb.store.tables.access import IdempotencyKeyRow

HEADER = "Idempotency-Key"
MOST_LETTERS = 200
PATIENCE_S = 10.0  # for the answer to the same request, which is under way
_LOOK_S = 0.2

_log = logging.getLogger("wtb")


class Unanswered(Problem):
    """The response while the first request with a key has no answer."""

    def __init__(self, claim: Claim) -> None:
        """Make it. `claim` is that of the repeated request."""
        detail = (
            f"a request with this {HEADER} was begun and has no answer: it is still under way, or its server ended "
            "meanwhile; look at what it was to change"
        )
        super().__init__(HTTPStatus.CONFLICT, detail, headers={"Retry-After": "10"})
        self.claim = claim


def answered_once(
    database: Database, request: Request, answer: Callable[[], Response], *, shows_secret: bool = False
) -> Response:
    """Answer a request, or repeat the answer if the request was answered before.

    Args:
        database: The database of the keys.
        request: The request. Without a key it is always carried out.
        answer: Carries it out.
        shows_secret: Whether its answer has a secret. Then it is not kept, and a repeat gets advice instead.

    Returns:
        The answer. If nothing was changed, it is not kept, and a repeat is carried out again.
    """
    key = request.headers.get(HEADER)
    if key is None or request.method == "GET":
        return answer()
    if not 0 < len(key) <= MOST_LETTERS:
        detail = f"{HEADER} has {len(key)} letters; expected 1 to {MOST_LETTERS}, such as those of a random UUID"
        return Problem(HTTPStatus.BAD_REQUEST, detail)
    claim = _claim(request, key)
    earlier = find_answer(database, claim.digest)
    if earlier is not None:
        return _repeat_answer(claim, earlier)
    try:
        # The key is stored in the transaction of the change, so that a crash leaves both or neither.
        with database.joined(claim.store) as stored:
            response = answer()
    # Another request with the key was committed after it was looked up.
    except Repeated:
        return _repeat_answer(claim, find_answer(database, claim.digest))
    except Exception as error:
        # The change was made although something failed after it, so a repeat must not make it again.
        if stored.is_committed:
            _keep(database, claim, problem_of(error) if isinstance(error, WTBError) else fault())
        raise
    if stored.is_committed:
        is_secret = shows_secret and response.status_code < HTTPStatus.BAD_REQUEST
        _keep(database, claim, _shown_once() if is_secret else response)
    return response


async def when_answered(database: Database, response: Response) -> Response:
    """Return a response. If an earlier request has no answer yet, wait a while for that answer.

    Args:
        database: The database of the keys.
        response: The response of `answered_once`. No thread is blocked meanwhile.
    """
    last = time.monotonic() + PATIENCE_S
    while isinstance(response, Unanswered) and time.monotonic() < last:
        await asyncio.sleep(_LOOK_S)
        response = _repeat_answer(response.claim, await run_quickly(find_answer, database, response.claim.digest))
    return response


def key_of(request: Request) -> str | None:
    """Return a digest of the client, its key and its request; None without a key of a valid length."""
    key = request.headers.get(HEADER, "")
    if not 0 < len(key) <= MOST_LETTERS:
        return None
    claim = _claim(request, key)
    return request_digest(claim.digest, claim.request)


def _claim(request: Request, key: str) -> Claim:
    identity: Identity = request.state.identity
    query = [pair for pair in request.query_params.multi_items() if pair[0] != "wait"]  # for the same answer
    parts = (request.method, request.url.path, query, request.state.body)
    # With the identity, because clients choose their keys, and two may choose the same one.
    return Claim(request_digest(identity.name, identity.token, key), request_digest(*parts))


def request_digest(*parts: object) -> str:
    """Return the SHA-256 of the parts that identify a request."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _shown_once() -> Response:
    return problem_of(
        ConflictError(
            f"the first request with this {HEADER} was carried out; its response had a secret, which is shown only "
            f"once. If it did not arrive, revoke that token and create another"
        )
    )


def _keep(database: Database, claim: Claim, response: Response) -> None:
    # Clients repeat a request after 503, although the change may be half done, so another status is kept.
    if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE:
        detail = (
            f"a request with this {HEADER} has changed something and could not be finished; look at what it was to "
            "change, and use a new one to ask again"
        )
        response = Problem(HTTPStatus.CONFLICT, detail)
    location, body = response.headers.get("Location"), bytes(response.body).decode()
    try:
        keep_answer(database, claim.digest, response.status_code, location, body)
    except WTBError as error:  # it is done: a request that is sent again is told that the result is unknown
        _log.warning("the answer to a request was not kept: %s", error)


def _repeat_answer(claim: Claim, earlier: IdempotencyKeyRow | None) -> Response:
    """Return the answer to the first request with the key, if it is known."""
    if earlier is None:  # it was removed meanwhile
        return Unanswered(claim)
    if earlier.request != claim.request:
        detail = f"this {HEADER} was used for another request; expected a new one for each request"
        return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    if earlier.status is None:
        return Unanswered(claim)
    return answer_again(earlier.status, earlier.location, earlier.body)


_BY_PATH: Mapping[str, Route] = {route.path: route for route in ROUTES if route.version is not None}


def tag_of(route: Route, document: Any) -> str | None:
    """Return the ETag of a document; None if people cannot edit it."""
    if route.version is None:
        return None
    return f'"{hashlib.sha256(as_json(route.version(document)).encode()).hexdigest()[:32]}"'


def is_known(request: Request, tag: str | None) -> bool:
    """Return whether the client has the current version already."""
    return tag is not None and tag in _tags(request, "If-None-Match")


def changed_if_current(
    acting: Context, request: Request, route: Route, arguments: Arguments, answer: Callable[[], Response]
) -> Response:
    """Carry out a change if its object has the version that `If-Match` names.

    Of two changes that name the same version one is carried out: the version is claimed in the transaction of the
    change, as an `Idempotency-Key` is.

    Args:
        acting: The context of the client.
        request: The request.
        route: The route of the change.
        arguments: The arguments of its operation.
        answer: Carries it out.

    Returns:
        Its answer, or 412 with the current version.
    """
    expected_tags = _tags(request, "If-Match")
    if route.edits is None or not expected_tags:
        return answer()
    read, database = _BY_PATH[route.edits], acting.database
    names = arguments_of(read.function)
    read_arguments = {name: argument for name, argument in arguments.items() if name in names}
    # The version names the referenced object: one thing may be named in several ways, by its id and by its name.
    named = (
        "If-Match",
        read.name,
        sorted((name, argument) for name, argument in read_arguments.items() if name != "ref"),
    )
    claimed = {tag: find_answer(database, request_digest(*named, tag)) for tag in expected_tags}  # before it is read
    try:
        current = read.function(acting, **read_arguments)
    except NotFound as error:
        return Problem(HTTPStatus.PRECONDITION_FAILED, str(error))
    tag = tag_of(read, current)
    if tag is None or not expected_tags & {tag, "*"}:
        return _changed(read, current)
    earlier = claimed.get(tag)
    if earlier is not None:
        # The object has become what it once was: the claim of that time must not block a new change.
        forget(database, earlier)
    claim = Claim(digest := request_digest(*named, tag), digest)
    try:
        return _carried_out(database, claim, answer)
    except Repeated as error:
        if error.digest != claim.digest:
            raise
        return _changed(read, read.function(acting, **read_arguments))


def _carried_out(database: Database, claim: Claim, answer: Callable[[], Response]) -> Response:
    with database.joined(claim.store):
        return answer()


def _changed(read: Route, current: Any) -> Problem:
    """Return the response to an outdated version, with the current one."""
    assert read.version is not None
    detail = "it was changed since it was read; it is now " + " ".join(as_json(read.version(current)).split())
    headers = {"ETag": tag_of(read, current) or ""}
    return Problem(HTTPStatus.PRECONDITION_FAILED, detail[:2_000], headers=headers)


def _tags(request: Request, header: str) -> frozenset[str]:
    return frozenset(tag.strip() for tag in request.headers.get(header, "").split(",") if tag.strip())
