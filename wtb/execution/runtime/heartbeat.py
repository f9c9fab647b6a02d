"""The heartbeat of a runner: it keeps its leases, and sees what others decided about its sweeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from wtb.core.errors import StoreError
from wtb.core.fault_points import point
from wtb.store.database import Database
from wtb.store.database_errors import is_disk_full
from wtb.store.runs import leases

LOOK_S = 1.0  # between two looks at what others decided
END_S = 1.0  # for a beat that is under way at the end


class Heartbeat:
    """Renews the leases of a runner three times in each `lease_s`, and calls `look` once a second.

    If renewing fails for as long as the leases last, or this thread ends, `stopped` is called: others may take over, so
    the runner has to abandon its work.
    """

    def __init__(
        self,
        database: Database,
        runner_id: str,
        lease_s: float,
        *,
        look: Callable[[], None],
        stopped: Callable[[], None],
    ) -> None:
        self._database = database
        self._runner_id = runner_id
        self._lease_s = lease_s
        self._look = look
        self._stopped = stopped
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="wtb-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """End the beats. What is at work is left alone.

        A beat that is under way is waited for, but not one whose database does not answer: whoever closes the database
        next would otherwise close a connection that is in use, which ends the process where all threads share one.
        """
        self._ending.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(END_S)

    def _beat(self) -> None:
        """The body of the thread. Calls `stopped` unless it was asked to end."""
        every = self._lease_s / 3
        try:
            renewed = due = time.monotonic()
            due += every
            while not self._ending.wait(max(0.0, min(LOOK_S, due - time.monotonic()))):
                try:
                    if time.monotonic() >= due:
                        due = time.monotonic() + every
                        point("heartbeat")
                        leases.renew(self._database, self._runner_id, self._lease_s)
                        renewed = time.monotonic()
                    self._look()
                except StoreError as error:
                    if is_disk_full(error):  # nobody else can take over either; if somebody does, the fence holds
                        renewed = time.monotonic()
                    elif time.monotonic() - renewed > self._lease_s:
                        return
        finally:
            if not self._ending.is_set():
                self._stopped()
