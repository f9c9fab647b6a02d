"""Traces are built from the database, have the same ids however often they are sent, and omit inputs of nodes."""

from __future__ import annotations

import json
import re
import socket
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from google.protobuf.json_format import MessageToDict, ParseDict
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from tests.support.attempts import attempts
from tests.support.bench import in_memory, make_bench
from tests.support.prose import sentence
from tests.support.receiver import attributes, receiving
from wtb import Workflow
from wtb.config.distribution import pip_install
from wtb.core.errors import InputError
from wtb.features.telemetry import collector as exporting
from wtb.features.telemetry import collector as settings
from wtb.features.telemetry.collector import CollectorError
from wtb.features.telemetry.operations import export_traces
from wtb.features.telemetry.spans import MOST_CONTENT, model_content
from wtb.operations.context import Context
from wtb.store.database import Database
from wtb.store.tables.schema import executions

SECRET = "what-the-case-says"


def branching() -> Workflow:
    """a, whose one run all share, then b in two variants, one of which fails at first."""
    wf = Workflow("branching")

    @wf.tool
    def look(q: str) -> str:
        return q

    failed: list[int] = []

    @wf.node
    def a(state: Any, ctx: Any) -> Any:
        ctx.tools.look(q=state["x"])
        ctx.call(model="m-1", prompt=state["x"], response="r", tokens_in=3, tokens_out=2, usd=0.5)
        return {"y": state["x"]}

    @wf.node(retries=1)
    def b(state: Any, *, breaks: bool = False) -> Any:
        if breaks and not failed:
            failed.append(1)
            raise ValueError(state["y"])
        return {"z": 1}

    b.variant("breaking", breaks=True)
    wf.entry(a)
    wf.edge(a, b)
    return wf


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Context, str]]:
    database, folder = in_memory(), tmp_path_factory.mktemp("traces")
    cases = [{"id": f"c{n}", "input": {"x": SECRET}} for n in range(3)]
    bench = make_bench(database, folder, branching(), cases=cases, vary={"b": "all"})
    bench.run()
    yield Context(database, by="ann", files=folder), bench.sweep_id
    database.close()


def count(database: Database, table: sa.Table) -> int:
    return int(database.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


def test_every_attempt_and_execution_is_a_span(place: tuple[Context, str]) -> None:
    context, sweep = place
    with receiving() as collector:
        sent = export_traces(context, sweep, collector.url)
    spans = [attributes(span) for span in collector.spans]
    assert sent.attempts == sum("wtb.attempt" in span for span in spans) == count(context.database, attempts)
    assert sum("wtb.execution" in span for span in spans) == count(context.database, executions)
    assert (sent.spans, sent.rejected) == (len(spans), 0)
    assert len({span["traceId"] for span in collector.spans}) == 3, "one for each root"


def test_what_is_sent_is_what_the_protocol_says(place: tuple[Context, str]) -> None:
    """By the definition of OTLP that OpenTelemetry publishes, which refuses a field that it does not know."""
    context, sweep = place
    with receiving() as collector:
        export_traces(context, sweep, collector.url, content=True, openinference=True)
    for body in collector.bodies:
        for span in [
            span for resource in body["resourceSpans"] for scope in resource["scopeSpans"] for span in scope["spans"]
        ]:
            for ids in (span, *span["links"]):  # which OTLP has in hexadecimal digits, and Protobuf's JSON in Base64
                for name in ids.keys() & {"traceId", "spanId", "parentSpanId"}:
                    ids[name] = b64encode(bytes.fromhex(ids[name])).decode()
        read = ParseDict(body, trace_service_pb2.ExportTraceServiceRequest())
        spans = [span for resource in read.resource_spans for scope in resource.scope_spans for span in scope.spans]
        assert spans
        assert {(len(span.trace_id), len(span.span_id)) for span in spans} == {(16, 8)}
        assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)


def test_protobuf_says_what_json_does(place: tuple[Context, str]) -> None:
    """By the definition of OTLP that OpenTelemetry publishes."""
    context, sweep = place
    options = {"content": True, "openinference": True}
    with receiving() as collector:
        export_traces(context, sweep, collector.url, **options)
    refused = trace_service_pb2.ExportTraceServiceResponse()
    refused.partial_success.rejected_spans = 300
    refused.partial_success.error_message = "no"
    with receiving(answer=refused.SerializeToString()) as other:
        sent = export_traces(context, sweep, other.url, **options, protobuf=True)
    assert other.headers[0]["Content-Type"] == "application/x-protobuf"
    assert sent.rejected == 300 * sent.requests
    for body, expected in zip(other.bodies, collector.bodies, strict=True):
        read = MessageToDict(trace_service_pb2.ExportTraceServiceRequest.FromString(body), use_integers_for_enums=True)
        assert _plain(read) == _plain(expected)


