"""The tasks of the Celery application. Their arguments are an id, and a description for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery import shared_task

from wtb.core.errors import InputError, WTBError
from wtb_workers import hosting
from wtb_workers.notifications import EXECUTE, SCHEDULER
from wtb_workers.process import ExecutionFailed, Served

if TYPE_CHECKING:
    from wtb_scheduler.rounds import Round


@shared_task(name=EXECUTE, throws=(WTBError,))  # type: ignore[untyped-decorator]
def execute(execution: str, failed: str | None = None, **description: str) -> Served:
    """Run an execution if it is still pending.

    description: sweep, case and choices, for the monitor. failed: the reason, if the execution has failed already, on a
    slot that no message woke; the task then only shows that in the monitor and runs nothing.
    """
    if not (execution.isascii() and execution.isalnum()):  # anybody who can write to the broker may send this
        raise InputError(
            f"a message names {execution!r:.100}, which is not the id of an execution: it was not sent by WTB"
        )
    if failed is not None:
        raise ExecutionFailed(failed)
    return hosting.process().execute(execution)


@shared_task(name=SCHEDULER, throws=(WTBError,))  # type: ignore[untyped-decorator]
def scheduler_round() -> Round:
    """Run one round of maintenance, as `wtb scheduler` does every few seconds: for those who run Celery beat."""
    from wtb_scheduler.rounds import run_round

    return run_round(hosting.database(), hosting.notify)
