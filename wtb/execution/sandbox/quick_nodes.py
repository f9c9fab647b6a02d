"""Which nodes are known to be quick, so that several of their runs travel to a node process in one message."""

from __future__ import annotations

from wtb.execution.engine.protocol import Result, Task

QUICK_S = 0.002  # that a run takes at most; a message costs about a tenth of it
KNOWN = 3  # runs in a row that were quick, after which the next ones are taken to be
TOGETHER_S = 0.01  # after which no other of those that travelled together begins: they go on elsewhere


class QuickNodes:
    """Counts for each node and variant how many of its runs in a row were quick. Threads share it."""

    def __init__(self) -> None:
        self._in_a_row: dict[tuple[str, str], int] = {}

    def note(self, task: Task, result: Result) -> None:
        """Count a run that has ended. One that took longer makes its node unknown again."""
        key = task.node, task.variant
        quick = result.failure is None and result.duration_s <= QUICK_S
        self._in_a_row[key] = self._in_a_row.get(key, 0) + 1 if quick else 0

    def knows(self, node: str, variant: str) -> bool:
        """Return whether a node under a variant is known to be quick."""
        return self._in_a_row.get((node, variant), 0) >= KNOWN
