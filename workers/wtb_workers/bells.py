"""Ringing: messages that tell free slots of executions that they may claim."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from celery import Celery

from wtb.config.broker import queue_key

log = logging.getLogger("wtb")

EXECUTE = "wtb.execute"
TICK = "wtb.tick"
MOST_SAID = 2000  # characters of what has failed
MOST_WAITING = 1000  # bells; more would be for slots that nobody has


def ring(app: Celery, rows: Iterable[Mapping[str, Any]]) -> None:
    """Send a message for each execution: its id, and words for people. Raises what the client of the broker does.

    failed: in a row of an execution that failed on a slot of no task: why. Nothing is run because of it.
    """
    with app.producer_or_acquire() as producer:
        for row in rows:
            words = {key: row[key] for key in ("sweep", "case")}
            words["choices"] = " ".join(f"{node}={variant}" for node, variant in row["choices"].items())
            if failed := row.get("failed"):
                words["failed"] = failed[:MOST_SAID]
            app.send_task(
                EXECUTE,
                args=[row["execution"]],
                kwargs=words,
                queue=queue_key(row["queue"]),
                producer=producer,
                retry=False,
                # What a monitor shows as its name, arguments and keyword arguments.
                shadow=words["sweep"],
                argsrepr=words["case"],
                kwargsrepr=f"{words['choices']} execution={row['execution']}".strip(),
            )


class Bells:
    """Rings from a thread of its own, so that a broker that hangs holds up no work.

    What cannot be sent is dropped: the tick rings again for what was not claimed. `well`: the last one was sent.
    say: is told when the broker takes no message any more, and when it does again.
    """

    def __init__(self, app: Celery, say: Callable[[str], object] = log.warning) -> None:
        self._app = app
        self._say = say
        self._rows: queue.Queue[Mapping[str, Any] | None] = queue.Queue(MOST_WAITING)
        self.well = True
        self._thread = threading.Thread(target=self._loop, name="wtb-bells", daemon=True)
        self._thread.start()

    def ring(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            try:
                self._rows.put_nowait(row)
            except queue.Full:
                return

    def ring_anew(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Ring, unless what was rung before still waits: for whoever will ring again for the same executions."""
        if self._rows.empty():
            self.ring(rows)

    def close(self, patience_s: float) -> None:
        """Send what waits, for so long at most."""
        try:
            self._rows.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(patience_s)

    def _loop(self) -> None:
        while (row := self._rows.get()) is not None:
            try:
                ring(self._app, [row])
                if not self.well:
                    self._say("the broker takes messages again")
                self.well = True
            except Exception as error:  # noqa: BLE001 - whatever is wrong with the broker, work goes on without it
                if self.well:
                    self._say(f"the broker takes no message ({error}); the tick rings again")
                self.well = False
