"""The checks of a request before it is read: host, token, size and speed; ways to sign in, with limits on attempts."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import field
from http import HTTPStatus
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wtb.core.errors import WTBError
from wtb.core.frozen import frozen
from wtb.hosting.api.connections import HEAD_BYTES
from wtb.hosting.api.cookies import cookie_of, forgery
from wtb.hosting.api.identities import Identities, address_of
from wtb.hosting.api.problems import Problem, problem_of
from wtb.hosting.api.routes import AGENTS, AT_PROVIDER, FROM_PROVIDER, METRICS, PREFIX, SIGN_IN, UPLOADS
from wtb.operations.identity import Identity

if TYPE_CHECKING:
    from wtb.hosting.api.provider import Provider

LASTS_S = 600.0
_BYTES = 20  # 160 random bits


class OneTimeCode:
    """A code that can be used once. Only its digest is kept."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Make it; no code is valid before one is issued.

        Args:
            clock: Returns seconds, by which a code expires.
        """
        self._clock = clock
        self._digest: bytes | None = None
        self._until = 0.0

    def issue(self) -> str:
        """Return a new code, which replaces the one before."""
        code = secrets.token_urlsafe(_BYTES)
        self._digest, self._until = _digest_of(code), self._clock() + LASTS_S
        return code

    def take(self, code: str) -> bool:
        """Use a code. Returns whether it is the valid one, which is then used up."""
        digest = self._digest
        if digest is None or self._clock() > self._until or not hmac.compare_digest(digest, _digest_of(code)):
            return False
        self._digest = None
        return True


def _digest_of(code: str) -> bytes:
    return hashlib.sha256(code.encode()).digest()


# Bounds the memory that requests from many addresses can take. The least recently used bucket is dropped first.
MOST_KEYS = 10_000


class Rates:
    """A token bucket for each client: it fills at a rate, each request takes one, and an empty one rejects.

    Source: token bucket, as in RFC 2697.
    """

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = monotonic) -> None:
        """Make it.

        Args:
            per_s: The mean number of requests a second.
            burst: The maximum number of requests at once.
            clock: Returns seconds.
        """
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what was in it, and when

    def take(self, key: str) -> float:
        """Take one from a bucket.

        Args:
            key: The client.

        Returns:
            0, or the seconds after which the client may send another request.
        """
        # A new bucket is full already, so that its time does not matter.
        before, at = self._buckets.get(key, (float(self._burst), 0.0))
        level = min(float(self._burst), before + (self._clock() - at) * self._per_s)
        if level < 1:
            return (1 - level) / self._per_s
        self._buckets[key] = (level - 1, self._clock())
        self._buckets.move_to_end(key)
        if len(self._buckets) > MOST_KEYS:
            self._buckets.popitem(last=False)
        return 0.0


def network_of(address: str | None) -> str:
    """Return the key of an address: for IPv6 its /64 network, because one person has all addresses of it."""
    try:
        ip = ipaddress.ip_address(address or "")
    except ValueError:
        return str(address)
    return str(ip) if ip.version == 4 else str(ipaddress.ip_network((ip, 64), strict=False))


REQUESTS_PER_S, REQUESTS_AT_ONCE = 50.0, 500
FAILURES_PER_S, FAILURES_AT_ONCE = 10 / 60, 50
# Someone who guesses can vary the beginning of a credential, so all failures of an address count together, too.
MORE = 10  # times as many failures for a whole address


@frozen
class Doors:
    """The ways to sign in.

    Attributes:
        code: The code by which the operator's browser signs in.
        provider: The provider at which others sign in, if there is one.
        requests: The rate of requests by identity.
        failures: The rate of invalid credentials by address and beginning of the credential.
        failures_at_address: The rate of all invalid credentials by address.
    """

    code: OneTimeCode = field(default_factory=OneTimeCode)
    provider: Provider | None = None
    requests: Rates = field(default_factory=lambda: Rates(REQUESTS_PER_S, REQUESTS_AT_ONCE))
    failures: Rates = field(default_factory=lambda: Rates(FAILURES_PER_S, FAILURES_AT_ONCE))
    failures_at_address: Rates = field(default_factory=lambda: Rates(MORE * FAILURES_PER_S, MORE * FAILURES_AT_ONCE))


# Requests without a token: those of load balancers, and for signing in. Pages contain no data.
OPEN = frozenset(PREFIX + path for path in ("/health", "/ready", SIGN_IN, AT_PROVIDER, FROM_PROVIDER))
CLOSED = (PREFIX, METRICS, AGENTS)

BEGINNING = 12  # characters of a token by which bad ones are told apart: what all have in common, and 8 more
_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)  # one without an end, too: it is tried once
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_UPLOADS = f"{PREFIX}{UPLOADS}/"


@frozen
class Limits:
    """The limits of a request.

    Attributes:
        body_bytes: The largest body.
        body_s: Seconds in which all of it must have arrived.
        body_levels: The maximum depth of nested lists and objects: parsers and writers recurse as deep.
    """

    body_bytes: int = 1_000_000
    body_s: float = 10.0
    body_levels: int = 100


class Guard:
    """Passes only requests of known identities, for a host of the server, and with bodies within the limits.

    The check of hosts keeps a page in a browser from sending requests to a server on loopback under the page's own
    name (DNS rebinding). The whole body is read here, so that no operation begins before it has arrived.
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
        # The check of the identity is the last one, because it may read the database.
        refusal = wrong_head(scope, headers) or self._wrong_host(headers) or await self._unknown(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        # An upload has limits of its own, and is read part by part.
        is_upload = scope["type"] == "http" and scope["method"] == "PUT" and scope["path"].startswith(_UPLOADS)
        if is_upload or scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        body = await self._body(receive)
        if isinstance(body, Problem):
            await body(scope, receive, send)
            return
        # For `Idempotency-Key`: a repeat must have the same body, which handlers do not see as it came.
        scope.setdefault("state", {})["body"] = body
        await self._app(scope, _replayed(body, receive), send)

    def _wrong_host(self, headers: Headers) -> Problem | None:
        host = _name_of(headers.get("host", ""))
        if host not in self._hosts:
            detail = f"this server is not {host or 'without a name'!r}; `wtb serve --allow NAME` lets it have a name"
            return Problem(HTTPStatus.MISDIRECTED_REQUEST, detail)
        return None

    async def _unknown(self, scope: Scope, headers: Headers) -> Problem | None:
        """Identify the client. Returns a problem if that fails."""
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

    async def _refused(self, scope: Scope, presented: str | None) -> Problem:
        """Return the response to invalid credentials; after too many failures, only that there were too many."""
        if presented:
            if often := failed_too_often(self._doors, scope, presented):
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
                    if message["type"] == "http.disconnect":
                        return Problem(HTTPStatus.BAD_REQUEST, "the body ended before all of it had come")
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > limits.body_bytes:
                        # The rest of the body is not read, so the connection cannot be used again.
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
    """Return whether lists and objects in JSON are nested deeper than so many levels. For other bodies it may be True.

    Args:
        body: The body of a request.
        levels: The number of levels.
    """
    if body.count(b"[") + body.count(b"{") <= levels:
        return False
    # Without a parser, which would recurse as deep as the body is nested before anything could be rejected.
    brackets = _TEXTS.sub(b"", body).translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(levels):  # each round removes the innermost
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def too_often(wait_s: float, who: str) -> Problem | None:
    """Return the response to a client that has to wait; None if it has not."""
    if not wait_s:
        return None
    seconds = ceil(wait_s)
    detail = f"{who} too often; again in {seconds} s"
    return Problem(HTTPStatus.TOO_MANY_REQUESTS, detail, headers={"Retry-After": str(seconds)})


def failed_too_often(doors: Doors, scope: Scope, presented: str) -> Problem | None:
    """Count invalid credentials. Returns a problem if there were too many.

    Only failures are counted and rejected: others at an address never lock out clients with valid credentials.

    Args:
        doors: The rates of failures.
        scope: The request.
        presented: The credentials. They are counted by their beginning, and all of one address together.
    """
    address = network_of(address_of(scope))
    beginning = presented.partition(" ")[2] or presented
    wait_s = doors.failures.take(f"{address} {beginning[:BEGINNING]}") or doors.failures_at_address.take(address)
    return too_often(wait_s, f"{address} shows a token or a code of no use")


def wrong_head(scope: Scope, headers: Headers) -> Problem | None:
    """Return the response to a head that is too large or ambiguous for proxies; None if it is valid.

    A request with two lengths of its body may be two requests for a proxy in front: its connection is closed (RFC 9112,
    section 6.1), and so is that of one with chunks in HTTP/1.0.
    """
    close = {"Connection": "close"}
    size = sum(len(name) + len(content) + 4 for name, content in scope["headers"])
    size += len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    # The parser has the same limit, but applies it only to a head that arrives in parts.
    if size > HEAD_BYTES:
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
    """Receive a body that was read already, then further messages, such as the end of the connection."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    return next_message
