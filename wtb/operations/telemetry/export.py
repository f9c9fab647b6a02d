"""Sending traces of a sweep to a collector: OTLP over HTTP, in JSON.

Nothing is kept of what was sent. Ids and times are those of rows, so whoever sends a sweep twice sends the same, and
what was interrupted is sent again whole. Source: OpenTelemetry Protocol 1.7, OTLP/HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import urlsplit

from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Number
from wtb.core.errors import InputError
from wtb.core.telemetry.spans import Span, as_request
from wtb.operations.context import Context
from wtb.operations.telemetry.building import SweepSpans
from wtb.store.read.queries import find_sweep

PATH: Final = "/v1/traces"
SERVICE: Final = "wtb"
AT_A_TIME: Final = 500  # spans of one request

Patience = Annotated[float, Number(0.01, 600)]


@dataclass(frozen=True)
class ExportedTraces:
    """What was sent of a sweep.

    Attributes:
        sweep: Its id.
        name: Its name.
        spans: How many spans were sent.
        attempts: How many of them are attempts.
        requests: In how many requests.
        rejected: How many of them the collector took and refused.
    """

    sweep: str
    name: str
    spans: int
    attempts: int
    requests: int
    rejected: int


@checked
def export_traces(
    context: Context,
    ref: str,
    endpoint: str,
    *,
    headers: Mapping[str, str] | None = None,
    timeout: Patience = 10.0,
) -> ExportedTraces:
    """Send the traces of a sweep to a collector of OpenTelemetry.

    Of executions that have not ended only attempts are sent. What nodes read and wrote, prompts included, is not.

    Args:
        context: Where it is.
        ref: A sweep: its id, the beginning of it, or its name.
        endpoint: The collector's, such as http://127.0.0.1:4318.
        headers: Headers of each request, such as a key.
        timeout: Seconds for each request.

    Returns:
        How much was sent.

    Raises:
        InputError: If there is no such sweep, or the endpoint is none.
        CollectorError: If the collector is away, hangs or refuses; send it again then.
    """
    from wtb.operations.telemetry.collector import send  # which imports much that nobody else needs

    sweep = find_sweep(context.database, ref)
    url = _url_of(endpoint)
    spans = attempts = requests = rejected = 0
    for some in _requests(SweepSpans(context.database, sweep)):
        rejected += send(url, as_request(some, SERVICE), headers or {}, timeout)
        requests += 1
        spans += len(some)
        attempts += sum("wtb.attempt" in span.attributes for span in some)
    return ExportedTraces(sweep.id, sweep.name, spans, attempts, requests, rejected)


def _url_of(endpoint: str) -> str:
    split = urlsplit(endpoint)
    if split.scheme not in ("http", "https") or not split.hostname:
        raise InputError(f"endpoint {endpoint!r} is none; expected a URL such as http://127.0.0.1:4318")
    return endpoint if split.path.endswith(PATH) else endpoint.rstrip("/") + PATH


def _requests(spans: SweepSpans) -> Iterator[Sequence[Span]]:
    for part in spans.parts():
        for start in range(0, len(part), AT_A_TIME):
            yield part[start : start + AT_A_TIME]