def _plain(message: Any) -> Any:
    """Drop empty fields, and convert the Base64 ids of Protobuf's JSON to hexadecimal."""
    if isinstance(message, list):
        return [_plain(part) for part in message]
    if not isinstance(message, dict):
        return message
    ids = {"traceId", "spanId", "parentSpanId"}
    fields = {name: field for name, field in message.items() if field not in ({}, [], "")}
    return {
        name: b64decode(field).hex() if name in ids and field.endswith("=") else _plain(field)
        for name, field in fields.items()
    }


@pytest.mark.parametrize("answer", [b"\xff", b"<html>", b"\x0a\xff\xff\xff\xff\x0f", b"\x08" + b"\xff" * 20, b"\x0b"])
def test_what_answers_no_protobuf_is_no_collector(place: tuple[Context, str], answer: bytes) -> None:
    context, sweep = place
    with (
        receiving(answer=answer) as collector,
        pytest.raises(CollectorError, match=sentence("its response is not in {}", "Protobuf")),
    ):
        export_traces(context, sweep, collector.url, protobuf=True)


def test_protobuf_without_its_extra_is_refused(
    place: tuple[Context, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    context, sweep = place
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wtb.toml").write_text("[telemetry]\nendpoint = 'http://127.0.0.1:4318'\nprotobuf = true\n")
    for refused in (
        lambda: export_traces(context, sweep, "http://127.0.0.1:4318", protobuf=True),
        settings.read_telemetry,
    ):
        with pytest.raises(InputError, match=re.escape(pip_install("telemetry"))):
            refused()


def test_a_span_is_within_its_parent_and_in_its_trace(place: tuple[Context, str]) -> None:
    context, sweep = place
    with receiving() as collector:
        export_traces(context, sweep, collector.url)
    by_id = {span["spanId"]: span for span in collector.spans}
    assert len(by_id) == len(collector.spans)
    children = [span for span in collector.spans if "parentSpanId" in span]
    assert len(by_id) - len(children) == 3
    assert all(by_id[span["parentSpanId"]]["traceId"] == span["traceId"] for span in children)
    (kinds,) = {
        tuple(sorted(attributes(by_id[link["spanId"]])["wtb.node"] for link in span["links"]))
        for span in collector.spans
        if span["links"]
    }
    assert kinds == ("a",), "forks link to what they share"
    calls = [span for span in collector.spans if attributes(span).get("gen_ai.operation.name") == "chat"]
    assert {attributes(span)["gen_ai.request.model"] for span in calls} == {"m-1"}
    assert len(calls) == 3
    failed = [span for span in collector.spans if span["status"].get("code") == 2]
    assert [attributes(span)["wtb.variant"] for span in failed] == ["breaking"]


def test_what_is_sent_twice_is_the_same(place: tuple[Context, str]) -> None:
    context, sweep = place
    with receiving() as first, receiving() as second:
        export_traces(context, sweep, first.url)
        export_traces(context, sweep, second.url)
    assert first.spans == second.spans


def test_what_nodes_read_and_wrote_is_not_sent(place: tuple[Context, str]) -> None:
    context, sweep = place
    with receiving() as collector:
        export_traces(context, sweep, collector.url, headers={"X-Key": "k"})
    assert SECRET not in json.dumps(collector.bodies)
    assert collector.headers[0]["X-Key"] == "k"


@pytest.mark.parametrize("share", [True, False])
def test_spans_of_a_node_join_those_of_its_attempts(tmp_path: Path, share: bool) -> None:
    wf = Workflow("own")
    seen: list[str | None] = []

    @wf.node(retries=1)
    def a(state: Any, ctx: Any, *, n: int = 0) -> Any:
        seen.append(ctx.traceparent)
        if ctx.attempt == 1:
            raise ValueError
        return {"y": n}

    a.variant("other", n=1)
    wf.entry(a)
    database = in_memory()
    cases = [{"id": f"c{n}", "input": {}} for n in range(2)]
    bench = make_bench(database, tmp_path, wf, cases=cases, vary={"a": "all"}, run={"share": share})
    bench.run()
    with receiving() as collector:
        export_traces(Context(database, files=tmp_path), bench.sweep_id, collector.url)
    spans = [span for span in collector.spans if "wtb.attempt" in attributes(span)]
    assert sorted(f"00-{span['traceId']}-{span['spanId']}-01" for span in spans) == sorted(map(str, seen))
    assert len(seen) == 8
    assert len({span["traceId"] for span in collector.spans}) == (2 if share else 4), "one for each root"
    database.close()


def test_prompts_and_answers_are_sent_where_somebody_asks_for_them(place: tuple[Context, str]) -> None:
    context, sweep = place
    with receiving() as collector:
        export_traces(context, sweep, collector.url, content=True, openinference=True)
    calls = [
        span for raw_span in collector.spans if (span := attributes(raw_span)).get("gen_ai.operation.name") == "chat"
    ]
    prompt, completion = (json.loads(calls[0][f"gen_ai.{way}.messages"]) for way in ("input", "output"))
    assert prompt == [{"role": "user", "parts": [{"type": "text", "content": SECRET}]}]
    assert completion == [{"role": "assistant", "parts": [{"type": "text", "content": "r"}]}]
    assert calls[0]["openinference.span.kind"] == "LLM"
    assert (calls[0]["llm.token_count.total"], calls[0]["llm.model_name"]) == ("5", "m-1")
    kinds = [attributes(span)["openinference.span.kind"] for span in collector.spans]
    assert kinds.count("TOOL") == 3
    tools = [span for raw_span in collector.spans if (span := attributes(raw_span)).get("gen_ai.tool.name") == "look"]
    assert json.loads(tools[0]["gen_ai.tool.call.arguments"]) == {"q": SECRET}


@pytest.mark.parametrize(
    ("prompt", "roles"),
    [
        (
            {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": ["b"]}], "n": 1},
            ["system", "user"],
        ),
        ([{"role": "user", "content": "a"}], ["user"]),
        ([1, 2], ["user"]),
        ("x" * 100_000, ["user"]),
        (["x" * 100_000, "é" * 100_000], ["user"]),
        ([], []),
    ],
)
def test_prompts_of_all_shapes_are_messages_of_bounded_size(prompt: Any, roles: list[str]) -> None:
    content = str(model_content(json.dumps(prompt), None)["gen_ai.input.messages"])
    assert [message["role"] for message in json.loads(content)] == roles
    assert len(content) <= 7 * MOST_CONTENT


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"status": 503}, "answers 503"),
        ({"status": 307}, "answers 307"),
        ({"status": 401}, "answers 401"),
        ({"answer": b"<html>"}, sentence("its response is not in {}", "JSON")),
    ],
)
def test_a_collector_that_refuses_is_named(place: tuple[Context, str], how: dict[str, Any], words: str) -> None:
    context, sweep = place
    with receiving(**how) as collector, pytest.raises(CollectorError, match=words):
        export_traces(context, sweep, collector.url)
    assert len(collector.bodies) == 1, "a redirection is not followed"


