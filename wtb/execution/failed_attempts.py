"""The consequences of a failed attempt: the end of the node run, or a wait and another attempt."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from wtb.authoring.context.attempt_record import Previous, Record, Undecoded
from wtb.authoring.nodes import Rules
from wtb.core.errors import WTBError
from wtb.core.failures import Failure, disk_words
from wtb.core.provider_faults import ProviderFault
from wtb.core.stop import Stopped
from wtb.execution.attempt import Attempt, NodeRunRecorder
from wtb.execution.holds import PriorAnswers
from wtb.execution.runtime.budgets import Reserved
from wtb.execution.state import RunningSweep
from wtb.execution.waits import ProviderWait


class Retries:
    """Counts the attempts of one node run.

    Args:
        rules: Of the node.
        attempts_before: The number of attempts that earlier claims have made.
        prior: The answers of people to their questions.

    Attributes:
        number: The attempt that runs, or ran last, from 1 over all claims.
        last: The number of the last attempt that the rules allow.
        draws: The attempt whose random numbers the next one repeats; None for its own.
        previous: The report of the last failed attempt to the next one.
    """

    def __init__(self, rules: Rules, attempts_before: int, prior: PriorAnswers) -> None:
        self._rules = rules
        self._attempts_before = attempts_before
        self.number = attempts_before
        self.last = attempts_before + 1 + rules.retries
        self.draws = prior.draws
        self.previous = prior.previous

    @property
    def failed(self) -> int:
        """The number of earlier attempts that count as retries."""
        return self.number - self.last + self._rules.retries

    @property
    def backoff_s(self) -> float:
        """Seconds to wait after the last attempt."""
        return self._rules.backoff.seconds(self.number - self._attempts_before)

    @property
    def exhausted(self) -> bool:
        return self.number >= self.last

    def forgive(self, *, same_draws: bool = False) -> None:
        """Allow one more attempt, because the last failure was not the node's fault.

        Args:
            same_draws: Whether the next attempt repeats the random numbers.
        """
        self.last += 1
        if same_draws:
            # The first of several such attempts decides, so that all of them draw the same numbers.
            self.draws = self.draws or self.number

    def prepare(self, failure: Failure, record: Record) -> None:
        """Keep the report of a failed attempt for the next one."""
        self.previous = Previous(self.number, self.last, str(failure), _output(record), tuple(record.suggestions))
        self.draws = None


def _output(record: Record) -> Undecoded | None:
    """Return the output that an attempt left for the next one, as it is stored."""
    return None if record.output is None else Undecoded(record.output.encode())


class FailedAttempts:
    """The failures of one node run, and its waits because of them.

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
            True if another attempt follows. Then the rows of the failed one are recorded.

        Raises:
            Stopped: A limit, an interruption or a person forbids another one now.
            Lost: The lease is gone.
        """
        # The first three kinds are not the node's fault and cost no retry. A budget comes before retries, since a retry
        # spends.
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
        """Wait until a disk has room again. A full disk is not the fault of the node, so it costs no retry."""
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
        details = {"attempt": retries.number, "fault": fault, "wait_s": round(seconds, 3), "error": str(failure)}
        recorder.record_pending(retries.number, recorder.event("attempt.postponed", "warning", **details))
        self._provider_wait.sleep(fault, seconds, lambda: self._sweep.holds.requested(recorder.execution) is not None)
        return True

    def _record_lost(self, failure: Failure) -> None:
        """Record an attempt that ended because of another one, and allow its repeat with the same random numbers."""
        self._retries.forgive(same_draws=True)
        number = self._retries.number
        details = {"attempt": number, "error": str(failure)}
        self._recorder.record_pending(number, self._recorder.event("attempt.lost", "warning", **details))

    def _stop_if_overspent(self, failure: Failure, record: Record, reserved: Reserved) -> None:
        """Stop the sweep if a budget, and no limit of the node's own, ended the attempt. Raises Stopped."""
        if reserved.is_overspent(failure.kind, record):
            self._recorder.record_pending(self._retries.number)
            # The message about the budget reads what was spent from the database, which must include this attempt.
            self._recorder.commit(force=True)
            self._sweep.limits.budgets.stop_for(reserved, record)

    def _prepare_retry(self, failure: Failure, record: Record) -> None:
        """Record a failed attempt, keep what it left for the next one, and wait for the backoff. Raises Stopped."""
        retries, killed = self._retries, failure.kind == "killed"
        of = self._sweep.bound.spec.run.set_aside_after if killed else retries.last
        details = {"attempt": retries.number, "of": of, "error": str(failure)}
        self._recorder.record_pending(retries.number, self._recorder.event("attempt.failed", "warning", **details))
        retries.prepare(failure, record)
        self._sweep.limits.stop.wait(retries.backoff_s)


STALL_CHECK_S = 1.0  # at most, between two checks for stalled attempts


class Stalls:
    """Marks attempts as stalled that report nothing for `limit` seconds, once per silence.

    Its thread runs while there is an attempt to watch.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._attempts: set[Attempt] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, attempt: Attempt) -> Iterator[None]:
        """Watch an attempt during the block."""
        with self._changed:
            self._attempts.add(attempt)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="wtb-stalls", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._attempts.discard(attempt)

    def _look(self) -> None:
        """Check the attempts for stalls until there is none to watch."""
        while True:
            with self._changed:
                self._changed.wait(min(STALL_CHECK_S, self.limit / 4))
                if not self._attempts:
                    self._thread = None
                    return
                running = list(self._attempts)
            for attempt in running:
                try:
                    attempt.stall(self.limit)
                except WTBError:  # its own thread finds that out too
                    continue
