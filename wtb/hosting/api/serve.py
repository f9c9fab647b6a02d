"""Run the server until it is told to stop."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Collection

import uvicorn

from wtb.hosting.access.codes import LASTS_S, OneTimeCode
from wtb.hosting.api.app import make_app
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.api.streams import Streams
from wtb.operations.context import Context

LOOPBACK = ("localhost", "127.0.0.1", "::1")
MOST_CONNECTIONS = 500  # more are answered with 503 at once
STOPPING_S = 5  # requests under way may finish


def new_token() -> str:
    """Return a token of 160 random bits."""
    return secrets.token_urlsafe(20)


def serve(
    context: Context, *, address: str, port: int, token: str, allow: Collection[str], report: Callable[[str], None]
) -> None:
    """Answer requests until SIGINT or SIGTERM.

    Args:
        context: Where operations act.
        address: The address to listen on.
        port: The port; 0 for a free one.
        token: That of the operator, who may do everything; others have tokens of their own.
        allow: Names of this server besides those of loopback and its address.
        report: Takes the lines that say where it listens, and on loopback where whoever started it signs in.

    Raises:
        OSError: If it cannot listen there.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, port), family=family) as listening:
        host = f"[{address}]" if ":" in address else address
        code = OneTimeCode()
        app = make_app(context, token=token, hosts={*LOOPBACK, address, *allow}, code=code)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # addresses of people and ids of what they looked at
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=STOPPING_S,
        )
        url = f"http://{host}:{listening.getsockname()[1]}"
        report(f"serving {context.database.shown_url} at {url}{PREFIX}")
        if address in LOOPBACK:  # what stands behind # is sent to nobody
            report(f"sign in, once and within {LASTS_S / 60:.0f} minutes: {url}/#code={code.issue()}")
        _Server(config, app.state.streams).run(sockets=[listening])


class _Server(uvicorn.Server):
    """Ends streams before it waits for requests under way: they would never end by themselves."""

    def __init__(self, config: uvicorn.Config, streams: Streams) -> None:
        super().__init__(config)
        self._streams = streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._streams.close()
        await super().shutdown(sockets)
