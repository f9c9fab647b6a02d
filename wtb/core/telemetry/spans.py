"""Spans of OpenTelemetry, made of what a sweep left: the same ids and times however often they are made.

Names of attributes are those of the GenAI conventions, as `CONVENTIONS` says; they are still in development, so the few
that are used stand here. What nodes read and wrote is in none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final, NotRequired

from typing_extensions import TypedDict

from wtb.core.classes.frozen import frozen
from wtb.core.version import __version__

CONVENTIONS: Final = "https://opentelemetry.io/schemas/1.38.0"
MOST_TEXT: Final = 200  # characters of a status or a reason

Attribute = str | int | float | bool
_INTERNAL, _CLIENT = 1, 3  # kinds of spans
_ERROR = 2  # status


@frozen
class SpanLink:
    """Another span that has to do with one."""

    trace_id: str
    span_id: str


@frozen
class SpanEvent:
    """Something that happened within a span."""

    name: str
    at: float
    attributes: Mapping[str, Attribute]


@frozen
class Span:
    """Something that took its time.

    Attributes:
        trace_id: Of all that has the same root.
        span_id: Its own.
        name: What it is called.
        began: Seconds since the epoch.
        ended: The same.
        parent_id: The span within which it was; None for a root.
        is_call: Whether it asked somebody else.
        error: Why it failed; None if it did not.
        attributes: What is known of it.
        links: What else it has to do with.
        events: What happened within it.
    """

    trace_id: str
    span_id: str
    name: str
    began: float
    ended: float
    parent_id: str | None = None
    is_call: bool = False
    error: str | None = None
    attributes: Mapping[str, Attribute | None] = field(default_factory=dict)
    links: Sequence[SpanLink] = ()
    events: Sequence[SpanEvent] = ()


class AnyValue(TypedDict, total=False):
    """A value of an attribute, as OTLP has it in JSON: under the name of its type."""

    boolValue: bool
    intValue: str
    doubleValue: float
    stringValue: str


class KeyValue(TypedDict):
    """An attribute, as OTLP has it in JSON."""

    key: str
    value: AnyValue


class EventDocument(TypedDict):
    """An event of a span, as OTLP has it in JSON."""

    name: str
    timeUnixNano: str
    attributes: list[KeyValue]


class StatusDocument(TypedDict, total=False):
    """How a span ended, as OTLP has it in JSON; empty where nothing failed."""

    code: int
    message: str


class ResourceDocument(TypedDict):
    """What spans are of, as OTLP has it in JSON."""

    attributes: list[KeyValue]


class ScopeSpans(TypedDict):
    """Spans with the library that made them, as OTLP has them in JSON."""

    scope: dict[str, str]
    schemaUrl: str
    spans: list[SpanDocument]


class ResourceSpans(TypedDict):
    """Spans with what they are of, as OTLP has them in JSON."""

    resource: ResourceDocument
    scopeSpans: list[ScopeSpans]


class TracesRequest(TypedDict):
    """What a collector is sent: ExportTraceServiceRequest, as OTLP has it in JSON."""

    resourceSpans: list[ResourceSpans]


class SpanDocument(TypedDict):
    """A span, as OTLP has it in JSON."""

    traceId: str
    spanId: str
    name: str
    kind: int
    startTimeUnixNano: str
    endTimeUnixNano: str
    attributes: list[KeyValue]
    events: list[EventDocument]
    links: list[dict[str, str]]
    status: StatusDocument
    parentSpanId: NotRequired[str]


def as_request(spans: Iterable[Span], service: str) -> TracesRequest:
    """Return spans as a collector is sent them.

    Args:
        spans: They.
        service: The name of what they are of.
    """
    resource: ResourceDocument = {"attributes": _attributes({"service.name": service, "service.version": __version__})}
    scope_spans: ScopeSpans = {
        "scope": {"name": "wtb", "version": __version__},
        "schemaUrl": CONVENTIONS,
        "spans": [_document(span) for span in spans],
    }
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope_spans]}]}


def _document(span: Span) -> SpanDocument:
    document: SpanDocument = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": _CLIENT if span.is_call else _INTERNAL,
        "startTimeUnixNano": _nanoseconds(span.began),
        "endTimeUnixNano": _nanoseconds(max(span.began, span.ended)),
        "attributes": _attributes(span.attributes),
        "events": [
            {"name": one.name, "timeUnixNano": _nanoseconds(one.at), "attributes": _attributes(one.attributes)}
            for one in span.events
        ],
        "links": [{"traceId": link.trace_id, "spanId": link.span_id} for link in span.links],
        "status": {} if span.error is None else {"code": _ERROR, "message": span.error[:MOST_TEXT]},
    }
    if span.parent_id is not None:
        document["parentSpanId"] = span.parent_id
    return document


def _nanoseconds(seconds: float) -> str:
    return str(round(seconds * 1_000_000) * 1_000)  # of microseconds: a float knows no more


def _attributes(given: Mapping[str, Attribute | None]) -> list[KeyValue]:
    return [{"key": name, "value": _value(value)} for name, value in given.items() if value is not None]


def _value(value: Attribute) -> AnyValue:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}
