"""Node runs: one task of a node, under one variant, from one checkpoint, with its attempts."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from itertools import count
from typing import NamedTuple

from wtb.authoring.context.attempt_record import Record
from wtb.core.errors import StateError, StoreError, WTBError
from wtb.core.failures import Failure, disk_words
from wtb.core.fault_points import point
from wtb.core.ids import new_id
from wtb.core.providers.faults import ProviderFault
from wtb.core.stop import Stopped
from wtb.core.tree.checkpoints import NodeTask
from wtb.execution import rows
from wtb.execution.attempts.attempt import Attempt, NodeRunRecorder
from wtb.execution.attempts.provider_waits import ProviderWait
from wtb.execution.attempts.retries import Retries
from wtb.execution.attempts.stalls import Stalls
from wtb.execution.attempts.visit import Visit, keeps_calls, load_visit
from wtb.execution.engine.executor import CodeExecutor
from wtb.execution.engine.protocol import Result, Settings, Task
from wtb.execution.execution import NOTHING, Execution, NodeRun
from wtb.execution.journal import Journal, Lost
from wtb.execution.node_plan import NodePlans
from wtb.execution.pauses import approval_modes
from wtb.execution.runtime.budgets import NOT_RESERVED, Reserved
from wtb.execution.runtime.disk_space import DATABASE_BLIND_S
from wtb.execution.state import RunningSweep
from wtb.store.database_errors import is_disk_full
from wtb.store.runs.batch import Appended
from wtb.store.tables.node_runs import FIRST_HAS_ROW, NewNodeRun, NodeRunRow
from wtb.store.tables.sweeps import NewEvent

_NEVER_SKIPPED = ("rejected", "provider")  # the rest of the cell would be no result of the node
_NO_WAIT = nullcontext()


class NodeRuns:
    """Runs nodes for the executions of one sweep, and records the results."""

    def __init__(self, sweep: RunningSweep, code: CodeExecutor, journal: Journal) -> None:
        self.sweep = sweep
        self.code = code
        self.journal = journal
        self.plans = NodePlans(sweep.bound)
        run = sweep.bound.spec.run
        self.stalls = None if run.stall is None else Stalls(run.stall)
        # Stalls are looked for in each attempt; at once is committed which attempt has begun.
        self.alone = self.stalls is not None or not journal.durability
        nobody, self.fine = sweep.holds.approvals.nobody, run.takes_tool_checkpoints
        policies = None if sweep.policies is None else sweep.policies.text
        self.settings = Settings(sweep.interactive, run.mode, nobody, self.fine, policies, run.checkpoint_every)

    def run(self, execution: Execution, task: NodeTask, variant: str, cells: int, alone: bool) -> NodeRun:
        """Run a task from the head of an execution, or return the result that an earlier claim committed.

        Args:
            execution: The execution, which is claimed by this runner.
            task: One of the tasks of its next step.
            variant: The variant of the task's node.
            cells: How many cells share the node run.
            alone: Whether the step has no other node run, so that it can be joined at once.

        Raises:
            Stopped: A limit, an interruption or a full disk forbids it.
            Lost: The lease is gone.
        """
        if execution.ahead and (end := execution.ahead.pop((task.key, variant), None)) is not None:
            return end()
        earlier, prior = None, approval_modes.NO_ANSWERS
        if execution.loaded is not NOTHING:
            earlier = execution.loaded.earlier.get((task.key, variant))
            prior = approval_modes.prior_answers(execution, task.key, variant)
        if earlier is not None:
            if earlier.status in ("succeeded", "skipped"):
                return _accepted(execution, earlier)
            if prior.question is not None or prior.failure is not None:
                result = Result(time.time(), 0.0, Record(), failure=prior.failure, question=prior.question)
                return NodeRun(earlier.id, task.key, task.node, variant, result)
        return self._running(execution, task, variant, cells, alone, earlier, prior).run()

    def _running(
        self, execution: Execution, task: NodeTask, variant: str, cells: int, alone: bool,
        earlier: NodeRunRow | None = None, prior: approval_modes.PriorAnswers = approval_modes.NO_ANSWERS,
    ) -> RunningNode:  # fmt: skip
        id = new_id() if earlier is None else earlier.id
        recorder = NodeRunRecorder(self.sweep.ids, self.journal, execution, task, self.plans.of(task.node, variant), id)
        return RunningNode(self, recorder, earlier, prior, cells, alone)

    def begin(self, execution: Execution, task: NodeTask, variant: str, cells: int, alone: bool) -> GroupedNodeRun:
        """Begin a node run whose first attempt is made together with others, if `goes_together` is true of it."""
        return GroupedNodeRun(self._running(execution, task, variant, cells, alone))

    def goes_together(self, execution: Execution, task: NodeTask, variant: str) -> bool:
        """Return whether a node run is known to be quick, and nothing but its end concerns those it is begun with."""
        if not self.code.is_quick(task.node, variant) or self.alone or execution.loaded is not NOTHING:
            return False
        if self.sweep.limits.memory.is_tight:
            return False
        plan = self.plans.of(task.node, variant)
        return not plan.limited and not plan.rules.durable and not self.sweep.limits.budgets.bind(task.node)


class First(NamedTuple):
    """The first attempt of a node run, which was begun before the node run is.

    Attributes:
        attempt: The attempt.
        task: What the engine is given.
        result: What it came to; None if it was not made.
    """

    attempt: Attempt
    task: Task
    result: Result | None = None


class RunningNode:
    """A node run while its attempts are made.

    Attributes:
        reserved: The budget of the attempt that runs, or runs next.
        pending: Rows of the last attempt, which are recorded with the end of the node run, or before the next attempt.
    """

    def __init__(
        self, runs: NodeRuns, recorder: NodeRunRecorder, earlier: NodeRunRow | None,
        prior: approval_modes.PriorAnswers, cells: int, alone: bool,
    ) -> None:  # fmt: skip
        self.runs, self.sweep, self.limits = runs, runs.sweep, runs.sweep.limits
        self.recorder, self.execution, self.task = recorder, recorder.execution, recorder.task
        self.earlier, self.prior, self.cells, self.alone = earlier, prior, cells, alone
        self.rules = recorder.plan.rules
        self.head = recorder.execution.at
        self.retries = Retries(self.rules, 0 if earlier is None else earlier.attempts, prior)
        self.visit = Visit()
        self.full_disks = 0
        self.provider_wait: ProviderWait | None = None
        self.reserved = NOT_RESERVED
        self.pending: Appended = {}

    def run(self, first: First | None = None) -> NodeRun:
        """Run it to its end. first: what `begin` returned, if it was begun already. Raises as `NodeRuns.run` does."""
        if first is None or first.result is None:
            self.limits.memory.wait(self.limits.stop, self._is_asked_for)
        try:
            with self.limits.permits.through(self.task.node) if self.recorder.plan.limited else _NO_WAIT:
                result = self._run_attempts(first or self.begin())
            return self._end(result)
        except Lost:  # the rows of its last attempt may be lost, and its reservation with them
            self.limits.budgets.release(self.reserved)
            raise

    def begin(self) -> First:
        """Reserve budget, record the start and describe the first attempt. Raises as `NodeRuns.run` does."""
        self.reserved = self._reserve(first=self.earlier is None)
        self._record_start()
        self.visit = self._load_visit()
        return self._new_attempt()

    def _is_asked_for(self) -> bool:
        """Return whether a person wants the execution to pause or to end."""
        return self.sweep.holds.requested(self.execution) is not None

    def _run_attempts(self, attempt: First) -> Result:
        """Make attempts until one is accepted, asks a person, is final, or was the last. Raises Stopped."""
        while True:
            result = self._attempt(attempt)
            if result.failure is None or not self._goes_on(result.failure, result.record):
                return result
            self.reserved = self._reserve(first=False)
            attempt = self._new_attempt()

    def _end(self, result: Result) -> NodeRun:
        """Record how the node run has ended, or that it waits for an answer, with which it continues."""
        recorder, failure = self.recorder, result.failure
        if result.question is not None:
            self._record_pending()
            return self._ended(result)
        skipped = failure is not None and self.rules.on_error == "skip" and failure.kind not in _NEVER_SKIPPED
        status = "succeeded" if failure is None else "skipped" if skipped else "failed"
        change = rows.node_run_end(status, self.retries.number, result, self.cells, recorder.plan.fingerprint)
        appended = self.pending
        if failure is not None:
            appended = {**appended, "events": [self._end_event(status, failure, result)]}
        recorder.record(
            node_run_change=(recorder.id, change),
            values=result.writes.values() if result.writes is not None else (),
            files=rows.files(self.sweep.ids, result.files) if result.files else (),
            appended=appended,
        )
        if self.rules.durable:
            recorder.commit(force=True)
        if failure is None:
            self.sweep.progress.add(node_runs=1)
            self.execution.record.count_node_run()
            self.limits.providers.served[self.task.node, recorder.plan.variant] += 1
        elif not skipped:
            approvals = self.sweep.holds.approvals
            result.question = approvals.question_instead(self.task.key, failure, self.retries.number)
            result.failure = None if result.question is not None else failure
        return self._ended(result, skipped=skipped)

    def _load_visit(self) -> Visit:
        if self.execution.loaded is NOTHING:
            return Visit(workspace=self.head.workspace)
        return load_visit(self.sweep.database, self.execution, self.task, self.recorder.plan.variant, self.runs.fine)

    def _ended(self, result: Result, *, skipped: bool = False) -> NodeRun:
        return NodeRun(self.recorder.id, self.task.key, self.task.node, self.recorder.plan.variant, result, skipped)

    def _reserve(self, *, first: bool) -> Reserved:
        """Reserve budget for an attempt; wait while the disk of the database is full. Raises Stopped."""
        for tries in count():
            try:
                return self.limits.budgets.reserve(self.execution.id, self.task.node, first=first)
            except StoreError as error:
                if not is_disk_full(error):
                    raise
                why = f"the disk of the database is full ({error}): make room, and it continues"
                self.limits.room.wait(why, tries, DATABASE_BLIND_S)
        raise AssertionError("unreachable: the loop ends by a result or an exception")

    def _record_start(self) -> None:
        """Record that the node run begins, or that an earlier one goes on."""
        recorder = self.recorder
        settled = self.reserved.begun() if self.reserved.keys else ()
        if self.earlier is None:
            row = rows.node_run(recorder.ids, recorder.id, self.execution, self.task, recorder.plan, self.cells)
            recorder.record(node_run=row, appended={"settled": settled})
        else:  # its attempts failed, or died with their runner: they count, and more follow
            begun: NewNodeRun = {"status": "running", "cells": self.cells}
            again = [recorder.event("node_run.started", visit=self._visits, attempt=self.retries.number + 1)]
            recorder.record(node_run_change=(recorder.id, begun), appended={"events": again, "settled": settled})

    def _attempt(self, described: First) -> Result:
        """Make one attempt, unless others have made it, and keep its rows as `pending`.

        Files beyond the quota of the session make it fail.
        """
        attempt, task, result = described
        stalls = self.runs.stalls
        try:
            if result is None:
                with (
                    self.limits.memory.turn(self.limits.stop, self._is_asked_for),
                    _NO_WAIT if stalls is None else stalls.watching(attempt),
                ):
                    result = self.runs.code.run(task)
            if result.files:
                self._take_files(result)
        finally:
            attempt.end()
        point("node.answered")
        if result.failure is not None:
            self._drop_changes(result, result.failure)
        if result.record.usd:
            self.sweep.progress.add(usd=result.record.usd)
        self.pending = self._attempt_rows(result, again=attempt.begun)
        return result

    def _new_attempt(self) -> First:
        self.retries.number += 1
        attempt = Attempt(self.recorder, self.visit, self.retries.number, self.reserved, self.sweep)
        point("node.starting")
        return First(attempt, self._task(attempt))

    def _take_files(self, result: Result) -> None:
        """Count the files of an attempt against the quota of the session, which may make it fail."""
        try:
            self.limits.disk.take(result.files)
        except StateError as error:
            result.writes, result.files, result.failure = None, (), Failure.of(error, final=True)

    def _task(self, attempt: Attempt) -> Task:
        """Describe an attempt for the engine."""
        execution, retries, visit = self.execution, self.retries, self.visit
        return Task(
            self.task.node,
            self.recorder.plan.variant,
            execution.state,
            self.head.position,
            self.sweep.root(execution),
            attempt=retries.number,
            failed=retries.failed,
            draws=retries.draws,
            previous=retries.previous,
            timeout=self._time_left(),
            workspace=visit.workspace,
            allowed=self.limits.disk.left,
            join=self.alone,
            answers=execution.loaded.dialogue.answers,
            saved=visit.saved,
            done=visit.calls,
            earlier=visit.earlier if self.runs.settings.policies is not None else (),
            settings=self.runs.settings,
            execution=execution.id,
            token=execution.token,
            allowance=self.reserved.allowance,
            on_event=attempt.on_event,
            number=self.task.number,
            key=self.task.key,
            asked=self.prior.asked,
            trace=f"{self.sweep.trace_of(execution)};{self.recorder.id} {retries.number}",
        )

    def _time_left(self) -> float | None:
        """Seconds that an attempt may take: the timeout of the node, or what is left of that of the cell."""
        of_cell, of_node = self.sweep.bound.spec.limits.cell_timeout, self.rules.timeout
        if of_cell is None:
            return of_node
        left = max(0.001, of_cell - self.head.totals.elapsed_s)
        return left if of_node is None else min(of_node, left)

    def _drop_changes(self, result: Result, failure: Failure) -> None:
        """Forget the files of a failed attempt, and its tool calls unless the next one reuses them."""
        result.workspace = self.head.workspace
        if not keeps_calls(failure.kind, self.runs.fine):
            self.visit.calls = []
        if failure.kind == "killed":  # by itself, the machine or a limit: which one is unknown, so it costs no retry
            self.retries.forgive()
            self.execution.kills += 1
            self.recorder.record(change={"kills": self.execution.kills})

    def _attempt_rows(self, result: Result, *, again: bool) -> Appended:
        accepted = result.failure is None
        settled = self.limits.budgets.ended(self.task.node, self.reserved, result.record, accepted=accepted)
        is_first = self.retries.number == 1
        if is_first and accepted and result.question is None:
            return {"settled": settled}
        row = rows.attempt(self.recorder.id, self.retries.number, result, self.recorder.plan.fingerprint)
        return {"attempts": [{**row, "again": again and not is_first}], "settled": settled}

    def _end_event(self, status: str, failure: Failure, result: Result) -> NewEvent:
        took = {"visit": self._visits, "attempt": self.retries.number, "duration_s": result.duration_s}
        spent = {"usd": result.record.usd} if result.record.usd else {}
        return self.recorder.event(f"node_run.{status}", "warning", **took, **spent, error=str(failure))

    @property
    def _visits(self) -> int:
        """How often the execution has been at the node before."""
        return self.head.position.visits.get(self.task.node, 0)

    def _goes_on(self, failure: Failure, record: Record) -> bool:
        """Decide whether another attempt follows one that failed, and wait until it may begin. Raises Stopped."""
        if failure.kind == "disk":
            self._wait_for_room(failure)
        elif failure.kind == "lost":
            self._record_lost(failure)
        elif failure.provider is not None:
            return not failure.final and self._wait_for_provider(failure, failure.provider)
        else:
            self._stop_if_overspent(failure, record)
            if failure.final or self._is_last(failure):
                return False
            self._prepare_retry(failure, record)
        return True

    def _is_last(self, failure: Failure) -> bool:
        if failure.kind == "killed":
            return self.execution.kills >= self.sweep.bound.spec.run.set_aside_after
        return self.retries.exhausted

    def _record_pending(self, *events: NewEvent) -> None:
        appended: Appended = {**self.pending, "events": events}
        if self.retries.number == 1:  # until now the row of the node run described the attempt
            self.recorder.record(appended=appended, node_run_change=(self.recorder.id, {**FIRST_HAS_ROW}))
        else:
            self.recorder.record(appended=appended)
        self.pending = {}

    def _wait_for_room(self, failure: Failure) -> None:
        """Wait until a disk has room again. That it was full is not the fault of the node, so it costs no retry."""
        self.retries.forgive()
        self._record_pending()
        self.limits.room.wait(disk_words(failure), self.full_disks)
        self.full_disks += 1

    def _wait_for_provider(self, failure: Failure, fault: ProviderFault) -> bool:
        """Wait until a provider may serve the node run. Returns False if it has failed for good. Raises Stopped.

        It is not the fault of the node, so it costs no retry, and the next attempt has the same random numbers.
        """
        if self.provider_wait is None:
            variant = self.task.node, self.recorder.plan.variant
            self.provider_wait = ProviderWait(self.limits.providers, variant, is_second=self.earlier is not None)
        try:
            seconds = self.provider_wait.next_wait_s(fault)
        except Stopped:
            self._record_pending()
            raise
        if seconds is None:
            return False
        self.retries.forgive(same_draws=True)
        data = {"attempt": self.retries.number, "fault": fault, "wait_s": round(seconds, 3), "error": str(failure)}
        self._record_pending(self.recorder.event("attempt.postponed", "warning", **data))
        self.provider_wait.sleep(fault, seconds, self._is_asked_for)
        return True

    def _record_lost(self, failure: Failure) -> None:
        """Record an attempt that ended for the sake of another one, and make it again with the same random numbers."""
        self.retries.forgive(same_draws=True)
        data = {"attempt": self.retries.number, "error": str(failure)}
        self._record_pending(self.recorder.event("attempt.lost", "warning", **data))

    def _stop_if_overspent(self, failure: Failure, record: Record) -> None:
        """Stop the sweep if a budget, and no limit of the node's own, ended the attempt. Raises Stopped."""
        if self.reserved.is_overspent(failure.kind, record):
            self._record_pending()
            self.recorder.commit(force=True)  # so that the reported spending includes this attempt
            self.limits.budgets.stop_for(self.reserved, record)

    def _prepare_retry(self, failure: Failure, record: Record) -> None:
        """Record a failed attempt, keep what it left for the next one, and wait for the backoff. Raises Stopped."""
        killed = failure.kind == "killed"
        of = self.sweep.bound.spec.run.set_aside_after if killed else self.retries.last
        data = {"attempt": self.retries.number, "of": of, "error": str(failure)}
        self._record_pending(self.recorder.event("attempt.failed", "warning", **data))
        self.retries.prepare(failure, record)
        self.limits.stop.wait(self.retries.backoff_s)


