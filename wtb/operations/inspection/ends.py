"""End of a log: events and statuses that show that there is nothing more to follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from wtb.core.documents.sweeps import StatusDocument

ReadStatus = Callable[[], str]

_OPEN = ("pending", "running")
# Of a sweep: after which events it does not go on, and after which it does. What is imported has ended, or is paused,
# without an event of its sweep.
_ENDS = (*(f"sweep.{status}" for status in ("completed", "failed", "cancelled", "paused")), "execution.imported")
_RUNS = "sweep.running"
# Of an execution: after which events it does not go on by itself, and after which it does.
_STOPS = (
    *(f"execution.{status}" for status in ("completed", "failed", "cancelled", "forked", "paused", "waiting")),
    *(f"execution.{how}" for how in ("rolled_back", "redone", "superseded", "imported")),
)
_GOES_ON = ("execution.started", "execution.resumed", "approval.answered", "node_run.started")
DECISIVE: Final = frozenset((*_ENDS, _RUNS, *_STOPS, *_GOES_ON))  # kinds of events that have to be seen


class Ends:
    """Detection of the event with which a sweep, or one of its executions, has ended or paused."""

    def __init__(self, sweep: ReadStatus, execution: tuple[str, ReadStatus] | None = None) -> None:
        """Create a detection.

        Args:
            sweep: Reads the status of the sweep.
            execution: The id of an execution whose end is one, too, and what reads its status.
        """
        self._sweep = sweep
        self._execution = execution
        self._statuses: tuple[str, str] = ("", "")
        self._kinds: tuple[str, str] = ("", "")

    def read_statuses(self) -> None:
        """Read the statuses. The event of a change is committed with it, so later reads of the log include it."""
        self._statuses = self._sweep(), "" if self._execution is None else self._execution[1]()

    def see(self, events: Iterable[tuple[str, str | None]]) -> None:
        """Process the kinds of events and their executions, in the order of the log."""
        of_sweep, of_execution = self._kinds
        only = None if self._execution is None else self._execution[0]
        for kind, execution in events:
            if kind in _ENDS or kind == _RUNS:
                of_sweep = kind
            if execution is not None and execution == only and kind in _STOPS + _GOES_ON:
                of_execution = kind
        self._kinds = of_sweep, of_execution

    @property
    def may_be_seen(self) -> bool:
        """True if an event of an end was seen, so that reading the statuses is worthwhile."""
        return self._kinds[0] in _ENDS or self._kinds[1] in _STOPS

    @property
    def are_seen(self) -> bool:
        """True if there is nothing more to follow, by the statuses that were read last."""
        sweep, execution = self._statuses
        # The status alone is not enough: the event that reports it may not have been read yet.
        has_ended = sweep not in _OPEN and self._kinds[0] in (f"sweep.{sweep}", "execution.imported")
        return has_ended or (self._execution is not None and execution not in _OPEN and self._kinds[1] in _STOPS)


class Death:
    """Reports once that the process that ran a sweep has died."""

    def __init__(self, report: Callable[[str], None]) -> None:
        """Create it.

        Args:
            report: Takes the line that says so.
        """
        self._report = report
        self._reported = False

    def look(self, status: StatusDocument) -> None:
        """Report if the process of a running sweep is dead."""
        following = status["next"]
        if not self._reported and following is not None and any(owner["state"] == "dead" for owner in status["owners"]):
            self._report(f"{following['why']}; continue with: {following['command']}")
            self._reported = True
