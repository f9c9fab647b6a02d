"""Run the server until a signal stops it."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Collection
from contextlib import nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING

import uvicorn

from wtb.config.distribution import pip_install
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.hosting.api.app import make_app
from wtb.hosting.api.connections import QUEUED, prepare, server_config
from wtb.hosting.api.guard import LASTS_S, Doors
from wtb.hosting.api.provider_settings import read_provider
from wtb.hosting.api.routes import FROM_PROVIDER, PREFIX
from wtb.hosting.api.streaming.streams import Streams
from wtb.hosting.api.web_pages import opened
from wtb.operations.context import Context

if TYPE_CHECKING:
    from wtb.hosting.api.provider import Provider

LOOPBACK = ("localhost", "127.0.0.1", "::1")
STOPPING_S = 5  # requests under way may finish


def new_token() -> str:
    """Return a token of 160 random bits."""
    return secrets.token_urlsafe(20)


@frozen
class Place:
    """The address of a server, and its host names.

    Attributes:
        address: The address to listen on.
        port: The port; 0 for a free one.
        allow: Further host names of this server, besides those of loopback and its address.
        proxies: Trusted proxies, as addresses or networks, whose headers name the client and whether it used TLS.
    """

    address: str
    port: int
    allow: Collection[str] = ()
    proxies: Collection[str] = ()


def serve(
    context: Context,
    place: Place,
    *,
    token: str,
    report: Callable[[str], None],
    in_browser: bool = False,
    agents: bool = False,
) -> None:
    """Serve requests until SIGINT or SIGTERM.

    Args:
        context: The context of operations.
        place: The address to listen on.
        token: The operator's token, which permits everything; others have tokens of their own.
        report: Called with the lines that name its URL, and on loopback the address for signing in.
        in_browser: Whether to open the pages, signed in, in a browser; on loopback only.
        agents: Whether to serve agents, too.

    Raises:
        OSError: If it cannot listen there.
        InputError: If the project's settings of the server are wrong.
    """
    address = place.address
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, place.port), family=family) as listening:
        prepare(listening)
        host = f"[{address}]" if ":" in address else address
        doors = Doors(provider=_provider())
        hosts = {*LOOPBACK, address, *place.allow} | ({doors.provider.host} if doors.provider else set())
        app = make_app(context, token=token, hosts=hosts, doors=doors, agents=agents)
        config = server_config(app, proxies=place.proxies, stopping_s=STOPPING_S)
        url = f"http://{host}:{listening.getsockname()[1]}"
        report(f"serving {context.database.shown_url} at {url}{PREFIX}")
        signing_in = url
        if address in LOOPBACK:
            # Browsers send the part behind # to no server, so the code gets into no log.
            signing_in = f"{url}/#code={doors.code.issue()}"
            report(f"sign in, once and within {LASTS_S / 60:.0f} minutes: {signing_in}")
        with opened(signing_in, report) if in_browser else nullcontext():
            _Server(config, app.state.streams).run(sockets=[listening])


def _provider() -> Provider | None:
    """Return the provider of the project's settings, if they name one. Raises InputError."""
    settings = read_provider()
    if settings is None:
        return None
    if any(find_spec(name) is None for name in ("httpx", "jwt", "cryptography")):
        raise InputError(f"sign-in at a provider needs more packages: {pip_install('oidc')}")
    from wtb.hosting.api.provider import Provider

    return Provider(settings, settings.url + PREFIX + FROM_PROVIDER)


class _Server(uvicorn.Server):
    """A server that accepts few connections at a time, and ends streams first, because these have no end."""

    def __init__(self, config: uvicorn.Config, streams: Streams) -> None:
        super().__init__(config)
        self._streams = streams

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            # uvicorn has one setting for the queue and for the connections accepted at a time.
            listening.listen(QUEUED)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._streams.close()
        await super().shutdown(sockets)