@pytest.mark.parametrize(
    "answer", [b'{"partialSuccess": {"rejectedSpans": "2"}}', b'{"partialSuccess": null}', b"[]", b""]
)
def test_what_a_collector_refuses_of_it_is_counted(place: tuple[Context, str], answer: bytes) -> None:
    context, sweep = place
    with receiving(answer=answer) as collector:
        assert export_traces(context, sweep, collector.url).rejected == (2 if b"2" in answer else 0)


def test_a_collector_that_hangs_holds_nobody_up(place: tuple[Context, str]) -> None:
    context, sweep = place
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(CollectorError, match=sentence("does not respond")):
            export_traces(context, sweep, url, timeout=0.2)
    with pytest.raises(CollectorError, match=sentence("does not respond")):
        export_traces(context, sweep, url)


@pytest.mark.parametrize("endpoint", ["", "collector", "ftp://c", "file:///etc/passwd", "http://"])
def test_what_is_no_endpoint_is_refused(place: tuple[Context, str], endpoint: str) -> None:
    context, sweep = place
    with pytest.raises(InputError, match=r"expected a URL|is empty"):
        export_traces(context, sweep, endpoint)


def test_a_sweep_that_there_is_not_is_named(place: tuple[Context, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no sweep"):
        export_traces(place[0], "nowhere", "http://127.0.0.1:1")
