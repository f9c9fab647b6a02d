"""Run the server until it is told to stop."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Collection
from contextlib import nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING

import uvicorn

from wtb.config.distribution import pip_install
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError
from wtb.hosting.access.codes import LASTS_S
from wtb.hosting.access.doors import Doors
from wtb.hosting.access.settings import read_provider
from wtb.hosting.api.app import make_app
from wtb.hosting.api.connections import QUEUED, prepare, server_config
from wtb.hosting.api.routes import FROM_PROVIDER, PREFIX
from wtb.hosting.api.streaming.streams import Streams
from wtb.hosting.pages.browser import opened
from wtb.operations.context import Context

if TYPE_CHECKING:
    from wtb.hosting.access.provider import Provider

LOOPBACK = ("localhost", "127.0.0.1", "::1")
STOPPING_S = 5  # requests under way may finish


def new_token() -> str:
    """Return a token of 160 random bits."""
    return secrets.token_urlsafe(20)


@frozen
class Place:
    """Where a server listens, and by which names it is asked.

    Attributes:
        address: The address to listen on.
        port: The port; 0 for a free one.
        allow: Names of this server besides those of loopback and its address.
        proxies: Addresses or networks whose word is taken for where a request came from, and whether by TLS.
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
    """Answer requests until SIGINT or SIGTERM.

    Args:
        context: Where operations act.
        place: Where it listens.
        token: That of the operator, who may do everything; others have tokens of their own.
        report: Takes the lines that say where it listens, and on loopback where whoever started it signs in.
        in_browser: Open the pages, signed in, in the browser of whoever started it; on loopback only.
        agents: Answer agents, too.

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
            signing_in = f"{url}/#code={doors.code.issue()}"  # what stands behind # is sent to nobody
            report(f"sign in, once and within {LASTS_S / 60:.0f} minutes: {signing_in}")
        with opened(signing_in, report) if in_browser else nullcontext():
            _Server(config, app.state.streams).run(sockets=[listening])


def _provider() -> Provider | None:
    """Return the provider of the project's settings, if they name one. Raises InputError."""
    settings = read_provider()
    if settings is None:
        return None
    if any(find_spec(name) is None for name in ("httpx", "jwt", "cryptography")):
        raise InputError(f"signing in at a provider takes more to be installed: {pip_install('oidc')}")
    from wtb.hosting.access.provider import Provider

    return Provider(settings, settings.url + PREFIX + FROM_PROVIDER)


class _Server(uvicorn.Server):
    """Accepts few at a time, and ends streams before it waits for what is under way: they never end by themselves."""

    def __init__(self, config: uvicorn.Config, streams: Streams) -> None:
        super().__init__(config)
        self._streams = streams

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(QUEUED)  # uvicorn has one number for what is queued and what is accepted at a time

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._streams.close()
        await super().shutdown(sockets)
