"""Checkpoints of a running attempt by time, for nodes that take none themselves: of its files and saved values."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wtb.core.errors import NodeTimeout, StateError

if TYPE_CHECKING:
    from wtb.authoring.context.attempt_record import Record
    from wtb.authoring.context.checkpoints import CheckpointTaker


@contextmanager
def timed_checkpoints(taker: CheckpointTaker, every: float | None, record: Record) -> Iterator[None]:
    """Take a checkpoint every so many seconds while the block runs, if something changed since the last one.

    What the node itself takes by `ctx.checkpoint` counts as well. None of it goes on after the block has ended.

    Args:
        taker: Takes the checkpoints of the attempt.
        every: Seconds between two; None for none.
        record: Where a checkpoint that cannot be taken is logged, once for each reason.
    """
    if every is None:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_take, args=(taker, every, record, ended), name="wtb-checkpoints", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _take(taker: CheckpointTaker, every: float, record: Record, ended: threading.Event) -> None:
    reasons: set[str] = set()
    wait = every
    while not ended.wait(wait):
        wait = taker.due_in(every)
        if wait > 0:  # the node has taken one itself
            continue
        wait = every
        try:
            taker.take_changed()
        except (StateError, NodeTimeout, OSError) as error:
            if (reason := str(error)) not in reasons:
                reasons.add(reason)
                message = f"no checkpoint was taken by time: {reason}"
                record.report("event", ["node.log", time.time(), {"message": message, "level": "warning"}])
