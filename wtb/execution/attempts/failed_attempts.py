"""What follows a failed attempt of a node run: an end, or a wait and another attempt."""

from __future__ import annotations

from wtb.authoring.context.attempt_record import Record
from wtb.core.failures import Failure, disk_words
from wtb.core.providers.faults import ProviderFault
from wtb.core.stop import Stopped
from wtb.execution.attempts.attempt import NodeRunRecorder
from wtb.execution.attempts.provider_waits import ProviderWait
from wtb.execution.attempts.retries import Retries
from wtb.execution.runtime.budgets import Reserved
from wtb.execution.state import RunningSweep


class FailedAttempts:
    """The failures of one node run, with what it has waited for because of them.

    Args:
        sweep: The sweep.
        recorder: Records the node run.
        retries: The attempts that it may make.
        is_second: Whether the node run has begun under an earlier claim.
    """

    def __init__(self, sweep: RunningSweep, recorder: NodeRunRecorder, retries: Retries, *, is_second: bool) -> None:
        self._sweep = sweep
        self._recorder = recorder
        self._retries = retries
        self._is_second = is_second
        self._full_disks = 0
        self._provider_wait: ProviderWait | None = None

    def is_followed(self, failure: Failure, record: Record, reserved: Reserved) -> bool:
        """Decide whether another attempt follows one that failed, and wait until it may begin.

        Args:
            failure: How the attempt failed.
            record: What it has reported.
            reserved: The budget that it had.

        Returns:
            Whether another attempt follows. If so, the rows of the failed one are recorded.

        Raises:
            Stopped: A limit, an interruption or a person forbids another one now.
            Lost: The lease is gone.
        """
        if failure.kind == "disk":
            self._wait_for_room(failure)
        elif failure.kind == "lost":
            self._record_lost(failure)
        elif failure.provider is not None:
            return not failure.final and self._wait_for_provider(failure, failure.provider)
        else:
            self._stop_if_overspent(failure, record, reserved)
            if failure.final or self._is_last(failure):
                return False
            self._prepare_retry(failure, record)
        return True

    def _is_last(self, failure: Failure) -> bool:
        if failure.kind == "killed":
            return self._recorder.execution.kills >= self._sweep.bound.spec.run.set_aside_after
        return self._retries.exhausted

    def _wait_for_room(self, failure: Failure) -> None:
        """Wait until a disk has room again. That it was full is not the fault of the node, so it costs no retry."""
        self._retries.forgive()
        self._recorder.record_pending(self._retries.number)
        self._sweep.limits.room.wait(disk_words(failure), self._full_disks)
        self._full_disks += 1

    def _wait_for_provider(self, failure: Failure, fault: ProviderFault) -> bool:
        """Wait until a provider may serve the node run. Returns False if it has failed for good. Raises Stopped.

        It is not the fault of the node, so it costs no retry, and the next attempt has the same random numbers.
        """
        recorder, retries = self._recorder, self._retries
        if self._provider_wait is None:
            variant = recorder.task.node, recorder.plan.variant
            self._provider_wait = ProviderWait(self._sweep.limits.providers, variant, is_second=self._is_second)
        try:
            seconds = self._provider_wait.next_wait_s(fault)
        except Stopped:
            recorder.record_pending(retries.number)
            raise
        if seconds is None:
            return False
        retries.forgive(same_draws=True)
        data = {"attempt": retries.number, "fault": fault, "wait_s": round(seconds, 3), "error": str(failure)}
        recorder.record_pending(retries.number, recorder.event("attempt.postponed", "warning", **data))
        self._provider_wait.sleep(fault, seconds, lambda: self._sweep.holds.requested(recorder.execution) is not None)
        return True

    def _record_lost(self, failure: Failure) -> None:
        """Record an attempt that ended for the sake of another one, and make it again with the same random numbers."""
        self._retries.forgive(same_draws=True)
        number = self._retries.number
        data = {"attempt": number, "error": str(failure)}
        self._recorder.record_pending(number, self._recorder.event("attempt.lost", "warning", **data))

    def _stop_if_overspent(self, failure: Failure, record: Record, reserved: Reserved) -> None:
        """Stop the sweep if a budget, and no limit of the node's own, ended the attempt. Raises Stopped."""
        if reserved.is_overspent(failure.kind, record):
            self._recorder.record_pending(self._retries.number)
            self._recorder.commit(force=True)  # so that the reported spending includes this attempt
            self._sweep.limits.budgets.stop_for(reserved, record)

    def _prepare_retry(self, failure: Failure, record: Record) -> None:
        """Record a failed attempt, keep what it left for the next one, and wait for the backoff. Raises Stopped."""
        retries, killed = self._retries, failure.kind == "killed"
        of = self._sweep.bound.spec.run.set_aside_after if killed else retries.last
        data = {"attempt": retries.number, "of": of, "error": str(failure)}
        self._recorder.record_pending(retries.number, self._recorder.event("attempt.failed", "warning", **data))
        retries.prepare(failure, record)
        self._sweep.limits.stop.wait(retries.backoff_s)
