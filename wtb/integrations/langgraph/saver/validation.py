"""Checks of the arguments of `Saver`, and writes that wait a moment for the checkpoint of their step."""

from __future__ import annotations

import math
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import RunnableConfig

from wtb.core.errors import InputError
from wtb.store.thread_rows import ThreadWrite
from wtb.store.threads import Scalar

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
        self.is_taken = False
        self.stored = False
        self.done_event = threading.Event()


@dataclass
class _Thread:
    waiting: list[Waiting] = field(default_factory=list)
    made_from: str | None = None  # the checkpoint that the last writes were made from
    storing: int = 0  # how many writes are being stored by themselves
    in_vain: int = _TRIES  # how often in a row somebody waited for nobody; at first nobody waits


class Pairing:
    """Writes and checkpoints that wait for each other, by thread and namespace."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._threads: OrderedDict[Place, _Thread] = OrderedDict()

    @contextmanager
    def offer(self, place: Place, checkpoint_id: str | None, writes: Waiting) -> Iterator[bool]:
        """Wait for a checkpoint to take these writes along. Yields False if the block must store them itself."""
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
            writes.done_event.wait(PATIENCE_S)
            with self._changed:
                if not writes.is_taken:
                    thread.waiting.remove(writes)
                    thread.in_vain += 1
                    thread.storing += 1
            # Taken by a checkpoint that is being committed. Its outcome must be awaited before anything is told to be
            # stored.
            if writes.is_taken:
                writes.done_event.wait()
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
        """Take the writes that led from `parent_id` to a checkpoint, unless they are stored already.

        If the block succeeds, all of them count as stored, else none. parent_id: None if no writes are expected.
        """
        with self._changed:
            thread = self._thread(place)
            if thread.storing:
                thread.in_vain = 0
            # Waiting costs time when nobody comes, so it is given up after a few attempts in vain.
            elif parent_id is not None and thread.in_vain < _TRIES:
                came = self._changed.wait_for(lambda: thread.made_from == parent_id, PATIENCE_S)
                thread.in_vain += not came
            waiting, thread.waiting = thread.waiting, []
            for writes in waiting:
                writes.is_taken = True
            if waiting:
                thread.in_vain = 0
        try:
            yield waiting
            for writes in waiting:
                writes.stored = True
        finally:
            for writes in waiting:
                writes.done_event.set()

    def _thread(self, place: Place) -> _Thread:
        place_thread = self._threads.setdefault(place, _Thread())
        self._threads.move_to_end(place)
        if len(self._threads) > _MOST_PLACES:
            oldest, thread = next(iter(self._threads.items()))
            # Calls under way hold this object. With a new one for the same place, they would miss each other.
            if not (thread.waiting or thread.storing):
                del self._threads[oldest]
        return place_thread


_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_INTEGER_BOUND = 2**63


def place_of(config: RunnableConfig) -> Place:
    """Return the thread and namespace of a config. Raises InputError for an id that cannot be stored."""
    configurable = config["configurable"]
    return _checked_thread(configurable["thread_id"]), checked_name(
        "checkpoint_ns", configurable.get("checkpoint_ns") or ""
    )


def id_of(config: RunnableConfig | None) -> str | None:
    """Return the checkpoint that a config names; None if it names none in particular."""
    checkpoint_id = (config or {}).get("configurable", {}).get("checkpoint_id")
    return checked_name("checkpoint_id", checkpoint_id) if checkpoint_id else None


def criteria_of(config: RunnableConfig | None) -> dict[str, str]:
    """Return the `thread_id`, `namespace` and `id` of a config, without those that may be anything."""
    configurable = (config or {}).get("configurable", {})
    sought = {"id": id_of(config)}
    if "thread_id" in configurable:
        sought["thread_id"] = _checked_thread(configurable["thread_id"])
    if (namespace := configurable.get("checkpoint_ns")) is not None:
        sought["namespace"] = checked_name("checkpoint_ns", namespace)
    return {key: criterion for key, criterion in sought.items() if criterion is not None}


def _checked_thread(thread_id: object) -> str:
    if thread_id is None:
        raise InputError("thread_id: found None, expected the name of a thread")
    return checked_name("thread_id", thread_id)


def checked_name(what: str, name: object) -> str:
    """Return an id or a name as text. Raises InputError if a database could not store it."""
    text = str(name)
    if "\0" in text or (not text.isascii() and any("\ud800" <= each <= "\udfff" for each in text)):
        raise InputError(f"{what}: found {text!r:.100}; expected a text without NUL and without half a character")
    return text


def checked_names(what: str, names: Sequence[str]) -> list[str]:
    if isinstance(names, str):
        raise InputError(f"{what}: found {names!r}, expected a list of them: [{names!r}]")
    return [checked_name(what, each) for each in names]


def check_channels(channels: Iterable[str]) -> None:
    for channel in channels:
        checked_name("channel", channel)


def checked_json(what: str, json: str) -> str:
    """Return JSON that can be stored. Raises InputError if a text in it has a NUL character."""
    if "\\u0000" in json and _NUL.search(json):
        raise InputError(f"{what}: a text of it holds NUL, which PostgreSQL cannot search; leave it out")
    return json


def checked_filter(filter: Mapping[str, Any] | None) -> Mapping[str, Scalar]:
    """Return a filter of metadata. Raises InputError for a value that is no text, number, bool or None."""
    for key, operand in (filter or {}).items():
        checked_name("filter", key)
        if isinstance(operand, str):
            checked_name(f"filter {key!r}", operand)
        elif not (operand is None or isinstance(operand, bool) or _is_number(operand)):
            raise InputError(
                f"filter {key!r}: found {operand!r:.100}, expected a text, a number of 64 bits, a bool or None"
            )
    return filter or {}


def _is_number(operand: Any) -> bool:
    return (isinstance(operand, int) and -_INTEGER_BOUND <= operand < _INTEGER_BOUND) or (
        isinstance(operand, float) and math.isfinite(operand)
    )
