"""Node runs: one task of a node, under one variant, from one checkpoint, with its attempts."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from itertools import count
from typing import NamedTuple

from wtb.authoring.context.attempt_record import Record
from wtb.core.errors import StateError, StoreError, WTBError
from wtb.core.failures import Failure
from wtb.core.fault_points import point
from wtb.core.ids import new_id
from wtb.core.tree.checkpoints import NodeTask
from wtb.execution import holds, rows
from wtb.execution.attempt import Attempt, NodeRunRecorder, Visit, keeps_calls, load_visit
from wtb.execution.engine.executor import CodeExecutor
from wtb.execution.engine.protocol import Result, Settings, Task
from wtb.execution.execution import NOTHING, Execution, NodeRun
from wtb.execution.failed_attempts import FailedAttempts, Retries, Stalls
from wtb.execution.journal import Journal, Lost
from wtb.execution.runtime.budgets import NOT_RESERVED, Reserved
from wtb.execution.state import NodePlans, RunningSweep
from wtb.execution.waits import DATABASE_BLIND_S
from wtb.store.database_url import is_disk_full
from wtb.store.runs.batch import Appended
from wtb.store.tables.node_runs import NewNodeRun, NodeRunRow
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
        # Stalls are watched, and with `durability: sync` starts are committed, for each attempt by itself.
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
            alone: Whether the step has no other node run, so that the attempt can join it, too.

        Raises:
            Stopped: A limit, an interruption or a full disk forbids it.
            Lost: The lease is gone.
        """
        if execution.ahead and (end := execution.ahead.pop((task.key, variant), None)) is not None:
            return end()
        earlier, prior = None, holds.NO_ANSWERS
        if execution.loaded is not NOTHING:
            earlier = execution.loaded.earlier.get((task.key, variant))
            prior = holds.prior_answers(execution, task.key, variant)
        if earlier is not None:
            if earlier.status in ("succeeded", "skipped"):
                return _accepted(execution, earlier)
            if prior.question is not None or prior.failure is not None:
                outcome = Result(time.time(), 0.0, Record(), failure=prior.failure, question=prior.question)
                return NodeRun(earlier.id, task.key, task.node, variant, outcome)
        return self._running(execution, task, variant, cells, alone, earlier, prior).run()

    def _running(
        self, execution: Execution, task: NodeTask, variant: str, cells: int, alone: bool,
        earlier: NodeRunRow | None = None, prior: holds.PriorAnswers = holds.NO_ANSWERS,
    ) -> RunningNode:  # fmt: skip
        id = new_id() if earlier is None else earlier.id
        recorder = NodeRunRecorder(self.sweep.ids, self.journal, execution, task, self.plans.of(task.node, variant), id)
        return RunningNode(self, recorder, earlier, prior, cells, alone)

    def begin(self, execution: Execution, task: NodeTask, variant: str, cells: int, alone: bool) -> GroupedNodeRun:
        """Begin a node run whose first attempt is made together with others, if `goes_together` is true of it."""
        return GroupedNodeRun(self._running(execution, task, variant, cells, alone))

    def goes_together(self, execution: Execution, task: NodeTask, variant: str) -> bool:
        """Return whether a node run is known to be quick and may share a message with others."""
        if not self.code.is_quick(task.node, variant) or self.alone or execution.loaded is not NOTHING:
            return False
        if self.sweep.limits.memory.is_tight:
            return False
        plan = self.plans.of(task.node, variant)
        return not plan.limited and not plan.rules.durable and not self.sweep.limits.budgets.bind(task.node)


class PreparedAttempt(NamedTuple):
    """An attempt that is ready for the engine, with its result if it has run already.

    Attributes:
        attempt: The attempt.
        task: The attempt as the engine gets it.
        result: Its result; None if it has not run.
    """

    attempt: Attempt
    task: Task
    result: Result | None = None


