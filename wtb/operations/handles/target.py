"""What sweeps and executions have in common as live objects."""

from __future__ import annotations

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import islice
from typing import Self, TypeVar

from wtb.authoring.workflow import Workflow
from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Interval, Seconds
from wtb.core.documents.costs import AllSeriesDocument, CostsDocument
from wtb.core.documents.events import EventCount, EventDocument
from wtb.core.documents.executions import ExecutionDocument, StandingDocument
from wtb.core.documents.lineage import TreeDocument
from wtb.core.documents.sweeps import StatusDocument, SummaryDocument
from wtb.display.views.lineage import MOST as MAX_LINES
from wtb.operations.context import Context
from wtb.operations.control.breakpoints import list_breakpoints, set_breakpoints
from wtb.operations.control.pause_cancel import Cancelled, Paused, cancel, pause, preview_cancel
from wtb.operations.control.questions import MAX_LISTED, find_questions
from wtb.operations.handles.documentation import documented_by
from wtb.operations.handles.question import QuestionHandle
from wtb.operations.handles.records import ProgressCallback, progress_at
from wtb.operations.housekeeping.pins import Pin, pin, unpin
from wtb.operations.inspection.executions import tree
from wtb.operations.inspection.log import count_events, follow_events, log
from wtb.operations.inspection.sweeps import show, status
from wtb.operations.results.costs import costs
from wtb.operations.results.series import series
from wtb.operations.running.waiting import LOOK_S, Look, looks
from wtb.store.database import Database

T = TypeVar("T")


