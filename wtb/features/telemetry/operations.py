"""Traces of a sweep for a collector, on request or continuously: OTLP over HTTP, in JSON or Protobuf.

Ids and times are those of rows, so a sweep that is sent twice has the same ones, and what was interrupted is sent
again.

Source: OpenTelemetry Protocol 1.7, OTLP/HTTP.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from secrets import token_hex
from typing import Annotated, Final

from wtb.core.arguments import Number, checked
from wtb.core.errors import StoreError
from wtb.core.frozen import frozen
from wtb.core.ids import log_ids
from wtb.features.telemetry.building import AT_A_TIME, SpanOptions, make_spans
from wtb.features.telemetry.collector import (
    Collector,
    CollectorError,
    SpansRefused,
    TelemetrySettings,
    require_protobuf,
    send,
    url_of,
)
from wtb.features.telemetry.queries import execution_ids
from wtb.features.telemetry.spans import Span, as_request
from wtb.operations.context import Context
from wtb.store import log_followers
from wtb.store.bulk import parts
from wtb.store.database import Database
from wtb.store.read.queries import find_sweep
from wtb.store.records import BehindSweep
from wtb.store.runs.slots import LEASE_S
from wtb.store.tables.control import ExporterRow

SERVICE: Final = "wtb"
MOST_SPANS: Final = 500  # of one request

Patience = Annotated[float, Number(0.01, 600)]


@frozen
class ExportedTraces:
    """The result of `export_traces`: counts of what was sent.

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
        The numbers of what was sent.

    Raises:
        InputError: If there is no such sweep, the endpoint is none, or Protobuf is not installed.
        CollectorError: If the collector is away, hangs or refuses; send it again then.
    """
    # Checked first: a missing package is no reason to have sent half of a sweep.
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


PATIENCE_S: Final = 30.0  # for which it waits for sweeps that have work for workers
SHARE: Final = 9.0  # times as long as it took to send a part it rests after that, where workers still have work
PAUSES_S: Final = (5.0, 10.0, 30.0, 90.0, 300.0)  # before a collector that takes nothing is tried again


class TraceExports:
    """Sends traces of executions that have ended to one collector."""

    def __init__(
        self, database: Database, settings: TelemetrySettings, report: Callable[[str], object] = lambda _: None
    ) -> None:
        """Make it; nothing is sent before the first look.

        Args:
            database: What they are made from.
            settings: The collector and the contents of traces.
            report: Takes one line for people, when a collector stops or begins to take traces.
        """
        self._database = database
        self._settings = settings
        self._report = report
        # Random, so that two schedulers of one machine are not taken for one.
        self._owner = token_hex(8)
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._again_at = 0.0
        self._failures = 0
        self._busy_since: float | None = None
        self._is_named = False  # to the database, from when on it knows what is to be sent

    def look(self) -> None:
        """Send new spans in a thread. Return at once, and do nothing while an earlier thread still sends."""
        if time.monotonic() < self._again_at or self._ending.is_set():
            return
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._send_all, name="wtb-traces", daemon=True)
            self._thread.start()

    def end(self, seconds: float = 0.0) -> None:
        """Stop after the part that is being sent, and wait for that at most this long."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _send_all(self) -> None:
        """Send until nothing is left, or something is more important. This is the body of the thread."""
        exporter: ExporterRow | None = None
        try:
            if self._is_named and not self._may_send():  # which reads; a claim writes
                return
            exporter = self._claim()
            self._is_named = True
            has_more = exporter is not None
            while exporter is not None and has_more and self._may_send():
                has_more = False
                for sweep in log_followers.behind(
                    self._database, exporter
                ):  # a part of each, so that none waits for all
                    has_more |= self._may_send() and self._send_part(exporter, sweep)
        except CollectorError as error:
            self._failed(exporter, error)
        except StoreError:  # unreachable: the scheduler logs it, and the next look tries again
            return

    def _claim(self) -> ExporterRow | None:
        lease_s = LEASE_S + self._settings.collector.timeout
        return log_followers.claim_exporter(self._database, self._settings.endpoint, self._owner, lease_s)

    def _may_send(self) -> bool:
        """Return whether traces may be sent: nobody waits for workers, or somebody has for long."""
        if self._ending.is_set():
            return False
        if not log_followers.is_busy(self._database):
            self._busy_since = None
            return True
        self._busy_since = self._busy_since or time.monotonic()
        # A queue that is never empty must not hold traces up for ever.
        return time.monotonic() - self._busy_since > PATIENCE_S

    def _send_part(self, exporter: ExporterRow, sweep: BehindSweep) -> bool:
        """Send the next executions of a sweep.

        Returns:
            True if the position of the sweep advanced.

        Raises:
            CollectorError: If the collector does not take them for now.
        """
        began = time.monotonic()
        position = (sweep.transaction, sweep.event)
        ended = log_followers.ended_after(self._database, sweep.id, position, AT_A_TIME)
        if ended.position == position:
            return False  # what is there is not settled yet
        spans = rejected = 0
        for ids in parts(ended.executions, AT_A_TIME):
            for some in requests_of(make_spans(self._database, sweep, ids, self._settings.options)):
                if self._claim() is None:  # another scheduler took it for dead
                    return False
                spans += len(some)
                try:
                    rejected += send(self._settings.collector, as_request(some, SERVICE))
                # These would be refused each time, and hold up all that come after them.
                except SpansRefused as error:
                    rejected += len(some)
                    with log_ids(sweep=sweep.id):
                        self._report(f"traces: {len(some):,} spans of {sweep.id} are lost: {error}")
        # Noted after they were sent: a crash in between sends them again, and loses none.
        is_mine = log_followers.note_sent(
            self._database, exporter, sweep.id, ended.position, spans=spans, rejected=rejected
        )
        if spans and self._failures:
            self._report(f"traces: {self._settings.endpoint} takes them again")
            self._failures = 0
        if self._busy_since is not None:
            self._ending.wait(SHARE * (time.monotonic() - began))
        return is_mine

    def _failed(self, exporter: ExporterRow | None, error: CollectorError) -> None:
        pause = PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]
        self._failures += 1
        self._again_at = time.monotonic() + pause
        # One message for an outage, however long it lasts.
        if self._failures == 1:
            self._report(f"traces: {error}; it is tried again, and nothing is lost meanwhile")
        if exporter is not None:
            try:
                log_followers.note_failure(self._database, exporter, str(error)[:1000])
            except StoreError:  # whatever reads the database reports it
                return
