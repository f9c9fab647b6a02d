"""Sending traces by itself, while sweeps run: on a thread of its own, from where it stopped, and out of their way.

What was sent is known by a position in the log for each sweep, which is kept after the collector took what comes before
it. So a crash in between has some sent again, under the same ids, and loses none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from secrets import token_hex
from typing import Final

from wtb.core.errors import StoreError
from wtb.core.telemetry.log_ids import log_ids
from wtb.core.telemetry.spans import as_request
from wtb.operations.telemetry.building import AT_A_TIME, make_spans
from wtb.operations.telemetry.collector import CollectorError, SpansRefused, send
from wtb.operations.telemetry.export import SERVICE, requests_of
from wtb.operations.telemetry.settings import TelemetrySettings
from wtb.store.bulk import parts
from wtb.store.database import Database
from wtb.store.rows.sweeps import BehindSweep
from wtb.store.runs.slots import LEASE_S
from wtb.store.tables.control import ExporterRow
from wtb.store.telemetry import positions

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
            settings: Where to, and what they say.
            report: Takes one line for people, when a collector stops or begins to take traces.
        """
        self._database = database
        self._settings = settings
        self._report = report
        self._owner = token_hex(8)
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._again_at = 0.0
        self._failures = 0
        self._busy_since: float | None = None
        self._is_named = False  # to the database, from when on it knows what is to be sent

    def look(self) -> None:
        """Have a thread send what is new. Returns at once; where one still sends, nothing else happens."""
        if time.monotonic() < self._again_at or self._ending.is_set():
            return
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._send_all, name="wtb-traces", daemon=True)
            self._thread.start()

    def end(self, seconds: float = 0.0) -> None:
        """Stop after the part that is being sent, and wait for that at most so long."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _send_all(self) -> None:
        """The body of the thread: send until nothing is left, or something is more important."""
        exporter: ExporterRow | None = None
        try:
            if self._is_named and not self._may_send():  # which reads; a claim writes
                return
            exporter = self._claim()
            self._is_named = True
            goes_on = exporter is not None
            while exporter is not None and goes_on and self._may_send():
                goes_on = False
                for sweep in positions.behind(self._database, exporter):  # a part of each, so that none waits for all
                    goes_on |= self._may_send() and self._send_part(exporter, sweep)
        except CollectorError as error:
            self._failed(exporter, error)
        except StoreError:  # out of reach: the scheduler says so, and who looks next tries again
            return

    def _claim(self) -> ExporterRow | None:
        lease_s = LEASE_S + self._settings.collector.timeout
        return positions.claim_exporter(self._database, self._settings.endpoint, self._owner, lease_s)

    def _may_send(self) -> bool:
        """Return whether nobody waits for workers, or that has gone on for long."""
        if self._ending.is_set():
            return False
        if not positions.is_busy(self._database):
            self._busy_since = None
            return True
        self._busy_since = self._busy_since or time.monotonic()
        return time.monotonic() - self._busy_since > PATIENCE_S

    def _send_part(self, exporter: ExporterRow, sweep: BehindSweep) -> bool:
        """Send the next executions of a sweep. Returns whether that came further. Raises CollectorError."""
        began = time.monotonic()
        position = (sweep.transaction, sweep.event)
        ended = positions.ended_after(self._database, sweep.id, position, AT_A_TIME)
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
                except SpansRefused as error:
                    rejected += len(some)
                    with log_ids(sweep=sweep.id):
                        self._report(f"traces: {len(some):,} spans of {sweep.id} are lost: {error}")
        is_mine = positions.note_sent(
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
        if self._failures == 1:
            self._report(f"traces: {error}; it is tried again, and nothing is lost meanwhile")
        if exporter is not None:
            try:
                positions.note_failure(self._database, exporter, str(error)[:1000])
            except StoreError:  # what reads the database says so
                return
