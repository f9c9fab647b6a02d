"""Where traces are sent by themselves, as the project's settings say it: the table `[telemetry]` of wtb.toml."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from wtb.config.credentials import TELEMETRY_HEADERS, credential
from wtb.config.project_settings import find_setting, table_of
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError
from wtb.operations.telemetry.building import SpanOptions
from wtb.operations.telemetry.collector import Collector, url_of
from wtb.operations.telemetry.protobuf import require_protobuf

ENDPOINT = "WTB_TELEMETRY_ENDPOINT"
_SETTINGS = ("endpoint", "timeout", "content", "openinference", "protobuf")
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*=\s*([\x20-\x7e]+)")


@frozen
class TelemetrySettings:
    """Where traces are sent, and what they say.

    Attributes:
        endpoint: The collector's, as the settings name it.
        collector: How it is sent them.
        options: What they say.
    """

    endpoint: str
    collector: Collector
    options: SpanOptions


def read_telemetry() -> TelemetrySettings | None:
    """Read `[telemetry]`, and WTB_TELEMETRY_ENDPOINT in place of its endpoint; None where neither is there.

    Raises:
        InputError: If a setting is not what it may be, or Protobuf is not installed.
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
        InputError: If one is none; it does not say what that was, which may be a key.
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
