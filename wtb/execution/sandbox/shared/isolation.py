"""Which node runs have a node process of their own, since they ended a shared one, or may have done so."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

from wtb.core.classes.frozen import frozen
from wtb.execution.engine.protocol import Task

GUILTY_RUNS = 3  # of one variant, until all of its node runs are kept alone


@frozen(slots=True)
class RunKey:
    """A node run, over all of its attempts."""

    execution: str
    step: int
    task: str
    node: str
    variant: str

    @classmethod
    def of(cls, task: Task) -> RunKey:
        return cls(task.execution, task.position.step, task.key, task.node, task.variant)


class Isolation:
    """Suspects run alone until the guilty one among them is known; the guilty one runs alone from then on.

    A variant shares no process any more if several node runs of it were guilty, or if it changes globals.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[RunKey, set[RunKey]] = {}  # of each suspect, those that it was with
        self._guilty: set[RunKey] = set()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._apart: set[tuple[str, str]] = set()

    def is_alone(self, key: RunKey) -> bool:
        """Return whether a node run must not share a process."""
        with self._lock:
            often = self._counts[key.node, key.variant] >= GUILTY_RUNS
            return often or (key.node, key.variant) in self._apart or key in self._groups or key in self._guilty

    def is_apart(self, key: RunKey) -> bool:
        """Return whether a variant changes globals, so that no other run may use its process."""
        with self._lock:
            return (key.node, key.variant) in self._apart

    def is_suspect(self, key: RunKey) -> bool:
        """Return whether a node run may have ended a process, which is to be found out."""
        with self._lock:
            return key in self._groups and key not in self._guilty

    def keep_apart(self, key: RunKey) -> None:
        """Let no run of this variant share a process: it changes what runs share."""
        with self._lock:
            self._apart.add((key.node, key.variant))

    def suspect(self, keys: Iterable[RunKey]) -> None:
        """One of these node runs has ended the process that they shared; which one is unknown."""
        with self._lock:
            group = set(keys)
            self._groups.update(dict.fromkeys(group, group))

    def convict(self, key: RunKey) -> None:
        """This node run ended its process: those that were suspected with it may share again."""
        with self._lock:
            for other in self._groups.pop(key, set()) - {key}:
                self._groups.pop(other, None)
            if key not in self._guilty:
                self._guilty.add(key)
                self._counts[key.node, key.variant] += 1

    def acquit(self, key: RunKey) -> None:
        """This node run has ended well while it ran alone."""
        with self._lock:
            self._groups.pop(key, set()).discard(key)