class RunningNode:
    """A node run while its attempts are made.

    Attributes:
        runs: Those of its sweep.
        recorder: Records the node run, which it names.
        earlier: Its row, if it has begun under an earlier claim.
        prior: Answers of people to its questions.
        cells: How many cells share it.
        alone: Whether the step has no other node run.
        retries: The attempts that it may make.
        visit: The state that its attempts leave to the next one.
        reserved: The budget of the attempt that runs, or runs next.
    """

    def __init__(
        self, runs: NodeRuns, recorder: NodeRunRecorder, earlier: NodeRunRow | None,
        prior: holds.PriorAnswers, cells: int, alone: bool,
    ) -> None:  # fmt: skip
        self.runs = runs
        self.recorder = recorder
        self.earlier = earlier
        self.prior = prior
        self.cells = cells
        self.alone = alone
        self.retries = Retries(recorder.plan.rules, 0 if earlier is None else earlier.attempts, prior)
        self.visit = Visit()
        self.reserved = NOT_RESERVED

    def run(self, first: PreparedAttempt | None = None) -> NodeRun:
        """Run it to its end. first: what `begin` returned, if it was begun already. Raises as `NodeRuns.run` does."""
        limits, plan = self.runs.sweep.limits, self.recorder.plan
        if first is None or first.result is None:
            # Before the permit is taken: a node run that waits for memory must not hold a permit that others could use.
            limits.memory.wait(limits.stop, self._is_asked_for)
        try:
            with limits.permits.through(plan.node) if plan.limited else _NO_WAIT:
                outcome = self._run_attempts(first or self.begin())
            return self._end(outcome)
        except Lost:
            # The rows that would settle the reservation may be lost with the lease.
            limits.budgets.release(self.reserved)
            raise

    def begin(self) -> PreparedAttempt:
        """Reserve budget, record the start and describe the first attempt. Raises as `NodeRuns.run` does."""
        self.reserved = self._reserve(first=self.earlier is None)
        self._record_start()
        self.visit = self._load_visit()
        return self._new_attempt()

    @property
    def execution(self) -> Execution:
        """The execution that this node run belongs to."""
        return self.recorder.execution

    def _is_asked_for(self) -> bool:
        """Return whether a person wants the execution to pause or to end."""
        return self.runs.sweep.holds.requested(self.recorder.execution) is not None

    def _run_attempts(self, first: PreparedAttempt) -> Result:
        """Make attempts until one is accepted, asks a person, is final, or was the last. Raises Stopped."""
        outcome = self._attempt(first)
        if outcome.failure is None:
            return outcome
        failed = FailedAttempts(self.runs.sweep, self.recorder, self.retries, is_second=self.earlier is not None)
        while outcome.failure is not None and failed.is_followed(outcome.failure, outcome.record, self.reserved):
            self.reserved = self._reserve(first=False)
            outcome = self._attempt(self._new_attempt())
        return outcome

    def _end(self, outcome: Result) -> NodeRun:
        """Record how the node run has ended, or that it waits for an answer, with which it continues."""
        recorder, failure = self.recorder, outcome.failure
        sweep, plan = self.runs.sweep, recorder.plan
        if outcome.question is not None:
            recorder.record_pending(self.retries.number)
            return self._ended(outcome)
        skipped = failure is not None and plan.rules.on_error == "skip" and failure.kind not in _NEVER_SKIPPED
        status = "succeeded" if failure is None else "skipped" if skipped else "failed"
        change = rows.node_run_end(status, self.retries.number, outcome, self.cells, plan.fingerprint)
        appended = recorder.pending
        if failure is not None:
            appended = {**appended, "events": [self._end_event(status, failure, outcome)]}
        recorder.record(
            node_run_change=(recorder.id, change),
            values=outcome.writes.values() if outcome.writes is not None else (),
            files=rows.files(sweep.ids, outcome.files) if outcome.files else (),
            appended=appended,
        )
        if plan.rules.durable:
            recorder.commit(force=True)
        if failure is None:
            sweep.progress.add(node_runs=1)
            recorder.execution.record.count_node_run()
            sweep.limits.providers.served[plan.node, plan.variant] += 1
        elif not skipped:
            question = sweep.holds.approvals.question_instead(recorder.task.key, failure, self.retries.number)
            outcome.question = question
            # The cells wait for an answer instead of failing.
            outcome.failure = None if question is not None else failure
        return self._ended(outcome, skipped=skipped)

    def _load_visit(self) -> Visit:
        execution = self.recorder.execution
        if execution.loaded is NOTHING:
            return Visit(workspace=execution.at.workspace)
        task, variant = self.recorder.task, self.recorder.plan.variant
        return load_visit(self.runs.sweep.database, execution, task, variant, self.runs.fine)

    def _ended(self, outcome: Result, *, skipped: bool = False) -> NodeRun:
        recorder = self.recorder
        return NodeRun(recorder.id, recorder.task.key, recorder.task.node, recorder.plan.variant, outcome, skipped)

    def _reserve(self, *, first: bool) -> Reserved:
        """Reserve budget for an attempt; wait while the disk of the database is full. Raises Stopped."""
        limits, execution = self.runs.sweep.limits, self.recorder.execution
        for tries in count():
            try:
                return limits.budgets.reserve(execution.id, self.recorder.plan.node, first=first)
            except StoreError as error:
                if not is_disk_full(error):
                    raise
                why = f"the disk of the database is full ({error}): make room, and it continues"
                limits.room.wait(why, tries, DATABASE_BLIND_S)
        raise AssertionError("unreachable: the loop ends by a result or an exception")

    def _record_start(self) -> None:
        """Record that the node run begins, or that an earlier one continues."""
        recorder = self.recorder
        settlements = self.reserved.count_node_run() if self.reserved.keys else ()
        if self.earlier is None:
            row = rows.node_run(recorder.ids, recorder.id, recorder.execution, recorder.task, recorder.plan, self.cells)
            recorder.record(node_run=row, appended={"settled": settlements})
        else:  # its attempts failed, or died with their runner: they count, and more follow
            change: NewNodeRun = {"status": "running", "cells": self.cells}
            events = [recorder.event("node_run.started", visit=self._visits, attempt=self.retries.number + 1)]
            recorder.record(node_run_change=(recorder.id, change), appended={"events": events, "settled": settlements})

    def _attempt(self, prepared: PreparedAttempt) -> Result:
        """Make one attempt, unless others have made it, and keep its rows as those that the recorder has pending.

        Files beyond the quota of the session make it fail.
        """
        attempt, task, outcome = prepared
        sweep, stalls = self.runs.sweep, self.runs.stalls
        try:
            if outcome is None:
                with (
                    sweep.limits.memory.turn(sweep.limits.stop, self._is_asked_for),
                    _NO_WAIT if stalls is None else stalls.watching(attempt),
                ):
                    outcome = self.runs.code.run(task)
            if outcome.files:
                self._take_files(outcome)
        finally:
            # However the attempt ended: reports of threads that it left behind must not be recorded under the next one.
            attempt.end()
        point("node.answered")
        if outcome.failure is not None:
            self._drop_changes(outcome, outcome.failure)
        if outcome.record.usd:
            sweep.progress.add(usd=outcome.record.usd)
        self.recorder.pending = self._attempt_rows(outcome, is_recorded=attempt.start_is_recorded)
        return outcome

    def _new_attempt(self) -> PreparedAttempt:
        self.retries.number += 1
        attempt = Attempt(self.recorder, self.visit, self.retries.number, self.reserved, self.runs.sweep)
        point("node.starting")
        return PreparedAttempt(attempt, self._task(attempt))

    def _take_files(self, outcome: Result) -> None:
        """Count the files of an attempt against the quota of the session, which may make it fail."""
        try:
            self.runs.sweep.limits.disk.take(outcome.files)
        except StateError as error:
            outcome.writes, outcome.files, outcome.failure = None, (), Failure.of(error, final=True)

    def _task(self, attempt: Attempt) -> Task:
        """Describe an attempt for the engine."""
        runs, recorder, retries, visit = self.runs, self.recorder, self.retries, self.visit
        sweep, execution, task = runs.sweep, recorder.execution, recorder.task
        return Task(
            task.node,
            recorder.plan.variant,
            execution.state,
            execution.at.position,
            sweep.root(execution),
            attempt=retries.number,
            failed=retries.failed,
            draws=retries.draws,
            previous=retries.previous,
            timeout=self._time_left(),
            workspace=visit.workspace,
            allowed=sweep.limits.disk.free,
            join=self.alone,
            answers=execution.loaded.dialogue.answers,
            saved=visit.saved,
            done=visit.calls,
            earlier=visit.earlier if runs.settings.policies is not None else (),
            settings=runs.settings,
            execution=execution.id,
            token=execution.token,
            allowance=self.reserved.allowance,
            on_event=attempt.on_event,
            number=task.number,
            key=task.key,
            asked=self.prior.interrupt_questions,
            trace=f"{sweep.trace_of(execution)};{recorder.id} {retries.number}",
        )

    def _time_left(self) -> float | None:
        """Seconds that an attempt may take: the timeout of the node, or what is left of that of the cell."""
        of_cell, of_node = self.runs.sweep.bound.spec.limits.cell_timeout, self.recorder.plan.rules.timeout
        if of_cell is None:
            return of_node
        # More than zero, so that an attempt of a cell without time left fails by its timeout and not by an invalid one.
        seconds_left = max(0.001, of_cell - self.recorder.execution.at.totals.elapsed_s)
        return seconds_left if of_node is None else min(of_node, seconds_left)

    def _drop_changes(self, outcome: Result, failure: Failure) -> None:
        """Forget the files of a failed attempt, and its tool calls unless the next one reuses them."""
        execution = self.recorder.execution
        outcome.workspace = execution.at.workspace
        if not keeps_calls(failure.kind, self.runs.fine):
            self.visit.calls = []
        if failure.kind == "killed":
            # Killed by itself, by the machine or by a limit: which one is unknown, so it costs no retry and counts as a
            # kill.
            self.retries.forgive()
            execution.kills += 1
            self.recorder.record(change={"kills": execution.kills})

    def _attempt_rows(self, outcome: Result, *, is_recorded: bool) -> Appended:
        accepted = outcome.failure is None
        budgets, plan = self.runs.sweep.limits.budgets, self.recorder.plan
        settlements = budgets.ended(plan.node, self.reserved, outcome.record, accepted=accepted)
        is_first = self.retries.number == 1
        # The row of the node run describes an accepted first attempt, so that most node runs write one row.
        if is_first and accepted and outcome.question is None:
            return {"settled": settlements}
        row = rows.attempt(self.recorder.id, self.retries.number, outcome, plan.fingerprint)
        return {"attempts": [{**row, "again": is_recorded and not is_first}], "settled": settlements}

    def _end_event(self, status: str, failure: Failure, outcome: Result) -> NewEvent:
        took = {"visit": self._visits, "attempt": self.retries.number, "duration_s": outcome.duration_s}
        spent = {"usd": outcome.record.usd} if outcome.record.usd else {}
        return self.recorder.event(f"node_run.{status}", "warning", **took, **spent, error=str(failure))

    @property
    def _visits(self) -> int:
        """The number of earlier visits of the execution to the node."""
        return self.recorder.execution.at.position.visits.get(self.recorder.task.node, 0)


