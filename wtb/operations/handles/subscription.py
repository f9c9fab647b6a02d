"""Subscriptions: events of a database for callbacks of the program that embeds WTB."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from wtb.core.documents.events import EventDocument
from wtb.core.errors import WTBError
from wtb.operations.context import Context
from wtb.operations.inspection.following import EventsFromNow, is_readable
from wtb.store.read.activity import Moment, read_moment

Callback = Callable[[EventDocument], object]
LAST_S: Final = 5.0  # for the last events, which an older transaction may hold up

_log = logging.getLogger("wtb")


class Subscription:
    """A callback that gets each event from the subscription on, in a thread of its own. `Bench.subscribe` returns it.

    As a context manager it unsubscribes at the end of the block.
    """

    def __init__(self, context: Context, callback: Callback, events: EventsFromNow, interval_s: float) -> None:
        self._context = context
        self._callback = callback
        self._events = events
        self._interval_s = interval_s
        self._ending = threading.Event()
        self._is_over = False
        self._until: Moment | None = None
        self._thread = threading.Thread(target=self._run, name="wtb-subscription", daemon=True)
        self._thread.start()

    @property
    def is_active(self) -> bool:
        """Whether the callback may still be called."""
        return self._thread.is_alive() and not self._is_over

    def unsubscribe(self) -> None:
        """End the subscription. The callback gets what was committed until now, and nothing after this has returned.

        Called by the callback itself, it ends the subscription with the present event.
        """
        if threading.current_thread() is self._thread:
            self._is_over = True
            self._ending.set()
            return
        if not self._ending.is_set():
            try:
                self._until = read_moment(self._context.database)
            except WTBError as error:
                _log.warning("the last events of a subscription cannot be read: %s", error)
            self._ending.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unsubscribe()

    def _run(self) -> None:
        """Call the callback with what is new, again and again, and at the end until all is read."""
        end_at: float | None = None
        while not self._is_over:
            is_last = self._ending.is_set()
            end_at = time.monotonic() + LAST_S if is_last and end_at is None else end_at
            is_read = self._look(is_last)
            if is_last and (is_read or time.monotonic() > (end_at or 0)):
                return
            self._ending.wait(self._interval_s) if not is_last else time.sleep(self._interval_s)

    def _look(self, is_last: bool) -> bool:
        """Call the callback with what is new. Return whether that is all that was committed until the end."""
        try:
            is_whole = is_last and (self._until is None or is_readable(self._context, self._until))
            for event in self._events.read_new():
                self._call(event)
                if self._is_over:
                    break
        except WTBError as error:
            _log.warning("a subscription waits: %s", error)
            return is_last and self._until is None
        return is_whole

    def _call(self, event: EventDocument) -> None:
        """Call the callback. What it raises ends neither the subscription nor what runs."""
        try:
            self._callback(event)
        except Exception:  # noqa: BLE001 - whatever the code of users raises
            _log.exception("the callback %r of a subscription failed at event %s", self._callback, event["kind"])
