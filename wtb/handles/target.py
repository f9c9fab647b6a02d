"""Common parts of sweeps and executions as live objects, and questions to people."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Self

from wtb.authoring.workflow import Workflow
from wtb.core.arguments import Interval, Seconds, checked
from wtb.core.documents.all_events import EventDocument
from wtb.core.documents.questions import QuestionDocument
from wtb.core.errors import InputError
from wtb.core.values import State
from wtb.handles.records import ProgressCallback, QuestionRecord, progress_at, question_record
from wtb.operations.context import Backend, Context
from wtb.operations.control.answers import Answered, answer
from wtb.operations.control.continuation import run_in_background
from wtb.operations.control.naming import pin, unpin
from wtb.operations.control.pause_cancel import (
    Breakpoints,
    cancel,
    list_breakpoints,
    pause,
    preview_cancel,
    set_breakpoints,
)
from wtb.operations.control.questions import MAX_LISTED, Questions, find_question, find_questions
from wtb.operations.inspection.executions import tree
from wtb.operations.inspection.following import each, follow_async
from wtb.operations.inspection.log import count_events, iter_events, log
from wtb.operations.inspection.sweeps import show, status
from wtb.operations.methods import documented_by, target_method
from wtb.operations.results.costs import costs, series
from wtb.operations.running.waiting import LOOK_S, Look, looks
from wtb.planning.binding import Bound, bind
from wtb.planning.prepare import stored_spec
from wtb.store.database import Database
from wtb.store.read import queries


class QuestionHandle:
    """A question to people, read from its database or server each time. `questions` of benches and handles find them.

    Attributes:
        id: Its id, which `wtb answer` takes.

    Example:
        >>> from wtb import Workflow, start
        >>> wf = Workflow("asking")
        >>> wf.entry(wf.node(lambda state, ctx: {"a": ctx.ask("Which?", options=["x", "y"]).choice}, name="a"))
        >>> [question] = start(wf, {}, db="sqlite:///:memory:").wait().questions()
        >>> question.answer("x").choice
        'x'
        >>> question.record.status
        'answered'
    """

    def __init__(self, backend: Backend, id: str, workflow: Workflow | None = None) -> None:
        self.backend = backend
        self.id = id
        self._workflow = workflow

    @property
    def record(self) -> QuestionRecord:
        """Its present record."""
        return question_record(self.details())

    @documented_by(find_questions)
    def details(self) -> QuestionDocument:
        """Return it with what there is to look at, as `wtb approvals QUESTION --format json` prints it.

        Returns:
            Its document, with `context`.
        """
        return question_of(self.backend.call(find_questions, self.id), self.id)

    @documented_by(answer)
    def answer(
        self,
        action: str | None = None,
        *,
        choice: str | None = None,
        feedback: str | None = None,
        value: Any = ...,
        set: State | None = None,
        run: bool = True,
    ) -> Answered:
        """Answer it, for all executions that wait for it; they continue where their sweep runs.

        Args:
            run: Run a single execution on that no other process runs, here in the background; else `resume` does.

        Returns:
            The recorded answer, and who continues, at once.
        """
        # Code is bound and run only beside the database. A server continues the execution itself.
        is_here = isinstance(self.backend, Context)
        return self.backend.call(
            answer,
            self.id,
            action,
            choice=choice,
            feedback=feedback,
            value=value,
            set=set,
            bound=self._bound() if is_here and self._workflow is not None else None,
            run=run_in_background if is_here and run else None,
        )

    def _bound(self) -> Bound:
        database = self.backend.require_database(answer).database
        sweep = queries.find_sweep(database, find_question(database, self.id).sweep_id)
        return bind(stored_spec(sweep), self._workflow)

    def __repr__(self) -> str:
        return f"<question {self.id}>"


def question_of(questions: Questions, id: str) -> QuestionDocument:
    """Return the only question that was found. Raises InputError if there is none, or several."""
    if questions.question is not None:
        return questions.question
    if len(questions.each) == 1:
        return questions.each[0]
    raise InputError(f"there is no question {id!r}")


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
        """Its database, whose `close()` ends the connections. Raises InputError for a server."""
        return self.backend.require_database("a server does not open its database to others").database

    def _looks(self) -> Iterator[Look]:
        """Yield its progress at each look, until nothing of it runs any more."""
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
        # A look blocks on the database or the server, so `each` takes it in a thread.
        async for look in each(self._looks()):
            if (pause := pauses.after(look)) is None:
                break
            await asyncio.sleep(pause)
        return self

    @documented_by(log)
    @checked
    def follow(
        self, *, severity: str = "debug", kinds: Sequence[str] = (), interval_s: Interval = 0.5, values: bool = False
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
        self, *, severity: str = "debug", kinds: Sequence[str] = (), interval_s: Interval = 0.5, values: bool = False
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
    """The time to wait between two looks, until the timeout or until nothing continues."""

    def __init__(self, timeout: float | None, progress: ProgressCallback | None) -> None:
        self._ends = math.inf if timeout is None else time.monotonic() + timeout
        self._progress = progress

    def after(self, look: Look) -> float | None:
        """Report the progress. Return the seconds until the next look; None for no more."""
        if self._progress is not None:
            self._progress(progress_at(look.progress))
        rest = self._ends - time.monotonic()
        return min(LOOK_S, rest) if look.is_running and rest > 0 else None