class TargetHandle(ABC):
    """A sweep or an execution, read from its database each time.

    Attributes:
        id: Its id, which commands such as `wtb status` take.
    """

    def __init__(self, context: Context, id: str, workflow: Workflow | None = None) -> None:
        self._context = context
        self.id = id
        self._workflow = workflow

    @property
    def database(self) -> Database:
        """The database that it is in; its `close()` ends the connections."""
        return self._context.database

    @abstractmethod
    def _events_of(self) -> tuple[str, str | None]:
        """Return the ids of the sweep whose events are meant, and of the only execution."""

    def _looks(self) -> Iterator[Look]:
        """Look at how far it is each time that a look is taken, until nothing runs of it any more."""
        return looks(self._context, self.id)

    def _rest(self, seconds: float) -> None:
        """Wait between two looks."""
        time.sleep(seconds)

    # Waiting

    @checked
    def wait(self, timeout: Seconds | None = None, *, progress: ProgressCallback | None = None) -> Self:
        """Wait until it has ended or paused; an execution also until it waits for a person.

        Args:
            timeout: Seconds to wait at most; `status` says then whether it has ended.
            progress: Called several times a second with how far it is.

        Returns:
            This object.

        Raises:
            WTBError: The error that ended a run of this process, such as a database out of reach; not the failure of a
                node.
        """
        pauses = _Pauses(timeout, progress)
        for look in self._looks():
            if (pause := pauses.after(look)) is None:
                break
            self._rest(pause)
        return self

    @checked
    async def wait_async(self, timeout: Seconds | None = None, *, progress: ProgressCallback | None = None) -> Self:
        """Wait as `wait` does, without blocking the event loop.

        Args:
            timeout: Seconds to wait at most.
            progress: Called on the event loop, several times a second, with how far it is.

        Returns:
            This object.

        Raises:
            WTBError: As `wait` does.
        """
        pauses = _Pauses(timeout, progress)
        async for look in _each(self._looks()):
            if (pause := pauses.after(look)) is None:
                break
            await asyncio.sleep(pause)
        return self

    @documented_by(follow_events)
    @checked
    def follow(
        self,
        *,
        severity: str = "debug",
        kinds: Sequence[str] = (),
        interval_s: Interval = 0.5,
        values: bool = False,
    ) -> Iterator[EventDocument]:
        """Yield its events, those that there are and then each as it happens; none is missed or comes twice.

        Args:
            interval_s: Seconds between two looks.

        Returns:
            Events, the oldest first, until it has ended or paused; of an execution also until it waits for a person.
        """
        for batch in self._batches(severity, kinds, values):
            if batch is None:
                time.sleep(interval_s)
            else:
                yield from batch

    @documented_by(follow_events)
    @checked
    async def follow_async(
        self,
        *,
        severity: str = "debug",
        kinds: Sequence[str] = (),
        interval_s: Interval = 0.5,
        values: bool = False,
    ) -> AsyncIterator[EventDocument]:
        """Yield its events as `follow` does, without blocking the event loop.

        Args:
            interval_s: Seconds between two looks.

        Returns:
            Events, the oldest first, until it has ended or paused; of an execution also until it waits for a person.
        """
        async for batch in _each(self._batches(severity, kinds, values)):
            if batch is None:
                await asyncio.sleep(interval_s)
            for event in batch or ():
                yield event

    def _batches(self, severity: str, kinds: Sequence[str], values: bool) -> Iterator[Sequence[EventDocument] | None]:
        sweep, execution = self._events_of()
        return follow_events(self._context, sweep, severity=severity, kinds=kinds, execution=execution, values=values)

    # Steering

    @documented_by(pause)
    def pause(self, reason: str | None = None, *, now: bool = False) -> Paused:
        """Pause it until it is resumed, before its next step or at once."""
        return pause(self._context, self.id, reason=reason, now=now)

    @documented_by(cancel)
    def cancel(self, reason: str | None = None) -> Cancelled:
        """End it for good, wherever it runs; results so far stay."""
        return cancel(self._context, self.id, reason=reason)

    @documented_by(preview_cancel)
    def preview_cancel(self) -> Cancelled:
        """Return what `cancel` would end, and end nothing.

        Returns:
            A `Cancelled` with the counts that `cancel` would give.
        """
        return preview_cancel(self._context, self.id)

    @documented_by(list_breakpoints)
    def breakpoints(self) -> tuple[str, ...]:
        """Return its breakpoints, each as it is written."""
        return list_breakpoints(self._context, self.id).breakpoints

    @documented_by(set_breakpoints)
    def set_breakpoints(
        self, *, add: Sequence[str] = (), remove: Sequence[str] = (), clear: bool = False
    ) -> tuple[str, ...]:
        """Change its breakpoints; who runs it sees that within a second."""
        return set_breakpoints(self._context, self.id, add=add, remove=remove, clear=clear).breakpoints

    @documented_by(find_questions)
    def questions(self, *, closed: bool = False, limit: int = MAX_LISTED) -> list[QuestionHandle]:
        """Return the questions that wait for a person, those that wait longest first.

        Returns:
            A handle for each.
        """
        found = find_questions(self._context, self.id, closed=closed, limit=limit)
        return [QuestionHandle(self._context, question["id"], self._workflow) for question in found.each]

    # Looking

    @documented_by(status)
    def status_details(self, *, cases: int = 0) -> StatusDocument | StandingDocument:
        """Return how far it is, what holds it up and how to continue, as `wtb status --format json` prints it.

        Args:
            cases: Of a sweep: how many cases to list for each cause of failures, at most 100.

        Returns:
            The document.
        """
        return status(self._context, self.id, cases=cases)

    @documented_by(show)
    def details(self, *, calls: bool = False) -> SummaryDocument | ExecutionDocument:
        """Return all about it, as `wtb show --format json` prints it.

        Returns:
            The document.
        """
        return show(self._context, self.id, calls=calls)

    @documented_by(log)
    def log(
        self, *, severity: str = "debug", kinds: Sequence[str] = (), cases: bool = False, values: bool = False
    ) -> Iterator[EventDocument]:
        """Return the events that there are, the oldest first; `follow` waits for more.

        Returns:
            Events, read as they are taken.
        """
        sweep, execution = self._events_of()
        return log(
            self._context, sweep, severity=severity, kinds=kinds, execution=execution, cases=cases, values=values
        )

    @documented_by(count_events)
    def count_events(self, *, severity: str = "debug", kinds: Sequence[str] = ()) -> list[EventCount]:
        """Count its events by kind and severity.

        Returns:
            A kind, a severity and a count for each.
        """
        sweep, execution = self._events_of()
        return count_events(self._context, sweep, severity=severity, kinds=kinds, execution=execution)

    @documented_by(tree)
    def tree(self, *, case: str | None = None, limit: int = MAX_LINES) -> TreeDocument:
        """Return how executions share, fork and were rolled back, as `wtb tree --format json` prints it.

        Returns:
            The document.
        """
        return tree(self._context, self.id, case=case, limit=limit)

    @documented_by(costs)
    def costs(
        self, by: Sequence[str] = (), *, since: datetime | None = None, project: str | None = None
    ) -> CostsDocument:
        """Return what was spent, and for what. Failed attempts are included."""
        return costs(self._context, self.id, by=by, since=since, project=project)

    @documented_by(series)
    def series(self, name: str | None = None) -> AllSeriesDocument:
        """Return what nodes recorded with `ctx.metric`, and the memory and CPU that they used."""
        return series(self._context, self.id, name=name)

    # Keeping

    @documented_by(pin)
    def pin(self, name: str | None = None) -> Pin:
        """Keep it, or the checkpoint at its head, whatever a garbage collection removes."""
        return pin(self._context, self.id, name=name)

    @documented_by(unpin)
    def unpin(self) -> Pin:
        """Let a garbage collection remove it again, once the retention policy allows that."""
        return unpin(self._context, self.id)

    def _warn(self, problem: str | None) -> None:
        if problem is not None:
            self._context.warn(problem)


class _Pauses:
    """Says how long to wait between two looks: until the time is up, or nothing goes on."""

    def __init__(self, timeout: float | None, progress: ProgressCallback | None) -> None:
        self._ends = math.inf if timeout is None else time.monotonic() + timeout
        self._progress = progress

    def after(self, look: Look) -> float | None:
        """Call back with how far it is. Returns how many seconds to wait before the next look; None for no more."""
        if self._progress is not None:
            self._progress(progress_at(look.progress))
        rest = self._ends - time.monotonic()
        return min(LOOK_S, rest) if look.goes_on and rest > 0 else None


# Looks take milliseconds. They have threads of their own, so that tasks that wait leave the loop's default ones free.
_LOOKING = ThreadPoolExecutor(max_workers=4, thread_name_prefix="wtb-look")


async def _each(steps: Iterator[T]) -> AsyncIterator[T]:
    """Yield what an iterator does, whose steps block for a moment."""
    loop = asyncio.get_running_loop()
    while taken := await loop.run_in_executor(_LOOKING, _take_one, steps):
        yield taken[0]


def _take_one(steps: Iterator[T]) -> list[T]:
    return list(islice(steps, 1))
