"""Writes that wait a moment for the checkpoint of their step, to be committed together with it.

LangGraph hands over the writes of a step's tasks in the background, and the checkpoint that they lead to as soon as the
last task is done; either may come first. Committed together they take one wait for the disk in place of two. Nothing is
told to be stored before it is.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Place = tuple[str, str]
"""Thread and namespace."""

PATIENCE_S = 0.005
_TRIES = 2
_MOST_PLACES = 10_000


class Waiting:
    """The writes of one call, as rows, with their values by digest."""

    def __init__(self, rows: Sequence[Row], values: dict[str, bytes]) -> None:
        self.rows = rows
        self.values = values
        self.taken = False
        self.stored = False
        self.over = threading.Event()


@dataclass
class _Thread:
    waiting: list[Waiting] = field(default_factory=list)
    made_from: str | None = None  # the checkpoint that the last writes were made from
    in_vain: int = 0  # how often in a row somebody waited for nobody


class Pairing:
    """Who waits for whom, by thread and namespace."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._threads: OrderedDict[Place, _Thread] = OrderedDict()

    def was_stored(self, place: Place, checkpoint_id: str | None, writes: Waiting) -> bool:
        """Wait for a checkpoint to take these writes along. False: they are to be stored by themselves."""
        with self._changed:
            thread = self._thread(place)
            thread.made_from = checkpoint_id
            self._changed.notify_all()
            if thread.in_vain >= _TRIES:
                return False
            thread.waiting.append(writes)
        writes.over.wait(PATIENCE_S)
        with self._changed:
            if not writes.taken:
                thread.waiting.remove(writes)
                thread.in_vain += 1
                return False
        writes.over.wait()
        return writes.stored

    def begin(self, place: Place) -> None:
        """A thread is read, so a run of it may begin: whoever waited in vain before may wait again."""
        with self._changed:
            self._thread(place).in_vain = 0

    @contextmanager
    def taken(self, place: Place, parent_id: str | None) -> Iterator[list[Waiting]]:
        """The writes that led from `parent_id` to a checkpoint, as far as they are not stored yet.

        What is done with them inside is done for all of them, or, if it fails, for none. parent_id: None where no
        writes are expected.
        """
        with self._changed:
            thread = self._thread(place)
            if parent_id is not None and thread.in_vain < _TRIES:
                came = self._changed.wait_for(lambda: thread.made_from == parent_id, PATIENCE_S)
                thread.in_vain = 0 if came else thread.in_vain + 1
            found, thread.waiting = thread.waiting, []
            for writes in found:
                writes.taken = True
        try:
            yield found
            for writes in found:
                writes.stored = True
        finally:
            for writes in found:
                writes.over.set()

    def _thread(self, place: Place) -> _Thread:
        found = self._threads.setdefault(place, _Thread())
        self._threads.move_to_end(place)
        if len(self._threads) > _MOST_PLACES and not (first := next(iter(self._threads.items())))[1].waiting:
            del self._threads[first[0]]
        return found
