"""What sweeps and executions have in common as live objects."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Self

from wtb.authoring.workflow import Workflow
from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Interval, Seconds
from wtb.core.documents.events import EventDocument
from wtb.operations.context import Backend
from wtb.operations.control.breakpoints import Breakpoints, list_breakpoints, set_breakpoints
from wtb.operations.control.pause_cancel import cancel, pause, preview_cancel
from wtb.operations.control.questions import MAX_LISTED, find_questions
from wtb.operations.handles.awaiting import each, follow_async
from wtb.operations.handles.documentation import documented_by
from wtb.operations.handles.methods import target_method
from wtb.operations.handles.question import QuestionHandle
from wtb.operations.handles.records import ProgressCallback, progress_at
from wtb.operations.housekeeping.pins import pin, unpin
from wtb.operations.inspection.executions import tree
from wtb.operations.inspection.log import count_events, iter_events, log
from wtb.operations.inspection.sweeps import show, status
from wtb.operations.results.costs import costs
from wtb.operations.results.series import series
from wtb.operations.running.waiting import LOOK_S, Look, looks
from wtb.store.database import Database


def breakpoint_texts(set_now: Breakpoints) -> tuple[str, ...]:
    """Return breakpoints as they are written.

    Returns:
        Each as it is written: `[before|after] NODE [if CONDITION]`.
    """
    return set_now.breakpoints


class TargetMethods:
    """Operations on sweeps and executions alike."""

    pause = target_method(pause)
    cancel = target_method(cancel)
    preview_cancel = target_method(preview_cancel)
    breakpoints = target_method(list_breakpoints, breakpoint_texts)
    set_breakpoints = target_method(set_breakpoints, breakpoint_texts)
    status_details = target_method(status)
    details = target_method(show)
    count_events = target_method(count_events)
    tree = target_method(tree)
    costs = target_method(costs)
    series = target_method(series)
    pin = target_method(pin)
    unpin = target_method(unpin)


class TargetHandle(TargetMethods):
    """A sweep or an execution, read from its database or server each time.

    Attributes:
        id: Its id, which commands such as `wtb status` take.
        backend: The database or server that it is in.
    """

    log = target_method(log)
    iter_events = target_method(iter_events)

    def __init__(self, backend: Backend, id: str, workflow: Workflow | None = None) -> None:
        self.backend = backend
        self.id = id
        self._workflow = workflow

    @property
    def database(self) -> Database:
        """The database that it is in; its `close()` ends the connections. InputError if a server is asked."""
        return self.backend.require_database("a server does not open its database to others").database

    def _looks(self) -> Iterator[Look]:
        """Look at how far it is each time that a look is taken, until nothing runs of it any more."""
        return self.backend.call(looks, self.id)

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
        async for look in each(self._looks()):
            if (pause := pauses.after(look)) is None:
                break
            await asyncio.sleep(pause)
        return self

    @documented_by(log)
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
            interval_s: Seconds between two looks at a database; a server sends events at once.

        Returns:
            Events, the oldest first, until it has ended or paused; of an execution also until it waits for a person.
        """
        return self.backend.call(
            log, self.id, severity=severity, kinds=kinds, follow=True, interval_s=interval_s, values=values
        )

    @documented_by(log)
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
            interval_s: Seconds between two looks at a database; a server sends events at once.

        Returns:
            Events, the oldest first, until it has ended or paused; of an execution also until it waits for a person.
        """
        events = self.backend.call(
            follow_async, self.id, severity=severity, kinds=kinds, interval_s=interval_s, values=values
        )
        async for event in events:
            yield event

    @documented_by(find_questions)
    def questions(self, *, closed: bool = False, limit: int = MAX_LISTED) -> list[QuestionHandle]:
        """Return the questions that wait for a person, those that wait longest first.

        Returns:
            A handle for each.
        """
        listed = self.backend.call(find_questions, self.id, closed=closed, limit=limit)
        return [QuestionHandle(self.backend, question["id"], self._workflow) for question in listed.each]

    def _warn(self, problem: str | None) -> None:
        if problem is not None:
            self.backend.warn(problem)


class _Pauses:
    """How long to wait between two looks, until the time is up or nothing goes on."""

    def __init__(self, timeout: float | None, progress: ProgressCallback | None) -> None:
        self._ends = math.inf if timeout is None else time.monotonic() + timeout
        self._progress = progress

    def after(self, look: Look) -> float | None:
        """Call back with how far it is. Returns how many seconds to wait before the next look; None for no more."""
        if self._progress is not None:
            self._progress(progress_at(look.progress))
        rest = self._ends - time.monotonic()
        return min(LOOK_S, rest) if look.goes_on and rest > 0 else None
