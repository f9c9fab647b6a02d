"""The tasks of the Celery application. What they carry is an id, and words for people."""

from __future__ import annotations

from typing import Any

from celery import shared_task

from wtb.core.errors import InputError, WTBError
from wtb_workers import hosting
from wtb_workers.bells import EXECUTE, TICK
from wtb_workers.process import ExecutionFailed


@shared_task(name=EXECUTE, throws=(WTBError,))  # type: ignore[untyped-decorator]
def execute(execution: str, failed: str | None = None, **words: str) -> dict[str, Any]:
    """Run an execution, if it is still to be claimed. words: sweep, case and choices, for the monitor.

    failed: it has failed already, on a slot that no message woke: why, for the monitor. Nothing is run.
    """
    if not (execution.isascii() and execution.isalnum()):  # from whoever else can write to the broker
        raise InputError(
            f"a message names {execution!r:.100}, which is not the id of an execution: it was not sent by WTB"
        )
    if failed is not None:
        raise ExecutionFailed(failed)
    return hosting.process().execute(execution)


@shared_task(name=TICK, throws=(WTBError,))  # type: ignore[untyped-decorator]
def tick() -> dict[str, Any]:
    """Do once what `wtb tick` does every few seconds: for those who have a beat of their own."""
    from wtb_scheduler.tick import tick as do

    done: dict[str, Any] = do(hosting.database(), hosting.ring)
    return done
