"""What a request has to pass before it is read: its host, its token, how much it sends and how slowly."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from http import HTTPStatus
from math import ceil

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wtb.core.classes.frozen import frozen
from wtb.core.errors import WTBError
from wtb.hosting.access.cookies import cookie_of, forgery
from wtb.hosting.access.doors import Doors
from wtb.hosting.access.rates import network_of
from wtb.hosting.api.connections import HEAD_BYTES
from wtb.hosting.api.identities import Identities, address_of
from wtb.hosting.api.problems import Problem, problem_of
from wtb.hosting.api.routes import AGENTS, AT_PROVIDER, FROM_PROVIDER, METRICS, PREFIX, SIGN_IN, UPLOADS
from wtb.operations.identity import Identity

# What anybody may ask: load balancers, and who is still to sign in. Pages hold nothing of anybody.
OPEN = frozenset(PREFIX + path for path in ("/health", "/ready", SIGN_IN, AT_PROVIDER, FROM_PROVIDER))
CLOSED = (PREFIX, METRICS, AGENTS)

BEGINNING = 12  # characters of a token by which bad ones are told apart: what all have in common, and 8 more
_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)  # one without an end, too: it is tried once
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_UPLOADS = f"{PREFIX}{UPLOADS}/"


@frozen
class Limits:
    """What a request may take.

    Attributes:
        body_bytes: The largest body.
        body_s: Seconds in which all of it must have come.
        body_levels: How deep lists and objects in it may be nested: whoever reads or writes them is a stack as deep.
    """

    body_bytes: int = 1_000_000
    body_s: float = 10.0
    body_levels: int = 100


class Guard:
    """Lets only requests of somebody known pass, that name a host of the server, with bodies within the limits.

    The check of hosts is what keeps a page in somebody's browser from asking a server on loopback under the page's own
    name (DNS rebinding). The body is read here, whole: no operation begins before it has come.
    """

    def __init__(
        self, app: ASGIApp, *, identities: Identities, hosts: Collection[str], doors: Doors, limits: Limits
    ) -> None:
        self._app = app
        self._identities = identities
        self._hosts = frozenset(host.lower() for host in hosts)
        self._doors = doors
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = wrong_head(scope, headers) or self._wrong_host(headers) or await self._unknown(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "PUT" and scope["path"].startswith(_UPLOADS):  # it has limits of its own
            await self._app(scope, receive, send)
            return
        body = await self._body(receive)
        if isinstance(body, Problem):
            await body(scope, receive, send)
            return
        scope.setdefault("state", {})["body"] = body
        await self._app(scope, _replayed(body, receive), send)

    def _wrong_host(self, headers: Headers) -> Problem | None:
        host = _name_of(headers.get("host", ""))
        if host not in self._hosts:
            detail = f"this server is not {host or 'without a name'!r}; `wtb serve --allow NAME` lets it have a name"
            return Problem(HTTPStatus.MISDIRECTED_REQUEST, detail)
        return None

    async def _unknown(self, scope: Scope, headers: Headers) -> Problem | None:
        """Note who asks, or return what they are told if that is nobody."""
        if scope["path"] in OPEN or not scope["path"].startswith(CLOSED):
            return None
        cookie = None if "authorization" in headers else cookie_of(scope)  # a token speaks for itself
        if cookie is not None and (forged := forgery(scope, cookie)):
            return Problem(HTTPStatus.FORBIDDEN, forged)
        try:
            identity = await self._identity(headers, cookie)
        except WTBError as error:
            return problem_of(error)
        if identity is None:
            return await self._refused(scope, headers.get("authorization") or cookie)
        scope.setdefault("state", {})["identity"] = identity
        if identity.key is None:
            return None
        return too_often(self._doors.requests.take(identity.key), f"{identity.name or 'the operator'} asks")

    async def _refused(self, scope: Scope, shown: str | None) -> Problem:
        """Return what somebody is told who is nobody; who fails too often learns no more than that."""
        if shown:
            if often := failed_too_often(self._doors, scope, shown):
                return often
            await self._identities.note_failure(f"{scope.get('method', 'GET')} {PREFIX}", address_of(scope))
        detail = "the token is missing or of no use; expected the header `Authorization: Bearer TOKEN`"
        return Problem(HTTPStatus.UNAUTHORIZED, detail, headers={"WWW-Authenticate": "Bearer"})

    async def _identity(self, headers: Headers, cookie: str | None) -> Identity | None:
        if cookie is None:
            return await self._identities.find(headers.get("authorization", ""))
        return await self._identities.find_signed_in(cookie)

    async def _body(self, receive: Receive) -> bytes | Problem:
        limits, body = self._limits, bytearray()
        try:
            async with asyncio.timeout(limits.body_s):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":  # what has come is not what was to be asked
                        return Problem(HTTPStatus.BAD_REQUEST, "the body ended before all of it had come")
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > limits.body_bytes:
                        detail = f"the body is larger than {limits.body_bytes:,} bytes, which is the limit"
                        return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, headers={"Connection": "close"})
        except TimeoutError:
            detail = f"the body had not come after {limits.body_s:g} s, which is the limit"
            return Problem(HTTPStatus.REQUEST_TIMEOUT, detail, headers={"Connection": "close"})
        if is_deeper(body, limits.body_levels):
            detail = f"the body is nested deeper than {limits.body_levels} levels, which is the limit"
            return Problem(HTTPStatus.BAD_REQUEST, detail)
        return bytes(body)


def is_deeper(body: bytes | bytearray, levels: int) -> bool:
    """Return whether lists and objects are nested deeper than so many levels in JSON; of anything else, they may be.

    Args:
        body: Of a request.
        levels: So many.
    """
    if body.count(b"[") + body.count(b"{") <= levels:
        return False
    brackets = _TEXTS.sub(b"", body).translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(levels):  # each round removes the innermost
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def too_often(wait_s: float, who: str) -> Problem | None:
    """Return what somebody is told who has to wait; None if they have not."""
    if not wait_s:
        return None
    seconds = ceil(wait_s)
    detail = f"{who} too often; again in {seconds} s"
    return Problem(HTTPStatus.TOO_MANY_REQUESTS, detail, headers={"Retry-After": str(seconds)})


def failed_too_often(doors: Doors, scope: Scope, shown: str) -> Problem | None:
    """Count that somebody failed to show who they are. Returns what they are told if it was once too often.

    Only failures are counted and refused: whoever shows what is of use is never kept out by others at their address.

    Args:
        doors: How often that may happen.
        scope: The request.
        shown: What they showed. What begins alike is counted together, and all that one address shows.
    """
    address = network_of(address_of(scope))
    beginning = shown.partition(" ")[2] or shown
    wait_s = doors.failures.take(f"{address} {beginning[:BEGINNING]}") or doors.failures_at_address.take(address)
    return too_often(wait_s, f"{address} shows a token or a code of no use")


def wrong_head(scope: Scope, headers: Headers) -> Problem | None:
    """Return the response to a head that is too large or that proxies may read in another way; None if it is good.

    A request with two lengths of its body may be two requests for a proxy in front: its connection is closed (RFC 9112,
    section 6.1), and so is that of one with chunks in HTTP/1.0.
    """
    close = {"Connection": "close"}
    size = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    size += len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    if size > HEAD_BYTES:  # the parser has the same limit, and knows it of a head only that comes in parts
        detail = f"the head of the request is larger than {HEAD_BYTES:,} bytes, which is the limit"
        return Problem(HTTPStatus.BAD_REQUEST, detail, headers=close)
    if "transfer-encoding" in headers and ("content-length" in headers or scope.get("http_version") == "1.0"):
        detail = "the request has chunks beside a Content-Length, or in HTTP/1.0; send it with one of them"
        return Problem(HTTPStatus.BAD_REQUEST, detail, headers=close)
    return None


def _name_of(host: str) -> str:
    """Return the name in a Host header, without the port."""
    if host.startswith("["):
        return host.partition("]")[0].removeprefix("[").lower()
    return host.partition(":")[0].lower()


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Receive a body that was read already, then what comes after it: that the client has gone."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    return next_message