class GroupedNodeRun:
    """A node run whose first attempt is made together with others, while slots may wait for its end.

    Attributes:
        outcome: Its result or error, if that is known.
    """

    def __init__(self, running: RunningNode) -> None:
        self._running = running
        self._first: PreparedAttempt | None = None
        # Slots wait for this event instead of starting the first attempt again.
        self._is_taken = threading.Event()
        self.outcome: NodeRun | Exception | None = None
        try:
            self._first = running.begin()
        except WTBError as error:
            self.outcome = error

    @property
    def execution(self) -> Execution:
        """The execution that this node run belongs to."""
        return self._running.execution

    @property
    def first_task(self) -> Task | None:
        """The attempt to make, unless something forbids it."""
        return None if self._first is None else self._first.task

    def take(self, outcome: Result | Exception | None) -> None:
        """Accept the result of its first attempt, and end. If it failed or was not made, `run` continues."""
        if self._is_taken.is_set():
            return
        try:
            if isinstance(outcome, Result):
                assert self._first is not None, "only an attempt that was begun has a result"
                self._first = self._first._replace(result=outcome)
                if outcome.failure is None:
                    self.outcome = self._running.run(self._first)
            elif outcome is not None:
                self.outcome = outcome
        except WTBError as error:
            self.outcome = error
        finally:
            # Only after the outcome is set, or a waiting slot would run the node run again.
            self._is_taken.set()

    def release(self) -> None:
        """Let waiting slots run it, because its first attempt was not made."""
        self._is_taken.set()

    def run(self) -> NodeRun:
        """Wait until its first attempt is made, and run it to its end. Raises as `NodeRuns.run` does."""
        self._is_taken.wait()
        if isinstance(self.outcome, NodeRun):
            return self.outcome
        if self.outcome is not None:
            raise self.outcome
        return self._running.run(self._first)


def _accepted(execution: Execution, row: NodeRunRow) -> NodeRun:
    """Make a node run that ended under an earlier claim from its row."""
    writes = {name: execution.loaded.values[key] for name, key in (row.writes or {}).items()}
    record = Record(usd=row.usd, tokens_in=row.tokens_in, tokens_out=row.tokens_out)
    outcome = Result(row.started_at, row.duration_s, record, writes, workspace=row.workspace)
    return NodeRun(row.id, row.task, row.node, row.variant, outcome, row.status == "skipped")
