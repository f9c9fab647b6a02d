"""The command that sends traces to where they are looked at: telemetry."""

from __future__ import annotations

from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_context, say
from wtb.core.texts import plural
from wtb.operations.telemetry import export as operations
from wtb.operations.telemetry import settings


def export(
    ref: Annotated[str, typer.Argument(metavar="SWEEP", help="Its id, the beginning of it, or its name.")],
    endpoint: Annotated[
        str, typer.Option("--endpoint", metavar="URL", help="Of a collector that takes OTLP over HTTP.")
    ] = "http://127.0.0.1:4318",
    headers: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="Of each request; several times.")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds for each request.")] = 10.0,
    content: Annotated[
        bool, typer.Option("--content", help="Send what models and tools were asked and answered, too.")
    ] = False,
    openinference: Annotated[
        bool, typer.Option("--openinference", help="Name attributes as OpenInference does, too.")
    ] = False,
    protobuf: Annotated[bool, typer.Option("--protobuf", help="Send Protobuf in place of JSON.")] = False,
    db: options.Db = None,
) -> None:
    """Send the traces of a sweep to a collector of OpenTelemetry.

    A root execution is a trace; attempts, model and tool calls are spans in it, scores are events. Ids are the same
    however often it is sent. What nodes read and wrote is not sent.

    See also: `[telemetry]` of wtb.toml has `wtb scheduler` send them by itself.

    Examples: wtb telemetry export nightly  |  wtb telemetry export nightly --endpoint https://otel.example.org
    """
    given = settings.parse_headers(headers or (), "--header")
    context = open_context(db)
    try:
        asked = {"content": content, "openinference": openinference, "protobuf": protobuf}
        sent = operations.export_traces(context, ref, endpoint, headers=given, timeout=timeout, **asked)
    finally:
        context.close()
    refused = f"; the collector refused {sent.rejected:,} of them" if sent.rejected else ""
    say(f"{sent.name}: {plural(sent.spans, 'span')} in {plural(sent.requests, 'request')}{refused}")


TELEMETRY = {"export": export}
