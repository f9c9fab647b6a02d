"""The command that sends traces to where they are looked at: telemetry."""

from __future__ import annotations

from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_context, say
from wtb.core.texts import plural
from wtb.features.telemetry import collector
from wtb.features.telemetry import operations as operations


def export(
    ref: Annotated[str, typer.Argument(metavar="SWEEP", help="Its id, the beginning of it, or its name.")],
    endpoint: Annotated[
        str, typer.Option("--endpoint", metavar="URL", help="URL of an OTLP collector over HTTP.")
    ] = "http://127.0.0.1:4318",
    headers: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="Header of each request; repeatable.")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds for each request.")] = 10.0,
    content: Annotated[
        bool, typer.Option("--content", help="Also send requests and responses of models and tools.")
    ] = False,
    openinference: Annotated[
        bool, typer.Option("--openinference", help="Also use attribute names of OpenInference.")
    ] = False,
    protobuf: Annotated[bool, typer.Option("--protobuf", help="Send Protobuf instead of JSON.")] = False,
    db: options.Db = None,
) -> None:
    """Send the traces of a sweep to a collector of OpenTelemetry.

    A root execution is a trace; attempts, model and tool calls are spans in it, scores are events. Ids are the same
    however often it is sent. States and writes of nodes are not sent.

    See also: the table `telemetry` of wtb.toml has `wtb scheduler` send them by itself.

    Examples: wtb admin telemetry export nightly  |  wtb admin telemetry export nightly --endpoint https://otel.example.org
    """
    parsed_headers = collector.parse_headers(headers or (), "--header")
    context = open_context(db)
    try:
        export_options = {"content": content, "openinference": openinference, "protobuf": protobuf}
        sent = operations.export_traces(
            context, ref, endpoint, headers=parsed_headers, timeout=timeout, **export_options
        )
    finally:
        context.close()
    refused = f"; the collector refused {sent.rejected:,} of them" if sent.rejected else ""
    say(f"{sent.name}: {plural(sent.spans, 'span')} in {plural(sent.requests, 'request')}{refused}")


TELEMETRY = {"export": export}
