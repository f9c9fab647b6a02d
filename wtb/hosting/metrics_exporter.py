"""`/metrics` of a process without other routes: a worker, or the scheduler."""

from __future__ import annotations

import logging
import re
import socket
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from ipaddress import ip_address
from threading import Thread

from wtb.config.distribution import pip_install
from wtb.core.errors import InputError, WTBError
from wtb.core.frozen import frozen

_log = logging.getLogger("wtb")
LOOPBACK = "127.0.0.1"
_PLACE = re.compile(r"(?:(?P<address>[^:\s\[\]]+|\[[0-9a-fA-F:]+\]):)?(?P<port>\d{1,5})")

Exposition = Callable[[str], tuple[bytes, str]]


@frozen
class Place:
    """The address of an exporter."""

    address: str
    port: int

    @property
    def url_host(self) -> str:
        """The address as in a URL."""
        return f"[{self.address}]" if ":" in self.address else self.address


def parse_place(text: str) -> Place:
    """Parse the address to listen on.

    Args:
        text: A port, on loopback, or ADDRESS:PORT.

    Raises:
        InputError: If it is neither, or a package is not installed.
    """
    match = _PLACE.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise InputError(f"--metrics is {text!r}; expected a port such as 9465, or ADDRESS:PORT")
    if find_spec("prometheus_client") is None:
        raise InputError(f"metrics need more packages: {pip_install('metrics')}")
    return Place((match["address"] or LOOPBACK).strip("[]"), int(match["port"]))


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Log an error instead of printing it, unless the client has hung up."""
        if not isinstance(sys.exception(), ConnectionError):
            _log.exception("a scrape was not answered")


class _ServerOfIPv6(_Server):
    address_family = socket.AF_INET6


class Exporter:
    """Serves `/metrics` on a thread of its own, until the process ends or it is closed."""

    def __init__(self, place: Place, expose: Exposition) -> None:
        """Begin to listen.

        Args:
            place: The address.
            expose: Returns the metrics for a header `Accept`, and their type.

        Raises:
            InputError: If it cannot listen there.
        """
        kind = _ServerOfIPv6 if ":" in place.address else _Server
        try:
            self._server = kind((place.address, place.port), _handler(expose, place))
        except OSError as error:
            why = error.strerror or error
            raise InputError(f"cannot listen on {place.address}:{place.port} for metrics: {why}") from None
        # Otherwise a slow client would keep the process from ending.
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        Thread(target=self._server.serve_forever, name="wtb-metrics", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


def is_named(host: str, place: Place) -> bool:
    """Return whether a header `Host` names an exporter, to reject requests of pages under their own names.

    Such a page needs a name (DNS rebinding), so that addresses are safe.

    Args:
        host: The header.
        place: The address of the exporter.
    """
    name = re.sub(r":\d*$", "", host).strip("[]").lower()
    if name in ("localhost", place.address.lower(), socket.gethostname().lower()):
        return True
    try:
        return bool(ip_address(name))
    except ValueError:
        return False


def _handler(expose: Exposition, place: Place) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # who connects and asks nothing

        def do_GET(self) -> None:
            if not is_named(self.headers.get("Host", ""), place):
                message = b"these metrics have another name; scrape an address, or name it: --metrics NAME:PORT\n"
                self._answer(HTTPStatus.MISDIRECTED_REQUEST, message, "text/plain")
                return
            if self.path.partition("?")[0] != "/metrics":
                self._answer(HTTPStatus.NOT_FOUND, b"metrics are at /metrics\n", "text/plain")
                return
            try:
                body, media_type = expose(self.headers.get("Accept", ""))
            except WTBError as error:
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n".encode(), "text/plain; charset=utf-8")
                return
            self._answer(HTTPStatus.OK, body, media_type)

        def _answer(self, status: HTTPStatus, body: bytes, media_type: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing, because scrapes come every few seconds."""

    return Handler
