"""The tasks of the Celery application. A message has the id of a published task, and its description for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from celery import Task, shared_task
from celery.exceptions import Ignore, Reject

from wtb.core.errors import InputError, WTBError
from wtb.core.work_record import TaskCounts
from wtb_workers import hosting
from wtb_workers.process import TaskState, Unfinished
from wtb_workers.scorings import ScoringResult
from wtb_workers.task_messages import EXECUTE, SCHEDULER, SCORE

if TYPE_CHECKING:
    from wtb_scheduler.rounds import Round

T = TypeVar("T")


@shared_task(name=EXECUTE, bind=True, throws=(WTBError,))  # type: ignore[untyped-decorator]
def execute(self: Task) -> TaskCounts:
    """Run a published task: a case with its combinations, several quick cases, or a branch of a case."""
    return _with_states(self, hosting.process().execute)


@shared_task(name=SCORE, bind=True, throws=(WTBError,))  # type: ignore[untyped-decorator]
def score(self: Task) -> ScoringResult:
    """Score a sweep again."""
    return _with_states(self, hosting.process().score)


@shared_task(name=SCHEDULER, throws=(WTBError,))  # type: ignore[untyped-decorator]
def scheduler_round() -> Round:
    """Run one round of maintenance, as `wtb scheduler` does every few seconds, for use with Celery beat."""
    return hosting.run_scheduler_round()


def _with_states(task: Task, run: Callable[[str], T]) -> T:
    """Run a task. One without a result ends in a state that monitors know, and sends none.

    There is no result backend, so monitors learn states by events alone; see "Task Events" in Celery's manual.
    """
    task_id = str(task.request.id)
    # Anyone with access to the broker can send this, and the id goes into log lines and queries.
    if not (task_id.isascii() and task_id.isalnum()):
        raise InputError(f"a message names {task_id!r:.100}, which is not the id of a task: it was not sent by WTB")
    try:
        return run(task_id)
    except Unfinished as error:
        if error.state is TaskState.REQUEUED:
            raise Reject(error.reason, requeue=True) from None
        if error.state is TaskState.RETRIED:
            task.send_event("task-retried", exception=error.reason, traceback="")
        elif error.state is TaskState.WITHDRAWN:
            task.send_event("task-revoked", terminated=False, signum=None, expired=False)
        raise Ignore from None
