"""Events of the nodes of a sweep are printed as it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from wtb.cli.console import say
from wtb.core.documents.event_texts import event_text
from wtb.core.texts import clock
from wtb.store.read import queries

if TYPE_CHECKING:
    from wtb.cli.progress import Show
    from wtb.execution.state import Progress
    from wtb.store.database import Database

LOOK_S = 0.2  # between two looks at what happened
SLOW_S = 2.0  # after which the start of a node is shown, too, and not only its end
_SHOWN_EVENTS = (
    "node_run.succeeded",
    "node_run.failed",
    "node_run.skipped",
    "attempt.failed",
    "attempt.lost",
    "node.log",
    "node.progress",
    "execution.forked",
    "execution.stalled",
    "approval.asked",
)


class EventPrinter:
    """Prints the events of a sweep to stderr, one line each."""

    def __init__(self, database: Database, sweep_id: str, *, from_start: bool = False) -> None:
        self._database = database
        self._sweep_id = sweep_id
        before = [] if from_start else queries.event_rows(database, sweep_id)
        # By transaction first: ids are drawn before a commit, so a lower id may become visible later.
        self._after = (before[-1]["transaction"], before[-1]["id"]) if before else (-1, 0)
        self._look_at = 0.0
        self._running: dict[tuple[Any, ...], tuple[float, str]] = {}

    def look(self, *, last: bool = False) -> None:
        """Print new events."""
        if time.monotonic() < self._look_at and not last:
            return
        for row in queries.event_rows(self._database, self._sweep_id, after=self._after):
            self._after = (row["transaction"], row["id"])
            text, details = event_text(row["kind"], row["data"]), row["data"]
            which = (row["execution_id"], details.get("node"), details.get("variant"))
            if row["kind"] == "node_run.started":
                self._running[which] = (time.monotonic(), f"{clock(row['at'])} {text}")
            elif row["kind"] in _SHOWN_EVENTS:
                if row["kind"].startswith("node_run."):
                    self._running.pop(which, None)
                say(f"{clock(row['at'])} {text}")
        for which, (since, text) in list(self._running.items()):
            if time.monotonic() - since > SLOW_S:
                del self._running[which]
                say(text)
        self._look_at = time.monotonic() + LOOK_S


@contextmanager
def show_events(database: Database, sweep_id: str | None, quiet: bool) -> Iterator[Show]:
    """Print the events of the nodes of a sweep each time that what it yields is called; None: of a new sweep."""
    printers = [] if sweep_id is None or quiet else [EventPrinter(database, sweep_id)]

    def show(now: Progress) -> None:
        if not printers:
            printers.append(EventPrinter(database, now.sweep_id, from_start=True))
        printers[0].look()

    yield (lambda _: None) if quiet else show
    if printers:
        # `look` skips a call that comes too soon after another, so events may be left at the end.
        printers[0].look(last=True)
