"""Requests that are sent again: what changes something is done once for each `Idempotency-Key`.

Source: draft-ietf-httpapi-idempotency-key-header-07, "The Idempotency-Key HTTP Header Field".
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from http import HTTPStatus

from fastapi import Request
from starlette.responses import Response

from wtb.core.errors import ConflictError, WTBError
from wtb.hosting.api.problems import Problem, answer_again, fault, problem_of
from wtb.hosting.api.threads import run_quickly
from wtb.operations.identity import Identity
from wtb.store.access.idempotency import Claim, Repeated, find_answer, keep_answer
from wtb.store.database import Database
from wtb.store.tables.access import IdempotencyKeyRow

HEADER = "Idempotency-Key"
MOST_LETTERS = 200
PATIENCE_S = 10.0  # for the answer to the same request, which is under way
_LOOK_S = 0.2

_log = logging.getLogger("wtb")


class Unanswered(Problem):
    """That the request which had the key first has no answer so far."""

    def __init__(self, claim: Claim) -> None:
        """Say it. claim: of the request that is sent again."""
        detail = (
            f"a request with this {HEADER} was begun and has no answer: it is still under way, or its server ended "
            "meanwhile; look at what it was to change"
        )
        super().__init__(HTTPStatus.CONFLICT, detail, headers={"Retry-After": "10"})
        self.claim = claim


def answered_once(
    database: Database, request: Request, answer: Callable[[], Response], *, shows_secret: bool = False
) -> Response:
    """Answer a request, or, if it was answered before, answer it the same again.

    Args:
        database: Where keys are kept.
        request: What is asked, and under which key; one without a key is answered in any case.
        answer: Carries it out.
        shows_secret: Whether its answer has a secret, which is not kept: a repeat is told what to do instead.

    Returns:
        The answer. What has changed nothing is not kept, such as most refusals: it is carried out again.
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
        return _known(claim, earlier)
    try:
        with database.joined(claim.store) as stored:
            response = answer()
    except Repeated:
        return _known(claim, find_answer(database, claim.digest))
    except Exception as error:
        if stored.is_committed:
            _keep(database, claim, problem_of(error) if isinstance(error, WTBError) else fault())
        raise
    if stored.is_committed:
        is_secret = shows_secret and response.status_code < HTTPStatus.BAD_REQUEST
        _keep(database, claim, _shown_once() if is_secret else response)
    return response


async def when_answered(database: Database, response: Response) -> Response:
    """Return a response, or, where it says that an earlier request has no answer, that answer if it comes in time.

    Args:
        database: Where keys are kept.
        response: What `answered_once` returned; no thread is held while the answer is waited for.
    """
    last = time.monotonic() + PATIENCE_S
    while isinstance(response, Unanswered) and time.monotonic() < last:
        await asyncio.sleep(_LOOK_S)
        response = _known(response.claim, await run_quickly(find_answer, database, response.claim.digest))
    return response


def key_of(request: Request) -> str | None:
    """Return a digest of who asks, of their key and of what they ask; None if they sent no key of the right length."""
    key = request.headers.get(HEADER, "")
    if not 0 < len(key) <= MOST_LETTERS:
        return None
    claim = _claim(request, key)
    return request_digest(claim.digest, claim.request)


def _claim(request: Request, key: str) -> Claim:
    identity: Identity = request.state.identity
    query = [one for one in request.query_params.multi_items() if one[0] != "wait"]  # for the same answer
    asked = (request.method, request.url.path, query, request.state.body)
    return Claim(request_digest(identity.name, identity.token, key), request_digest(*asked))


def request_digest(*parts: object) -> str:
    """Return the SHA-256 of what a request is known again by."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _shown_once() -> Response:
    return problem_of(
        ConflictError(
            f"this was done when it was first asked for with this {HEADER}; the answer had a secret, which is shown "
            "once and kept nowhere: if it did not arrive, revoke what was made and make another"
        )
    )


def _keep(database: Database, claim: Claim, response: Response) -> None:
    if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE:  # which clients send again, though it may be half done
        detail = (
            f"a request with this {HEADER} has changed something and could not be finished; look at what it was to "
            "change, and use a new one to ask again"
        )
        response = Problem(HTTPStatus.CONFLICT, detail)
    location, body = response.headers.get("Location"), bytes(response.body).decode()
    try:
        keep_answer(database, claim.digest, response.status_code, location, body)
    except WTBError as error:  # it is done: whoever sends it again is told that what came of it is not known
        _log.warning("the answer to a request was not kept: %s", error)


def _known(claim: Claim, earlier: IdempotencyKeyRow | None) -> Response:
    """Return the answer to the request that had the key first, as far as it is known."""
    if earlier is None:  # it was removed meanwhile
        return Unanswered(claim)
    if earlier.request != claim.request:
        detail = f"this {HEADER} was used for another request; expected a new one for each request"
        return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    if earlier.status is None:
        return Unanswered(claim)
    return answer_again(earlier.status, earlier.location, earlier.body)
