"""The connection to a server, for blocking and for async clients."""

from __future__ import annotations

import inspect
import os
import stat
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import httpx

from wtb.config.credentials import TOKEN, client_credentials, credential, split_url
from wtb.core.errors import InputError, ServerError
from wtb.core.values import Arguments
from wtb.core.version import __version__
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.client.requests import Request, check_version

_GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def find_token(url: str) -> str:
    """Find the token for a server: in WTB_TOKEN, else in the file of credentials.

    Args:
        url: The server.

    Raises:
        InputError: If there is none, or others may read the file.
    """
    token = credential(TOKEN) or _of_file(client_credentials(), url)
    if token is None:
        raise InputError(
            f"there is no token for {url}: set {TOKEN}, or write it to {client_credentials()}, as `token` in a table "
            f"[{url!r}]; the operator of the server creates one with `wtb admin token create`"
        )
    return token


def _of_file(path: Path, url: str) -> str | None:
    try:
        with path.open("rb") as file:
            # The mode of the open file, since the path may name another one by now.
            mode = os.fstat(file.fileno()).st_mode
            tables = tomllib.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); expected TOML") from None
    if mode & _GROUP_AND_OTHERS:
        raise InputError(f"{path} holds tokens, and other users can read it; run chmod 600 {path}")
    for name, table in tables.items():
        if _server(name) == _server(url) and isinstance(table, dict) and isinstance(table.get("token"), str):
            return str(table["token"])
    return None


def _server(url: str) -> tuple[str, str]:
    """Return the parts of a URL that identify a server."""
    parts = split_url(url)
    if parts is None:  # no server has it
        return url, ""
    return f"{parts.scheme}://{parts.netloc}".lower(), parts.path.rstrip("/")


HEALTH = Request("GET", f"{PREFIX}/health")


class ClientOptions(TypedDict):
    """The options of both kinds of httpx clients."""

    base_url: str
    timeout: httpx.Timeout
    headers: dict[str, str]
    verify: bool


class SentRequest(TypedDict):
    """A request as both kinds of httpx clients take it."""

    method: str
    url: str
    params: tuple[tuple[str, str], ...]
    content: bytes | None
    headers: dict[str, str]


@dataclass
class Connection:
    """The address of a server, and the known facts about it.

    Attributes:
        url: Its URL, without `/api/v1` at the end.
        token: The access token.
        timeout: Seconds to wait for an answer.
        warn: Called with warnings.
        knows_keys: Whether the server carries out a write of the same key only once.
    """

    url: str
    token: str = field(repr=False)
    timeout: float
    warn: Callable[[str], None]
    knows_keys: bool = False

    @classmethod
    def to(cls, url: str, token: str | None, timeout: float, warn: Callable[[str], None]) -> Connection:
        """Make the connection to a server. No request is sent yet.

        Args:
            url: Its URL.
            token: The access token; None for that of the environment or of the file of credentials.
            timeout: Seconds to wait for an answer.
            warn: Called with warnings.

        Raises:
            InputError: If it is no URL of a server, or there is no token for it.
        """
        parts = split_url(url)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(
                f"{url!r} is not a server; expected a URL such as https://bench.example.org", argument="url"
            )
        if parts.password is not None or parts.query or parts.fragment:
            raise InputError(
                "the server's URL has a password or arguments; expected neither: pass the access token separately"
            )
        base_url = url.rstrip("/").removesuffix(PREFIX)
        return cls(base_url, token or find_token(base_url), timeout, warn)

    @property
    def options(self) -> ClientOptions:
        """The options of both kinds of httpx clients."""
        return {
            "base_url": self.url,
            "timeout": timeouts(self.timeout),
            "headers": {"Authorization": f"Bearer {self.token}", "User-Agent": f"wtb/{__version__}"},
            # Without TLS there are no certificates to verify, and reading those of this machine takes 50 ms.
            "verify": not self.url.lower().startswith("http:"),
        }

    def warn_of_loss(self) -> None:
        """Warn that streams wait for the server."""
        self.warn(f"the server {self.url} does not respond; subscriptions continue when it does")

    def know(self, health: httpx.Response) -> None:
        """Read the facts about a server, and warn of another version.

        Raises:
            ServerError: If it is no WTB server, or an incompatible one.
        """
        try:
            document = health.json()
            version = str(document["version"])
        except (ValueError, KeyError, TypeError):
            raise ServerError(f"{self.url} does not respond like `wtb serve`; check the address") from None
        warning = check_version(self.url, version)
        if warning is not None:
            self.warn(warning)
        self.knows_keys = bool(document.get("idempotency"))


def timeouts(read_s: float) -> httpx.Timeout:
    """Return the timeouts of connecting and of reading."""
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
    """Return the arguments of an operation by name, without the context.

    Args:
        function: The operation.
        args: Positional arguments after its context.
        kwargs: Keyword arguments.
        session: The session for operations that take one, unless another one is set.

    Raises:
        TypeError: If the operation does not take these arguments.
    """
    signature = inspect.signature(function)
    bound = dict(signature.bind(None, *args, **kwargs).arguments)
    bound.pop("context")
    if session is not None and "session" in signature.parameters and bound.get("session") is None:
        bound["session"] = session
    return bound
