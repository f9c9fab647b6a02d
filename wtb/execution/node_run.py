"""Node runs: one task of a node, under one variant, from one checkpoint, with its attempts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

from wtb.authoring.context.attempt_record import Previous, Record
from wtb.core.errors import StateError, StoreError
from wtb.core.failures import Failure, disk_words
from wtb.core.fault_points import point
from wtb.core.ids import new_id
from wtb.core.serialization.codec import decode
from wtb.core.tree.checkpoints import NodeTask
from wtb.execution import rows
from wtb.execution.attempt_listener import AttemptListener, NodeRunRecorder, Stalls
from wtb.execution.engine.executor import CodeExecutor
from wtb.execution.engine.protocol import Result, Task
from wtb.execution.execution import Execution
from wtb.execution.journal import Journal, Lost
from wtb.execution.pauses import approval_modes
from wtb.execution.runtime.budgets import Reserved
from wtb.execution.runtime.disk_space import DATABASE_BLIND_S
from wtb.execution.state import RunningSweep
from wtb.execution.visit import Visit, keeps_calls, load_visit
from wtb.planning.approval import mode_of
from wtb.store.database import is_disk_full


@dataclass(frozen=True)
class NodeRun:
    """A node run that has ended: accepted or skipped, so that the execution goes on, or failed. task: its key."""

    id: str
    task: str
    node: str
    variant: str
    result: Result
    skipped: bool = False

    @property
    def failure(self) -> Failure | None:
        return None if self.skipped else self.result.failure


@dataclass(frozen=True)
class NodeRuns:
    """Runs nodes for the executions of one sweep, and records the results."""

    sweep: RunningSweep
    code: CodeExecutor
    journal: Journal

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
        earlier = execution.earlier.get((task.key, variant))
        if earlier is not None and earlier["status"] in ("succeeded", "skipped"):
            return _accepted(execution, earlier)
        prior = approval_modes.prior_answers(execution, task.key, variant)
        if earlier is not None and (prior.question is not None or prior.failure is not None):
            result = Result(time.time(), 0.0, Record(), failure=prior.failure, question=prior.question)
            return NodeRun(earlier["id"], task.key, task.node, variant, result)
        id = new_id() if earlier is None else earlier["id"]
        recorder = NodeRunRecorder(self.sweep, self.journal, execution, task, variant, id)
        running = _RunningNode(self, recorder, earlier, prior, cells, alone)
        try:
            with self.sweep.permits.through(task.node):
                running.start()
                result = running.try_until_done()
            return running.end(result)
        except Lost:  # the rows of its last attempt may be lost, and its reservation with them
            self.sweep.budgets.release(running.reserved)
            raise

    def reserve(self, execution: str, node: str, *, first: bool) -> Reserved:
        """Reserve budget for an attempt; wait while the disk of the database is full. Raises Stopped."""
        for tries in count():
            try:
                return self.sweep.budgets.reserve(execution, node, first=first)
            except StoreError as error:
                if not is_disk_full(error):
                    raise
                why = f"the disk of the database is full ({error}): make room, and it goes on"
                self.sweep.room.wait(why, tries, DATABASE_BLIND_S)
        raise AssertionError("unreachable: the loop ends by a result or an exception")

    @cached_property
    def stalls(self) -> Stalls | None:
        limit = self.sweep.bound.spec.run.stall
        return None if limit is None else Stalls(limit)

    @property
    def fine(self) -> bool:
        return self.sweep.bound.spec.run.checkpoints == "fine"


class _RunningNode:
    """A node run while its attempts are made.

    number: the attempt that runs, or ran last. last: the number of the last attempt that the rules allow.
    pending: rows of the last attempt, which are recorded with the end of the node run, or before the next attempt.
    """

    def __init__(
        self, runs: NodeRuns, recorder: NodeRunRecorder, earlier: Mapping[str, Any] | None,
        prior: approval_modes.PriorAnswers, cells: int, alone: bool,
    ) -> None:  # fmt: skip
        self.runs, self.sweep = runs, runs.sweep
        self.recorder, self.execution, self.task = recorder, recorder.execution, recorder.task
        self.earlier, self.prior, self.cells, self.alone = earlier, prior, cells, alone
        self.rules = recorder.rules
        self.tried = self.number = 0 if earlier is None else earlier["attempts"]
        self.last = self.tried + 1 + self.rules.retries
        self.full_disks = 0
        self.previous = prior.previous
        self.reserved = Reserved()
        self.pending: dict[str, list[rows.Row]] = {}

    @cached_property
    def visit(self) -> Visit:
        return load_visit(self.sweep.database, self.execution, self.task, self.recorder.variant, self.runs.fine)

    @cached_property
    def listener(self) -> AttemptListener:
        return AttemptListener(self.recorder, self.visit)

    def start(self) -> None:
        """Reserve budget and record that the node run begins, or that an earlier one goes on."""
        recorder = self.recorder
        self._reserve(first=self.earlier is None)
        appended = {"events": [recorder.event("node_run.started")], "settled": self.reserved.begun()}
        if self.earlier is None:
            row = rows.node_run(recorder.id, self.sweep, self.execution, self.task, recorder.variant, self.cells)
            recorder.record(node_run=row, appended=appended)
        else:  # its attempts failed, or died with their runner: they count, and more follow
            change = {"status": "running", "cells": self.cells}
            recorder.record(node_run_change=(recorder.id, change), appended=appended)

    def try_until_done(self) -> Result:
        """Make attempts until one is accepted, asks a person, is final, or was the last."""
        stalls = self.runs.stalls
        with nullcontext() if stalls is None else stalls.watching(self.listener):
            while True:
                result = self._attempt()
                failure = result.failure
                if failure is not None:
                    self._drop_changes(result, failure)
                self.sweep.progress.add(usd=result.record.usd)
                self.pending = self._attempt_rows(result)
                if failure is None:
                    return result
                if failure.kind == "disk":
                    self._wait_for_room(failure)
                else:
                    self._stop_if_overspent(failure, result.record)
                    if failure.final or not self._may_retry(failure):
                        return result
                    self._prepare_retry(failure, result.record)
                self._reserve(first=False)

    def end(self, result: Result) -> NodeRun:
        """Record how the node run has ended, or that it waits for an answer, with which it continues."""
        run = NodeRun(self.recorder.id, self.task.key, self.task.node, self.recorder.variant, result)
        if result.question is not None:
            self.recorder.append(**self.pending)
            return run
        failure = result.failure
        skipped = failure is not None and self.rules.on_error == "skip" and failure.kind != "rejected"
        status = "succeeded" if failure is None else "skipped" if skipped else "failed"
        fingerprint = self.recorder.fingerprint
        self.recorder.record(
            node_run_change=(run.id, rows.node_run_end(status, self.number, result, self.cells, fingerprint)),
            values=result.writes.values() if result.writes is not None else (),
            files=rows.files(self.sweep, result.files),
            appended={**self.pending, "events": [self._end_event(status, result)]},
        )
        self.recorder.flush(force=self.rules.durable)
        self.sweep.progress.add(node_runs=int(failure is None))
        if failure is not None and not skipped:
            result.question = approval_modes.question_instead(self.sweep.bound, run.task, failure, self.number)
            result.failure = None if result.question is not None else failure
        return replace(run, skipped=skipped)

    def _reserve(self, *, first: bool) -> None:
        self.reserved = self.runs.reserve(self.execution.id, self.task.node, first=first)

    def _attempt(self) -> Result:
        self.number += 1
        task = self._engine_task()
        self.listener.begin(self.number, self.reserved)
        point("node.starting")
        try:
            result = self.runs.code.run(task)
            try:
                self.sweep.disk.take(result.files)
            except StateError as error:  # beyond the quota of the session
                result.writes, result.files, result.failure = None, (), Failure.of(error, final=True)
        finally:
            self.listener.end()
        point("node.answered")
        return result

    def _engine_task(self) -> Task:
        execution, bound = self.execution, self.sweep.bound
        return Task(
            self.task.node,
            self.recorder.variant,
            execution.state,
            execution.at.position,
            execution.case.view(),
            repeat=execution.repeat,
            attempt=self.number,
            failed=self.number - self.last + self.rules.retries,
            draws=self.prior.draws if self.number == self.tried + 1 else None,
            seed=bound.spec.seed,
            params=bound.params,
            previous=self.previous,
            timeout=self._time_left(),
            workspace=self.visit.workspace,
            allowed=self.sweep.disk.left,
            join=self.alone,
            answers=execution.dialogue.answers,
            interactive=self.sweep.interactive,
            mode=bound.spec.run.mode,
            nobody=mode_of(bound.spec, bound.workflow)[0] == "none",
            saved=self.visit.saved,
            done=self.visit.calls,
            fine=self.runs.fine,
            execution=execution.id,
            token=execution.token,
            allowance=self.reserved.allowance,
            on_event=self.listener.on_event,
            number=self.task.number,
            key=self.task.key,
            asked=self.prior.asked,
        )

    def _time_left(self) -> float | None:
        """Seconds that an attempt may take: the timeout of the node, or what is left of that of the cell."""
        of_cell, of_node = self.sweep.bound.spec.limits.cell_timeout, self.rules.timeout
        if of_cell is None:
            return of_node
        left = max(0.001, of_cell - self.execution.at.totals.elapsed_s)
        return left if of_node is None else min(of_node, left)

    def _drop_changes(self, result: Result, failure: Failure) -> None:
        """Forget the files of a failed attempt, and its tool calls unless the next one reuses them."""
        result.workspace = self.execution.at.workspace
        if not keeps_calls(failure.kind, self.runs.fine):
            self.visit.calls = []
        if failure.kind == "killed":  # by itself, the machine or a limit: which one is unknown, so it costs no retry
            self.last += 1
            self.execution.kills += 1
            self.recorder.record(change={"kills": self.execution.kills})

    def _attempt_rows(self, result: Result) -> dict[str, list[rows.Row]]:
        row = rows.attempt(self.recorder.id, self.number, result, self.recorder.fingerprint)
        accepted = result.failure is None
        settled = self.sweep.budgets.ended(self.task.node, self.reserved, result.record, accepted=accepted)
        return {"attempts": [{**row, "again": self.listener.begun}], "settled": settled}

    def _end_event(self, status: str, result: Result) -> rows.Row:
        data: dict[str, Any] = {"attempt": self.number, "duration_s": result.duration_s}
        if result.record.usd:
            data["usd"] = result.record.usd
        if result.failure is not None:
            data["error"] = str(result.failure)
        return self.recorder.event(f"node_run.{status}", "info" if status == "succeeded" else "warning", **data)

    def _record_pending(self, *events: rows.Row) -> None:
        self.recorder.append(**{**self.pending, "events": list(events)})
        self.pending = {}

    def _wait_for_room(self, failure: Failure) -> None:
        """Wait until a disk has room again. That it was full is not the fault of the node, so it costs no retry."""
        self.last += 1
        self._record_pending()
        self.sweep.room.wait(disk_words(failure), self.full_disks)
        self.full_disks += 1

    def _stop_if_overspent(self, failure: Failure, record: Record) -> None:
        """Stop the sweep if a budget, and no limit of the node's own, ended the attempt. Raises Stopped."""
        if self.reserved.is_overspent(failure.kind, record):
            self._record_pending()
            self.recorder.flush(force=True)  # so that the reported spending includes this attempt
            self.sweep.budgets.stop_for(self.reserved, record)

    def _may_retry(self, failure: Failure) -> bool:
        if failure.kind == "killed":
            return self.execution.kills < self.sweep.bound.spec.run.set_aside_after
        return self.number < self.last

    def _prepare_retry(self, failure: Failure, record: Record) -> None:
        most = self.sweep.bound.spec.run.set_aside_after if failure.kind == "killed" else self.last
        data = {"attempt": self.number, "of": most, "error": str(failure)}
        self._record_pending(self.recorder.event("attempt.failed", "warning", **data))
        self.previous = Previous(self.number, self.last, str(failure), _output(record), tuple(record.suggestions))
        self.sweep.stop.wait(self.rules.backoff.seconds(self.number - self.tried))


def _output(record: Record) -> Any:
    """What an attempt left for the next one; None if it cannot be decoded, e.g. because its class is gone."""
    try:
        return None if record.output is None else decode(record.output.encode())
    except StateError:
        return None


def _accepted(execution: Execution, row: Mapping[str, Any]) -> NodeRun:
    """A node run that ended under an earlier claim, from its row."""
    writes = {name: execution.earlier_values[key] for name, key in (row["writes"] or {}).items()}
    record = Record(usd=row["usd"], tokens_in=row["tokens_in"], tokens_out=row["tokens_out"])
    result = Result(row["started_at"], row["duration_s"], record, writes, workspace=row["workspace"])
    return NodeRun(row["id"], row["task"], row["node"], row["variant"], result, row["status"] == "skipped")
