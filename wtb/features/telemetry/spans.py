"""OpenTelemetry spans of a sweep's records, with the same ids and times however often they are made.

Names of attributes are those of the GenAI conventions (`CONVENTIONS`), which are still in development, so the few that
are used are written here. They never contain the states that nodes read and wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final, NotRequired

from typing_extensions import TypedDict

from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import readable, storable
from wtb.core.version import __version__

CONVENTIONS: Final = "https://opentelemetry.io/schemas/1.38.0"
MOST_TEXT: Final = 200  # characters of a status or a reason

Attribute = str | int | float | bool
_INTERNAL, _CLIENT = 1, 3  # kinds of spans
_ERROR = 2  # status


@frozen
class SpanLink:
    """A link to a related span."""

    trace_id: str
    span_id: str


@frozen
class SpanEvent:
    """An event within a span."""

    name: str
    at: float
    attributes: Mapping[str, Attribute]


@frozen
class Span:
    """A unit of work with its duration.

    Attributes:
        trace_id: The id of its trace, the same for all spans of a root.
        span_id: Its own id.
        name: Its name.
        began: Seconds since the epoch.
        ended: Seconds since the epoch.
        parent_id: The enclosing span; None for a root.
        is_call: Whether it called another service.
        error: Why it failed; None if it did not.
        attributes: Its attributes.
        links: Related spans.
        events: Events within it.
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
    """A value of an attribute in OTLP's JSON, under the name of its type."""

    boolValue: bool
    intValue: str
    doubleValue: float
    stringValue: str


class KeyValue(TypedDict):
    """An attribute in OTLP's JSON."""

    key: str
    value: AnyValue


class EventDocument(TypedDict):
    """An event of a span in OTLP's JSON."""

    name: str
    timeUnixNano: str
    attributes: list[KeyValue]


class StatusDocument(TypedDict, total=False):
    """The status of a span in OTLP's JSON; empty if nothing failed."""

    code: int
    message: str


class ResourceDocument(TypedDict):
    """The resource of spans in OTLP's JSON."""

    attributes: list[KeyValue]


class ScopeSpans(TypedDict):
    """Spans with the library that made them, in OTLP's JSON."""

    scope: dict[str, str]
    schemaUrl: str
    spans: list[SpanDocument]


class ResourceSpans(TypedDict):
    """Spans with their resource, in OTLP's JSON."""

    resource: ResourceDocument
    scopeSpans: list[ScopeSpans]


class TracesRequest(TypedDict):
    """The request to a collector: ExportTraceServiceRequest in OTLP's JSON."""

    resourceSpans: list[ResourceSpans]


class SpanDocument(TypedDict):
    """A span in OTLP's JSON."""

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
    """Return spans as a request to a collector.

    Args:
        spans: The spans.
        service: The name of their service.
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
        # A span must not end before it begins, even if its two times come from different clocks.
        "endTimeUnixNano": _nanoseconds(max(span.began, span.ended)),
        "attributes": _attributes(span.attributes),
        "events": [
            {"name": event.name, "timeUnixNano": _nanoseconds(event.at), "attributes": _attributes(event.attributes)}
            for event in span.events
        ],
        "links": [{"traceId": link.trace_id, "spanId": link.span_id} for link in span.links],
        "status": {} if span.error is None else {"code": _ERROR, "message": span.error[:MOST_TEXT]},
    }
    if span.parent_id is not None:
        document["parentSpanId"] = span.parent_id
    return document


def _nanoseconds(seconds: float) -> str:
    return str(round(seconds * 1_000_000) * 1_000)  # to microseconds, the precision of a float


def _attributes(attributes: Mapping[str, Attribute | None]) -> list[KeyValue]:
    return [
        {"key": name, "value": _value(attribute)} for name, attribute in attributes.items() if attribute is not None
    ]


def _value(attribute: Attribute) -> AnyValue:
    if isinstance(attribute, bool):
        return {"boolValue": attribute}
    if isinstance(attribute, int):
        # OTLP's JSON has 64-bit integers as text, because JavaScript would round them.
        return {"intValue": str(attribute)}
    return {"doubleValue": attribute} if isinstance(attribute, float) else {"stringValue": attribute}


MOST_CONTENT: Final = 32_000  # characters of one attribute

Attributes = dict[str, str | int | float | bool | None]


def model_content(prompt: str | None, response: str | None) -> Attributes:
    """Return the prompt and the response of a model, both typed JSON, as messages."""
    return {
        "gen_ai.input.messages": _messages(prompt, "user"),
        "gen_ai.output.messages": _messages(response, "assistant"),
    }


def tool_content(arguments: str | None, reply: str | None) -> Attributes:
    """Return the arguments and the result of a tool, both typed JSON."""
    return {"gen_ai.tool.call.arguments": _text(arguments), "gen_ai.tool.call.result": _text(reply)}


def openinference(kind: str, about: Attributes) -> Attributes:
    """Return the attributes of a span under OpenInference's names.

    Args:
        kind: The kind of span: `CHAIN`, `LLM` or `TOOL`.
        about: Its attributes `gen_ai.*`.
    """
    read, wrote = about.get("gen_ai.usage.input_tokens"), about.get("gen_ai.usage.output_tokens")
    attributes: Attributes = {"openinference.span.kind": kind}
    if kind == "LLM":
        total = read + wrote if isinstance(read, int) and isinstance(wrote, int) else None
        attributes |= {
            "llm.model_name": about.get("gen_ai.request.model"),
            "llm.token_count.prompt": read,
            "llm.token_count.completion": wrote,
            "llm.token_count.total": total,
            "llm.cost.total": about.get("wtb.cost.usd"),
        }
    attributes["tool.name"] = about.get("gen_ai.tool.name")
    attributes["input.value"] = about.get("gen_ai.input.messages") or about.get("gen_ai.tool.call.arguments")
    attributes["output.value"] = about.get("gen_ai.output.messages") or about.get("gen_ai.tool.call.result")
    return attributes


def _messages(encoded: str | None, role: str) -> str | None:
    if encoded is None:
        return None
    content = readable(encoded.encode())
    if isinstance(content, Mapping) and isinstance(content.get("messages"), list):  # a request with its options
        content = content["messages"]
    each = (
        content
        if isinstance(content, list) and all(_is_message(message) for message in content)
        else [{"content": content}]
    )
    messages = [_message(message.get("role", role), message["content"]) for message in each]
    whole = json.dumps(messages)
    if len(whole) <= MOST_CONTENT:
        return whole
    # Cut before it is encoded, because a part of a JSON document is none; encoding may double a text.
    return json.dumps([_message(role, storable(_plain(content), MOST_CONTENT // 2))])


class _Part(TypedDict):
    type: str
    content: str


class _Message(TypedDict):
    """A message in OpenTelemetry's conventions for generative AI."""

    role: str
    parts: list[_Part]


def _is_message(message: object) -> bool:
    return isinstance(message, Mapping) and "content" in message


def _message(role: object, content: object) -> _Message:
    return {"role": str(role), "parts": [{"type": "text", "content": _plain(content)}]}


def _text(encoded: str | None) -> str | None:
    return None if encoded is None else storable(_plain(readable(encoded.encode())), MOST_CONTENT)


def _plain(content: object) -> str:
    return content if isinstance(content, str) else json.dumps(content)
