"""OTLP in Protobuf, for collectors that do not accept JSON: the messages of `opentelemetry-proto`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

from wtb.config.distribution import pip_install
from wtb.core.errors import InputError
from wtb.core.telemetry.spans import TracesRequest


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
    return {_snake_case(name): _field(name, value) for name, value in document.items()}


def _field(name: str, value: Any) -> Any:
    """Return what the constructor of a message takes: in JSON ids are hexadecimal, and 64-bit integers strings."""
    if isinstance(value, dict):
        return _fields(value)
    if isinstance(value, list):
        return [_field(name, item) for item in value]
    if name in ("traceId", "spanId", "parentSpanId"):
        return bytes.fromhex(value)
    return int(value) if name == "intValue" or name.endswith("UnixNano") else value


@cache
def _snake_case(name: str) -> str:
    return re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", name)
