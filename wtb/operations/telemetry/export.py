"""Sending traces of a sweep to a collector: OTLP over HTTP, in JSON or Protobuf.

Ids and times are those of rows, so whoever sends a sweep twice sends the same, and what was interrupted is sent again.
Source: OpenTelemetry Protocol 1.7, OTLP/HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Number
from wtb.core.classes.frozen import frozen
from wtb.core.telemetry.spans import Span, as_request
from wtb.operations.context import Context
from wtb.operations.telemetry.building import AT_A_TIME, SpanOptions, make_spans
from wtb.operations.telemetry.collector import Collector, send, url_of
from wtb.operations.telemetry.protobuf import require_protobuf
from wtb.store.bulk import parts
from wtb.store.read.queries import find_sweep
from wtb.store.telemetry.attempts import execution_ids

SERVICE: Final = "wtb"
MOST_SPANS: Final = 500  # of one request

Patience = Annotated[float, Number(0.01, 600)]


@frozen
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
    content: bool = False,
    openinference: bool = False,
    protobuf: bool = False,
) -> ExportedTraces:
    """Send the traces of a sweep to a collector of OpenTelemetry.

    Of executions that have not ended only attempts are sent. What nodes read and wrote is not; prompts, answers and
    what tools were given and returned is where `content` asks for it.

    Args:
        context: Where it is.
        ref: A sweep: its id, the beginning of it, or its name.
        endpoint: The collector's, such as http://127.0.0.1:4318.
        headers: Headers of each request, such as a key.
        timeout: Seconds for each request.
        content: Whether to send what calls read and answered.
        openinference: Whether to name attributes as OpenInference does, too.
        protobuf: Whether to send Protobuf in place of JSON, which some take alone.

    Returns:
        How much was sent.

    Raises:
        InputError: If there is no such sweep, the endpoint is none, or Protobuf is not installed.
        CollectorError: If the collector is away, hangs or refuses; send it again then.
    """
    if protobuf:
        require_protobuf()
    sweep = find_sweep(context.database, ref)
    collector = Collector(url_of(endpoint), headers or {}, timeout, protobuf)
    spans = attempts = requests = rejected = 0
    for ids in parts(execution_ids(context.database, sweep.id), AT_A_TIME):
        for some in requests_of(make_spans(context.database, sweep, ids, SpanOptions(content, openinference))):
            rejected += send(collector, as_request(some, SERVICE))
            requests += 1
            spans += len(some)
            attempts += sum("wtb.attempt" in span.attributes for span in some)
    return ExportedTraces(sweep.id, sweep.name, spans, attempts, requests, rejected)


def requests_of(spans: Sequence[Span]) -> Sequence[Sequence[Span]]:
    """Split spans into those of one request each."""
    return list(parts(spans, MOST_SPANS))