class GroupedNodeRun:
    """A node run whose first attempt others make, while slots may wait for its end.

    Attributes:
        outcome: What it came to, if that is known.
    """

    def __init__(self, running: RunningNode) -> None:
        self._running = running
        self._first: First | None = None
        self._made = threading.Event()
        self.outcome: NodeRun | Exception | None = None
        try:
            self._first = running.begin()
        except WTBError as error:
            self.outcome = error

    @property
    def execution(self) -> Execution:
        """The execution that it is a node run of."""
        return self._running.execution

    @property
    def first_task(self) -> Task | None:
        """The attempt that is to be made, if nothing forbade it."""
        return None if self._first is None else self._first.task

    def take(self, result: Result | Exception | None) -> None:
        """Take what its first attempt came to, and end with that. If it failed or was not made, `run` continues."""
        if self._made.is_set():
            return
        try:
            if isinstance(result, Result):
                assert self._first is not None, "only an attempt that was begun has a result"
                self._first = self._first._replace(result=result)
                if result.failure is None:
                    self.outcome = self._running.run(self._first)
            elif result is not None:
                self.outcome = result
        except WTBError as error:
            self.outcome = error
        finally:
            self._made.set()  # not before: a slot that waits for it would end it, too

    def release(self) -> None:
        """Let slots run it that wait for it: nobody makes its first attempt any more."""
        self._made.set()

    def run(self) -> NodeRun:
        """Wait until its first attempt is made, and run it to its end. Raises as `NodeRuns.run` does."""
        self._made.wait()
        if isinstance(self.outcome, NodeRun):
            return self.outcome
        if self.outcome is not None:
            raise self.outcome
        return self._running.run(self._first)


def _accepted(execution: Execution, row: NodeRunRow) -> NodeRun:
    """A node run that ended under an earlier claim, from its row."""
    writes = {name: execution.loaded.values[key] for name, key in (row.writes or {}).items()}
    record = Record(usd=row.usd, tokens_in=row.tokens_in, tokens_out=row.tokens_out)
    result = Result(row.started_at, row.duration_s, record, writes, workspace=row.workspace)
    return NodeRun(row.id, row.task, row.node, row.variant, result, row.status == "skipped")
