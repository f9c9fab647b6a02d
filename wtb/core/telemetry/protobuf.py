"""What a collector is sent, as Protobuf has it: for those that take no JSON. The few messages that are used stand here.

Sources: protobuf.dev, "Encoding"; OpenTelemetry Protocol 1.7, `trace.proto`, `common.proto`, `trace_service.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

_Fields = Mapping[str, tuple[int, "str | _Fields"]]  # by their names in JSON: number, and kind or fields of a message

_VALUE: Final[_Fields] = {
    "stringValue": (1, "text"),
    "boolValue": (2, "number"),
    "intValue": (3, "number"),
    "doubleValue": (4, "double"),
}
_ATTRIBUTE: Final[_Fields] = {"key": (1, "text"), "value": (2, _VALUE)}
_EVENT: Final[_Fields] = {"timeUnixNano": (1, "fixed"), "name": (2, "text"), "attributes": (3, _ATTRIBUTE)}
_LINK: Final[_Fields] = {"traceId": (1, "digits"), "spanId": (2, "digits")}
_SPAN: Final[_Fields] = {
    "traceId": (1, "digits"),
    "spanId": (2, "digits"),
    "parentSpanId": (4, "digits"),
    "name": (5, "text"),
    "kind": (6, "number"),
    "startTimeUnixNano": (7, "fixed"),
    "endTimeUnixNano": (8, "fixed"),
    "attributes": (9, _ATTRIBUTE),
    "events": (11, _EVENT),
    "links": (13, _LINK),
    "status": (15, {"message": (2, "text"), "code": (3, "number")}),
}
_SCOPE: Final[_Fields] = {
    "scope": (1, {"name": (1, "text"), "version": (2, "text")}),
    "spans": (2, _SPAN),
    "schemaUrl": (3, "text"),
}
_REQUEST: Final[_Fields] = {
    "resourceSpans": (1, {"resource": (1, {"attributes": (1, _ATTRIBUTE)}), "scopeSpans": (2, _SCOPE)})
}
_SHORT: Final = 64  # characters
_SMALL: Final = tuple(bytes([number]) for number in range(0x80))
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # how a field is written


def as_protobuf(request: Mapping[str, Any]) -> bytes:
    """Return a request as Protobuf.

    Args:
        request: As OTLP has it in JSON.
    """
    return _message(request, _REQUEST)


def rejected_spans(answer: bytes) -> int:
    """Return how many spans a collector says that it refused: `partial_success.rejected_spans`.

    Args:
        answer: What it answered, in Protobuf.

    Raises:
        ValueError: If that is no message.
    """
    for number, partial in _fields(answer):
        if number == 1 and isinstance(partial, bytes):
            return next((found for at, found in _fields(partial) if at == 1 and isinstance(found, int)), 0)
    return 0


def _message(document: Mapping[str, Any], fields: _Fields) -> bytes:
    parts = []
    for name, found in document.items():
        number, kind = fields[name]
        parts += [_field(number, kind, one) for one in (found if isinstance(found, list) else [found])]
    return b"".join(parts)


def _field(number: int, kind: str | _Fields, value: Any) -> bytes:
    if kind == "number":
        return _varint(number << 3 | _VARINT) + _varint(int(value) & 0xFFFF_FFFF_FFFF_FFFF)
    if kind in ("fixed", "double"):
        packed = struct.pack("<Q", int(value)) if kind == "fixed" else struct.pack("<d", value)
        return _varint(number << 3 | _FIXED64) + packed
    if kind == "text":
        text = str(value)
        return _short_text(number, text) if len(text) <= _SHORT else _text(number, text)
    content = bytes.fromhex(value) if isinstance(kind, str) else _message(value, kind)
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


@lru_cache(1024)  # in spans most of them are alike: names of attributes, nodes and variants
def _short_text(number: int, value: str) -> bytes:
    return _text(number, value)


def _text(number: int, value: str) -> bytes:
    content = value.encode()
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    if number < 0x80:
        return _SMALL[number]
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message by their numbers. Raises ValueError if it is none."""
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        how, length = tag & 7, 0
        if how == _VARINT:
            value, at = _read_varint(message, at)
            yield tag >> 3, value
            continue
        if how == _BYTES:
            length, at = _read_varint(message, at)
        elif how in (_FIXED64, _FIXED32):
            length = 8 if how == _FIXED64 else 4
        if how not in (_FIXED64, _BYTES, _FIXED32) or at + length > len(message):
            raise ValueError("no message of Protobuf")
        yield tag >> 3, message[at : at + length]
        at += length


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place, byte in enumerate(message[at : at + 10]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise ValueError("no message of Protobuf")
