"""Writes that wait a moment for the checkpoint of their step, to be committed together with it.

LangGraph hands over the writes of a step's tasks in the background, and the checkpoint that they lead to as soon as the
last task is done; either may come first. Committed together they take one wait for the disk in place of two. Nothing is
told to be stored before it is. Nobody waits in a thread before a checkpoint has come while writes were being stored,
which shows that its writes and checkpoints come together; an update, an interrupt or a run that is stored when it ends
shows no such thing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from wtb.store.threads.rows import ThreadWrite

Place = tuple[str, str]
"""Thread and namespace."""

PATIENCE_S = 0.005
_TRIES = 2
_MOST_PLACES = 10_000


class Waiting:
    """The writes of one call, as rows, with their values by digest."""

    def __init__(self, rows: Sequence[ThreadWrite], values: dict[str, bytes]) -> None:
        self.rows = rows
        self.values = values
        self.taken = False
        self.stored = False
        self.over = threading.Event()


@dataclass
class _Thread:
    waiting: list[Waiting] = field(default_factory=list)
    made_from: str | None = None  # the checkpoint that the last writes were made from
    storing: int = 0  # how many writes are being stored by themselves
    in_vain: int = _TRIES  # how often in a row somebody waited for nobody; at first nobody waits


class Pairing:
    """Who waits for whom, by thread and namespace."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._threads: OrderedDict[Place, _Thread] = OrderedDict()

    @contextmanager
    def offer(self, place: Place, checkpoint_id: str | None, writes: Waiting) -> Iterator[bool]:
        """Wait for a checkpoint to take these writes along. False: they are to be stored inside, by themselves."""
        with self._changed:
            thread = self._thread(place)
            thread.made_from = checkpoint_id
            self._changed.notify_all()
            # No checkpoint follows at once on what is only an error or an interrupt.
            waits = thread.in_vain < _TRIES and any(row["number"] >= 0 for row in writes.rows)
            if waits:
                thread.waiting.append(writes)
            else:
                thread.storing += 1
        if waits:
            writes.over.wait(PATIENCE_S)
            with self._changed:
                if not writes.taken:
                    thread.waiting.remove(writes)
                    thread.in_vain += 1
                    thread.storing += 1
            if writes.taken:
                writes.over.wait()
                if writes.stored:
                    yield True
                    return
                with self._changed:
                    thread.storing += 1
        try:
            yield False
        finally:
            with self._changed:
                thread.storing -= 1

    @contextmanager
    def take_waiting(self, place: Place, parent_id: str | None) -> Iterator[list[Waiting]]:
        """The writes that led from `parent_id` to a checkpoint, as far as they are not stored yet.

        What is done with them inside is done for all of them, or, if it fails, for none. parent_id: None where no
        writes are expected.
        """
        with self._changed:
            thread = self._thread(place)
            if thread.storing:
                thread.in_vain = 0
            elif parent_id is not None and thread.in_vain < _TRIES:
                came = self._changed.wait_for(lambda: thread.made_from == parent_id, PATIENCE_S)
                thread.in_vain += not came
            waiting, thread.waiting = thread.waiting, []
            for writes in waiting:
                writes.taken = True
            if waiting:
                thread.in_vain = 0
        try:
            yield waiting
            for writes in waiting:
                writes.stored = True
        finally:
            for writes in waiting:
                writes.over.set()

    def _thread(self, place: Place) -> _Thread:
        found = self._threads.setdefault(place, _Thread())
        self._threads.move_to_end(place)
        if len(self._threads) > _MOST_PLACES:
            oldest, thread = next(iter(self._threads.items()))
            if not (thread.waiting or thread.storing):
                del self._threads[oldest]
        return found
