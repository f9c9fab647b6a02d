"""What a worker has in hand may be taken away from it at any moment: it goes on."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

from wtb.core.stop import Stop
from wtb.execution.journal import Lost
from wtb_workers.life import Life


class TakenAway:
    """A share in a sweep that was cancelled in the moment when one of its executions forked."""

    def __init__(self) -> None:
        self.runner = self
        self.stop = Stop()
        self.uses = 1

    def give_back(self, execution: Any, reason: str) -> None:
        raise Lost("execution e was taken over by another runner")

    def use(self, count: int) -> None:
        self.uses += count

    def is_idle(self) -> bool:
        return self.uses == 0


def test_a_worker_outlives_a_cancelled_sweep_whose_executions_wait_in_it() -> None:
    life = Life.__new__(Life)
    life._lock = threading.RLock()
    share = TakenAway()
    life._waiting = deque([(share, SimpleNamespace(id="e"))])  # type: ignore[list-item]
    life._decided(share, "cancelled", "no longer wanted")  # type: ignore[arg-type]
    assert share.uses == 0
    assert not life._waiting
