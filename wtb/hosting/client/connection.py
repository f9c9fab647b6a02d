"""Where a server is and how it is asked, whether that blocks or is awaited."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import httpx

from wtb.config.urls import split_url
from wtb.core.errors import InputError, ServerError
from wtb.core.mappings import Arguments
from wtb.core.version import __version__
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.client.answers import check_version
from wtb.hosting.client.credentials import find_token
from wtb.hosting.client.requests import Request

HEALTH = Request("GET", f"{PREFIX}/health")


class ClientOptions(TypedDict):
    """What both kinds of clients of httpx take."""

    base_url: str
    timeout: httpx.Timeout
    headers: dict[str, str]
    verify: bool


class SentRequest(TypedDict):
    """A request as both kinds of clients of httpx take it."""

    method: str
    url: str
    params: tuple[tuple[str, str], ...]
    content: bytes | None
    headers: dict[str, str]


@dataclass
class Connection:
    """Where a server is, and what is known of it.

    Attributes:
        url: As it is called; without `/api/v1` at its end.
        token: Who asks.
        timeout: Seconds to wait for an answer.
        warn: Takes a line about what needs the attention of people.
        knows_keys: Whether the server carries a write of the same key out once only.
    """

    url: str
    token: str = field(repr=False)
    timeout: float
    warn: Callable[[str], None]
    knows_keys: bool = False

    @classmethod
    def to(cls, url: str, token: str | None, timeout: float, warn: Callable[[str], None]) -> Connection:
        """Return how a server is asked.

        Args:
            url: Where it is.
            token: Who asks; None for the token of the environment or of the file of tokens.
            timeout: Seconds to wait for an answer.
            warn: As above.

        Raises:
            InputError: If it is no URL of a server, or there is no token for it.
        """
        parts = split_url(url)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{url!r} is no server; expected a URL such as https://bench.example.org", argument="url")
        if parts.password is not None or parts.query or parts.fragment:
            raise InputError("a server's URL has no password and no arguments; the token has a place of its own")
        shown = url.rstrip("/").removesuffix(PREFIX)
        return cls(shown, token or find_token(shown), timeout, warn)

    @property
    def options(self) -> ClientOptions:
        """What both kinds of clients of httpx take."""
        return {
            "base_url": self.url,
            "timeout": timeouts(self.timeout),
            "headers": {"Authorization": f"Bearer {self.token}", "User-Agent": f"wtb/{__version__}"},
            # Without TLS there are no certificates to verify, and reading those of this machine takes 50 ms.
            "verify": not self.url.lower().startswith("http:"),
        }

    def warn_of_loss(self) -> None:
        """Warn that what is followed waits for the server."""
        self.warn(f"the server {self.url} does not answer; what is followed goes on when it does")

    def know(self, health: httpx.Response) -> None:
        """Take what a server says of itself, and warn of another version.

        Raises:
            ServerError: If it is no server of WTB's, or one that does not go with this client.
        """
        try:
            found = health.json()
            version = str(found["version"])
        except (ValueError, KeyError, TypeError):
            raise ServerError(f"{self.url} does not answer as `wtb serve` does; is it the right address?") from None
        warning = check_version(self.url, version)
        if warning is not None:
            self.warn(warning)
        self.knows_keys = bool(found.get("idempotency"))


def timeouts(read_s: float) -> httpx.Timeout:
    """Return how long is waited for a connection, and for what comes through it."""
    return httpx.Timeout(read_s, connect=min(read_s, 10.0))


def as_sent(request: Request) -> SentRequest:
    """Return a request as both kinds of clients of httpx take it."""
    return {
        "method": request.method,
        "url": request.path,
        "params": tuple(request.query),
        "content": request.body,
        "headers": dict(request.headers),
    }


def arguments_of(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Arguments, session: str | None
) -> Arguments:
    """Return what an operation takes by name, without the context.

    Args:
        function: The operation.
        args: What it is given after its context.
        kwargs: What it is given by name.
        session: The session, if it takes one and is given none.

    Raises:
        TypeError: If it does not take that.
    """
    signature = inspect.signature(function)
    given = dict(signature.bind(None, *args, **kwargs).arguments)
    given.pop("context")
    if session is not None and "session" in signature.parameters and given.get("session") is None:
        given["session"] = session
    return given
