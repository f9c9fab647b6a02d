"""A collector of OpenTelemetry: its settings, `[telemetry]` of wtb.toml, and the requests to it over HTTP."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import orjson

from wtb.config.credentials import TELEMETRY_HEADERS, credential
from wtb.config.distribution import pip_install
from wtb.config.project_settings import find_setting, table_of
from wtb.core.errors import InputError, WTBError
from wtb.core.frozen import frozen
from wtb.features.telemetry.building import SpanOptions
from wtb.features.telemetry.spans import TracesRequest

if TYPE_CHECKING:
    from http.client import HTTPResponse


def require_protobuf() -> None:
    """Raise InputError unless the messages are installed."""
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.proto") is None:
        raise InputError(f"Protobuf requires more packages: {pip_install('telemetry')}")


def encode_request(request: TracesRequest) -> bytes:
    """Return a request in Protobuf.

    Args:
        request: As OTLP has it in JSON.
    """
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    encoded: bytes = ExportTraceServiceRequest(**_fields(request)).SerializeToString()
    return encoded


def rejected_spans(response: bytes) -> int:
    """Return the number of spans that a collector rejected.

    Args:
        response: The body of its response.

    Raises:
        ValueError: If that is not a response of OTLP.
    """
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        rejected: int = ExportTraceServiceResponse.FromString(response).partial_success.rejected_spans
    except DecodeError as error:
        raise ValueError(str(error)) from error
    return rejected


def _fields(document: Mapping[str, Any]) -> dict[str, Any]:
    return {_snake_case(name): _field(name, content) for name, content in document.items()}


def _field(name: str, content: Any) -> Any:
    """Return a value as a field of a message takes it. In JSON ids are hexadecimal, and 64-bit integers are strings."""
    if isinstance(content, dict):
        return _fields(content)
    if isinstance(content, list):
        return [_field(name, part) for part in content]
    if name in ("traceId", "spanId", "parentSpanId"):
        return bytes.fromhex(content)
    return int(content) if name == "intValue" or name.endswith("UnixNano") else content


@cache
def _snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", name)


PATH: Final = "/v1/traces"
_MOST_ANSWER: Final = 1_000_000  # bytes that are read of a collector's response
_NEVER: Final = frozenset({400, 413, 415, 422})  # what it would refuse again. Source: OTLP 1.7, "Failures"


class CollectorError(WTBError):
    """A collector did not accept a request."""


class SpansRefused(CollectorError):
    """A collector rejects spans, and would reject them again."""


@frozen
class Collector:
    """The address of a collector, and how it is sent spans.

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
        raise InputError(f"endpoint is {endpoint!r}; expected a URL such as http://127.0.0.1:4318")
    # User and password in a URL would show up in messages and logs.
    if split.username is not None:
        raise InputError("the endpoint has a user or a password; give a key as a header instead")
    return endpoint if split.path.endswith(PATH) else endpoint.rstrip("/") + PATH


def send(collector: Collector, request: TracesRequest) -> int:
    """Send spans. Neither redirects nor proxies are followed: headers with keys go where they were meant to.

    Args:
        collector: Where.
        request: Them.

    Returns:
        The number of them that it refused.

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

    # The timeout of a socket starts again with each byte that comes, so that a slow reply could last for ever.
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
        raise CollectorError(f"the collector at {collector.url} does not respond {why}".replace(" :", ":")) from None
    finally:
        watchdog.cancel()
        connection.close()
    return _rejected(collector, answer, reply)


def _rejected(collector: Collector, answer: HTTPResponse, body: bytes) -> int:
    """Return the number of spans that a collector refused. Raises CollectorError if its response does not tell."""
    if not 200 <= answer.status < 300:
        refused = SpansRefused if answer.status in _NEVER else CollectorError
        raise refused(f"the collector at {collector.url} answers {answer.status} {answer.reason[:100]}")
    try:
        if collector.protobuf:
            return rejected_spans(body)
        document = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        what = "Protobuf" if collector.protobuf else "JSON"
        raise CollectorError(
            f"the server at {collector.url} is not a collector: its response is not in {what}"
        ) from None
    partial = document.get("partialSuccess") if isinstance(document, dict) else None
    count = partial.get("rejectedSpans", 0) if isinstance(partial, dict) else 0
    # This comes from outside: what is no number, or a huge one, counts as none.
    return int(count) if str(count).isdecimal() and len(str(count)) < 16 else 0


ENDPOINT = "WTB_TELEMETRY_ENDPOINT"
_SETTINGS = ("endpoint", "timeout", "content", "openinference", "protobuf")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*=\s*([\x20-\x7e]+)")


@frozen
class TelemetrySettings:
    """The collector to which traces are sent, and their contents.

    Attributes:
        endpoint: The collector's, as the settings name it.
        collector: How it is sent them.
        options: The options of their contents.
    """

    endpoint: str
    collector: Collector
    options: SpanOptions


def read_telemetry() -> TelemetrySettings | None:
    """Read `[telemetry]`, and WTB_TELEMETRY_ENDPOINT in place of its endpoint; None if neither is there.

    Raises:
        InputError: If a setting is invalid, or Protobuf is not installed.
    """
    setting, from_environment = find_setting("telemetry"), os.environ.get(ENDPOINT)
    if setting is None and not from_environment:
        return None
    table, where = (
        ({}, ENDPOINT) if setting is None else (table_of(setting, _SETTINGS), f"{setting.file}: {setting.title}")
    )
    endpoint, timeout = from_environment or table.get("endpoint"), table.get("timeout", 10)
    if not isinstance(endpoint, str) or len(endpoint) > 500:
        raise InputError(f"{where} needs an endpoint, the URL of a collector such as http://127.0.0.1:4318")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0.01 <= timeout <= 60:
        raise InputError(f"{where} timeout = {timeout!r}: expected seconds from 0.01 to 60")
    switches = {name: _switch(where, name, table.get(name, False)) for name in ("content", "openinference")}
    try:
        url = url_of(endpoint)
    except InputError as error:
        raise InputError(f"{where} {error}") from None
    # Headers may have keys, so that they are a credential and no setting of the file.
    headers = parse_headers((credential(TELEMETRY_HEADERS) or "").split(","), TELEMETRY_HEADERS)
    protobuf = _switch(where, "protobuf", table.get("protobuf", False))
    if protobuf:
        require_protobuf()
    return TelemetrySettings(endpoint, Collector(url, headers, timeout, protobuf), SpanOptions(**switches))


def parse_headers(lines: Iterable[str], source: str) -> dict[str, str]:
    """Return headers by their names.

    Args:
        lines: Each as NAME=VALUE.
        source: The option or variable that they are from.

    Raises:
        InputError: If one is invalid. The message does not show it, because it may be a key.
    """
    headers = {}
    for header in lines:
        if not header.strip():
            continue
        match = _HEADER.fullmatch(header.strip())
        if match is None:
            raise InputError(f"{source} has what is no header; expected NAME=VALUE", argument="headers")
        headers[match[1]] = match[2]
    return headers


def _switch(where: str, name: str, raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise InputError(f"{where} {name} = {raw!r}: expected true or false")
    return raw
