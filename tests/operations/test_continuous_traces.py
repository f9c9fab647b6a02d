"""Continuous export of traces: each is sent once while nothing fails, and none is lost after a failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from socket import create_server
from typing import Any

import pytest
import sqlalchemy as sa

from tests.operations.test_traces import branching
from tests.support.attempts import attempts
from tests.support.bench import Bench, in_memory, make_bench
from tests.support.prose import sentence
from tests.support.receiver import Receiver, attributes, receiving
from wtb.core.errors import InputError
from wtb.features.telemetry import operations
from wtb.features.telemetry.building import SpanOptions
from wtb.features.telemetry.collector import Collector, TelemetrySettings, parse_headers, read_telemetry, url_of
from wtb.features.telemetry.operations import TraceExports
from wtb.hosting.diagnostics import _collectors
from wtb.hosting.metrics import DatabaseMetrics, Tallies, exposition
from wtb.store import log_followers
from wtb.store.database import Database
from wtb.store.tables.schema import exporters, exports, sweeps


class Sending:
    """A database whose traces are sent to a receiver, from its first sweep on."""

    def __init__(self, folder: Path, url: str, *, timeout: float = 5.0, from_now_on: bool = True) -> None:
        self.database = in_memory()
        self.messages: list[str] = []
        self.folder = folder
        settings = TelemetrySettings(url, Collector(url_of(url), {"X-Key": "k"}, timeout), SpanOptions())
        self.settings = settings
        self.traces = TraceExports(self.database, settings, self.messages.append)
        if from_now_on:
            self.look()

    def run(self, cases: int = 2) -> Bench:
        """Run a sweep."""
        new_cases = [{"id": f"c{n}", "input": {"x": n}} for n in range(cases)]
        bench = make_bench(self.database, self.folder, branching(), cases=new_cases, vary={"b": "all"})
        bench.run()
        return bench

    def look(self, traces: TraceExports | None = None) -> None:
        """Send new traces, and wait until they are sent."""
        traces = traces or self.traces
        traces.look()
        if traces._thread is not None:
            traces._thread.join(30)

    def restart(self) -> None:
        """Export as a scheduler that starts after another was killed: later, and without its memory."""
        self.database.execute(exporters.update().values(lease_until=0.0))
        self.look(TraceExports(self.database, self.settings, self.messages.append))

    @property
    def state(self) -> Any:
        (row,) = log_followers.collectors(self.database)
        return row


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as collector:
        yield collector


@pytest.fixture
def sending(tmp_path: Path, receiver: Receiver) -> Iterator[Sending]:
    sender = Sending(tmp_path, receiver.url)
    yield sender
    sender.traces.end()
    sender.database.close()


def attempts_of(receiver: Receiver) -> list[str]:
    return [span["spanId"] for span in receiver.spans if "wtb.attempt" in attributes(span)]


def count(database: Database) -> int:
    return int(database.scalar(sa.select(sa.func.count()).select_from(attempts)) or 0)


def test_what_ends_is_sent_once(sending: Sending, receiver: Receiver) -> None:
    sending.run()
    sending.look()
    sent = attempts_of(receiver)
    assert len(sent) == len(set(sent)) == count(sending.database) > 4
    ids = [span["spanId"] for span in receiver.spans]
    assert len(set(ids)) == len(ids) == sending.state.spans
    sending.look()
    sending.restart()
    assert [span["spanId"] for span in receiver.spans] == ids, "nothing is new"
    sending.run(cases=1)
    sending.restart()
    assert len(set(attempts_of(receiver))) == count(sending.database)
    assert receiver.headers[0]["X-Key"] == "k"


def test_what_was_sent_and_not_noted_is_sent_again(
    sending: Sending, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending.run()
    with monkeypatch.context() as killed:
        killed.setattr(log_followers, "note_sent", lambda *_, **__: False)
        sending.look()
    once = [span["spanId"] for span in receiver.spans]
    sending.restart()
    assert [span["spanId"] for span in receiver.spans] == once + once
    assert len(set(attempts_of(receiver))) == count(sending.database)


def test_parts_continue_where_the_last_one_ended(
    sending: Sending, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "AT_A_TIME", 2)
    sending.run(cases=4)
    sending.look()
    ids = [span["spanId"] for span in receiver.spans]
    assert len(receiver.bodies) >= 6
    assert len(ids) == len(set(ids))
    assert len(attempts_of(receiver)) == count(sending.database)


def test_a_collector_that_is_away_loses_nothing_and_doctor_and_metrics_say_so(tmp_path: Path) -> None:
    with receiving(status=503) as receiver:
        sending = Sending(tmp_path, receiver.url)
        sending.run()
        sending.look()
        assert "answers 503" in sending.state.error
        assert sending.state.failing_since is not None
        (collector,) = _collectors(sending.database)
        assert collector["status"] == "problem"
        assert "answers 503" in collector["found"]
        body, _ = exposition([DatabaseMetrics(sending.database, Tallies())], "text/plain")
        assert b'wtb_exported_spans{status="accepted"} 0.0' in body
        assert b"wtb_export_failing_seconds 0.0\n" not in body
        sending.look()
        assert len(receiver.bodies) == 1, "it is given time"
        receiver.status = 200
        sending.restart()
        assert (sending.state.error, sending.state.failing_since) == (None, None)
        assert len(set(attempts_of(receiver))) == count(sending.database)
    assert len(sending.messages) == 1


def test_a_collector_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    with closing(create_server(("127.0.0.1", 0))) as silent:
        sending = Sending(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.3)
        sending.run()
        began = time.monotonic()
        sending.traces.look()
        assert time.monotonic() - began < 0.2
        sending.look()
        assert "does not respond within 0.3 s" in sending.state.error


def test_what_a_collector_refuses_for_good_is_counted_and_left(tmp_path: Path) -> None:
    with receiving(status=400) as receiver:
        sending = Sending(tmp_path, receiver.url)
        sending.run()
        sending.look()
        assert sending.state.rejected == sending.state.spans > 0
        assert "are lost" in sending.messages[0]
        sending.restart()
        assert len(receiver.bodies) == 1


def test_nothing_is_sent_while_workers_have_work_but_for_a_while(
    sending: Sending, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending.run()
    before = sending.state
    monkeypatch.setattr(log_followers, "is_busy", lambda _: True)
    sending.look()
    assert not receiver.bodies
    assert sending.state == before, "nothing is written either"
    monkeypatch.setattr(operations, "PATIENCE_S", 0.0)
    monkeypatch.setattr(operations, "SHARE", 0.0)
    sending.look()
    assert len(attempts_of(receiver)) == count(sending.database)


def test_while_workers_have_work_for_long_it_sends_a_tenth_of_the_time(
    sending: Sending, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending.run()
    monkeypatch.setattr(log_followers, "is_busy", lambda _: True)
    monkeypatch.setattr(operations, "PATIENCE_S", 0.0)
    rests: list[float] = []
    monkeypatch.setattr(sending.traces._ending, "wait", rests.append)
    receiver.hold()
    late = threading.Timer(0.3, receiver.resume)
    late.start()
    sending.look()
    assert receiver.bodies
    assert max(rests) >= 9 * 0.3 * 0.9, "nine times as long as the collector took"


def test_one_of_several_schedulers_sends(sending: Sending, receiver: Receiver) -> None:
    sending.run()
    other = TraceExports(sending.database, sending.settings)
    sending.look(other)
    assert not receiver.bodies
    sending.look()
    assert receiver.bodies


def test_what_had_ended_before_is_not_sent_until_it_is_tried_again(tmp_path: Path, receiver: Receiver) -> None:
    sending = Sending(tmp_path, receiver.url, from_now_on=False)
    old = sending.run()
    sending.database.execute(sweeps.update().values(finished_at=sweeps.c.finished_at - 60))
    sending.look()
    assert not receiver.bodies
    sending.database.execute(sweeps.update().values(finished_at=sweeps.c.finished_at + 3600))
    sending.look()
    assert {attributes(span).get("wtb.sweep") for span in receiver.spans} == {None, old.sweep_id}


def test_a_sweep_that_is_deleted_is_forgotten(sending: Sending, receiver: Receiver) -> None:
    bench = sending.run()
    sending.look()
    sending.database.execute(sweeps.delete().where(sweeps.c.id == bench.sweep_id))
    assert sending.database.scalar(sa.select(sa.func.count()).select_from(exports)) == 0


def test_settings_say_where_traces_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_telemetry() is None
    switches = "content = true\nprotobuf = true\n"
    (tmp_path / "wtb.toml").write_text(f"[telemetry]\nendpoint = 'http://127.0.0.1:4318/'\n{switches}")
    monkeypatch.setenv("WTB_TELEMETRY_HEADERS", "Authorization=Bearer a=b, X-Team=x")
    telemetry = read_telemetry()
    assert telemetry is not None
    assert telemetry.collector.url == "http://127.0.0.1:4318/v1/traces"
    assert telemetry.collector.headers == {"Authorization": "Bearer a=b", "X-Team": "x"}
    assert (telemetry.options, telemetry.collector.protobuf) == (SpanOptions(content=True), True)
    assert "Bearer" not in repr(telemetry), "keys are in no message"


def test_the_environment_says_where_traces_go_where_no_file_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WTB_TELEMETRY_ENDPOINT", "http://collector:4318")
    telemetry = read_telemetry()
    assert telemetry is not None
    assert (telemetry.endpoint, telemetry.options) == ("http://collector:4318", SpanOptions())
    monkeypatch.setenv("WTB_TELEMETRY_ENDPOINT", "collector")
    with pytest.raises(InputError, match="WTB_TELEMETRY_ENDPOINT endpoint is 'collector'"):
        read_telemetry()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("", sentence("needs an endpoint")),
        ("endpoint = 'collector'", "expected a URL"),
        ("endpoint = 'http://a:b@c'", sentence("give a key as a header")),
        ("endpoint = 'http://c:99999'", "expected a URL"),
        ("endpoint = 'http://c'\ntimeout = 0", "expected seconds"),
        ("endpoint = 'http://c'\nprotobuf = 1", sentence("{} = {}: expected true or false", "protobuf", 1)),
        ("endpoint = 'http://c'\ncontent = 1", sentence("expected true or false")),
        ("endpont = 'http://c'", sentence("did you mean '{}'", "endpoint")),
    ],
)
def test_settings_of_no_use_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, words: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wtb.toml").write_text(f"[telemetry]\n{table}\n")
    with pytest.raises(InputError, match=words):
        read_telemetry()


@pytest.mark.parametrize("headers", ["secret", "a b=c", "X=a\nb"])
def test_a_header_of_no_use_is_not_repeated(headers: str) -> None:
    with pytest.raises(InputError, match="expected NAME=VALUE") as refused:
        parse_headers([headers], "--header")
    assert headers not in str(refused.value)
