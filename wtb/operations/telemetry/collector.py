"""A collector of OpenTelemetry, as it is sent spans over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import orjson

from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, WTBError
from wtb.core.telemetry.spans import TracesRequest
from wtb.operations.telemetry.protobuf import encode_request, rejected_spans

if TYPE_CHECKING:
    from http.client import HTTPResponse

PATH: Final = "/v1/traces"
_MOST_ANSWER: Final = 1_000_000  # bytes that are read of what a collector says
_NEVER: Final = frozenset({400, 413, 415, 422})  # what it would refuse again. Source: OTLP 1.7, "Failures"


class CollectorError(WTBError):
    """A collector did not take what it was sent."""


class SpansRefused(CollectorError):
    """A collector refuses what it was sent, and would again."""


@frozen
class Collector:
    """Where spans are sent.

    Attributes:
        url: All of it.
        headers: Headers of each request, such as a key.
        timeout: Seconds until a request must have been answered.
        protobuf: Whether it takes Protobuf, in place of JSON.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 10.0
    protobuf: bool = False


def url_of(endpoint: str) -> str:
    """Return the URL of a collector's traces. Raises InputError if the endpoint is none."""
    try:
        split = urlsplit(endpoint)
        usable = split.scheme in ("http", "https") and split.hostname and (split.port or 80)
    except ValueError:
        usable = False
    if not usable or not endpoint.isascii() or any(char.isspace() for char in endpoint):
        raise InputError(f"endpoint {endpoint!r} is none; expected a URL such as http://127.0.0.1:4318")
    if split.username is not None:
        raise InputError("the endpoint has a user or a password; give a key as a header instead")
    return endpoint if split.path.endswith(PATH) else endpoint.rstrip("/") + PATH


def send(collector: Collector, request: TracesRequest) -> int:
    """Send spans. Neither redirections nor proxies are followed: headers with keys go where they were meant to.

    Args:
        collector: Where.
        request: Them.

    Returns:
        How many of them it refused.

    Raises:
        SpansRefused: If it refuses all of them for good.
        CollectorError: If it is away, hangs or refuses for now.
    """
    from http.client import HTTPConnection, HTTPException, HTTPSConnection  # which import much that few need
    from socket import SHUT_RDWR

    url = urlsplit(collector.url)
    kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=collector.timeout)
    late = threading.Event()

    def end() -> None:  # however slowly it answers
        late.set()
        if connection.sock is not None:
            with suppress(OSError):  # it has ended by itself
                connection.sock.shutdown(SHUT_RDWR)

    watchdog = threading.Timer(collector.timeout, end)
    watchdog.daemon = True
    watchdog.start()
    try:
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        kind_of_body = "application/x-protobuf" if collector.protobuf else "application/json"
        headers = {"Content-Type": kind_of_body, "User-Agent": "wtb", **collector.headers}
        body = encode_request(request) if collector.protobuf else orjson.dumps(request)
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        reply = answer.read(_MOST_ANSWER)
    except (OSError, HTTPException) as error:
        why = f"within {collector.timeout:g} s" if late.is_set() or isinstance(error, TimeoutError) else f": {error}"
        raise CollectorError(f"the collector at {collector.url} does not answer {why}".replace(" :", ":")) from None
    finally:
        watchdog.cancel()
        connection.close()
    return _rejected(collector, answer, reply)


def _rejected(collector: Collector, answer: HTTPResponse, body: bytes) -> int:
    """Return how many spans a collector refused. Raises CollectorError if that is not what it says."""
    if not 200 <= answer.status < 300:
        refused = SpansRefused if answer.status in _NEVER else CollectorError
        raise refused(f"the collector at {collector.url} answers {answer.status} {answer.reason[:100]}")
    try:
        if collector.protobuf:
            return rejected_spans(body)
        document = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        what = "Protobuf" if collector.protobuf else "JSON"
        raise CollectorError(f"what answers at {collector.url} is no collector: it does not answer in {what}") from None
    partial = document.get("partialSuccess") if isinstance(document, dict) else None
    count = partial.get("rejectedSpans", 0) if isinstance(partial, dict) else 0
    return int(count) if str(count).isdecimal() and len(str(count)) < 16 else 0
