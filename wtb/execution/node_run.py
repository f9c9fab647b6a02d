"""Node runs: one task of a node, under one variant, from one checkpoint, with its attempts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

from wtb.authoring.context.attempt_record import Previous, Record
from wtb.core.errors import StateError, StoreError
from wtb.core.failures import Failure, disk_words
from wtb.core.fault_points import point
from wtb.core.serialization.codec import decode
from wtb.core.tree.checkpoints import NodeTask
from wtb.execution import rows
from wtb.execution.attempt_listener import AttemptListener, keeps_calls, load_visit
from wtb.execution.engine.executor import CodeExecutor
from wtb.execution.engine.protocol import Result, Task
from wtb.execution.execution import Execution
from wtb.execution.journal import Journal, Lost
from wtb.execution.pauses import approval_modes
from wtb.execution.runtime.budgets import Reserved
from wtb.execution.runtime.disk_space import DATABASE_BLIND_S
from wtb.execution.stall_watch import Stalls
from wtb.execution.state import RunningSweep
from wtb.planning.approval import mode_of
from wtb.store.runs.full_disks import is_full


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

        cells: how many share it. alone: the step has no other node run, so it can be joined at once.

        Raises Stopped if a limit, an interruption or a full disk forbids it; Lost if the lease is gone.
        """
        held: list[Reserved] = []
        try:
            return self._run(execution, task, variant, cells, alone, held)
        except Lost:
            for reserved in held[-1:]:
                self.sweep.budgets.release(reserved)
            raise

    def _run(
        self, execution: Execution, task: NodeTask, variant: str, cells: int, alone: bool, held: list[Reserved]
    ) -> NodeRun:
        """held: the reservations of its attempts are appended to it."""
        node, about = task.node, rows.about(task, variant)
        earlier = execution.earlier.get((task.key, variant))
        if earlier is not None and earlier["status"] in ("succeeded", "skipped"):
            return _accepted(execution, earlier)
        prior = approval_modes.prior_answers(execution, task.key, variant)
        if earlier is not None and (prior.question is not None or prior.failure is not None):
            result = Result(time.time(), 0.0, Record(), failure=prior.failure, question=prior.question)
            return NodeRun(earlier["id"], task.key, node, variant, result)
        rules = self.sweep.bound.workflow.nodes[node].rules
        fingerprint = self.sweep.fingerprint(node, variant)
        with self.sweep.permits.through(node):
            reserved = self._reserve(execution.id, node, first=earlier is None)
            held.append(reserved)
            started = rows.event(self.sweep, execution.id, "node_run.started", **about)
            appended = {"events": [started], "settled": reserved.begun()}
            if earlier is None:
                row = rows.node_run(self.sweep, execution, task, variant, cells, fingerprint)
                run_id, tried = row["id"], 0
                self.journal.record(execution.id, execution.token, node_run=row, appended=appended)
            else:  # its attempts failed, or died with their runner: they count, and more follow
                run_id, tried = earlier["id"], earlier["attempts"]
                change = (run_id, {"status": "running", "cells": cells})
                self.journal.record(execution.id, execution.token, node_run_change=change, appended=appended)
            listener = self._listener(execution, run_id, task, variant, fingerprint)
            with self._stalls.watching(listener) if self._stalls is not None else nullcontext():
                result, number, left = self._attempts(
                    execution, run_id, task, variant, alone, tried, listener, held, prior
                )
        if result.question is not None:
            return self._asks(execution, NodeRun(run_id, task.key, node, variant, result), left)
        failure = result.failure
        skipped = failure is not None and rules.on_error == "skip" and failure.kind != "rejected"
        status = "succeeded" if result.failure is None else "skipped" if skipped else "failed"
        data = {**about, "attempt": number, "duration_s": result.duration_s}
        severity = "info" if status == "succeeded" else "warning"
        if result.record.usd:
            data["usd"] = result.record.usd
        if result.failure is not None:
            data["error"] = str(result.failure)
        ended = rows.event(self.sweep, execution.id, f"node_run.{status}", severity, **data)
        self.journal.record(
            execution.id,
            execution.token,
            node_run_change=(run_id, rows.node_run_end(status, number, result, cells, fingerprint)),
            values=result.writes.values() if result.writes is not None else (),
            files=rows.files(self.sweep, result.files),
            appended={**left, "events": [*left["events"], ended]},
        )
        self.journal.flush(execution.id, force=rules.durable)
        self.sweep.progress.add(node_runs=int(status == "succeeded"))
        if failure is not None and not skipped:
            result.question = approval_modes.question_instead(self.sweep.bound, task.key, failure, number)
            result.failure = None if result.question is not None else failure
        return NodeRun(run_id, task.key, node, variant, result, skipped)

    def _asks(self, execution: Execution, run: NodeRun, left: dict[str, list[rows.Row]]) -> NodeRun:
        """Record a node run that waits for an answer; with the answer it continues as another attempt."""
        self.journal.record(execution.id, execution.token, appended=left)
        return run

    def _attempts(
        self,
        execution: Execution,
        run_id: str,
        of: NodeTask,
        variant: str,
        alone: bool,
        tried: int,
        listener: AttemptListener,
        held: list[Reserved],
        prior: approval_modes.PriorAnswers,
    ) -> tuple[Result, int, dict[str, list[rows.Row]]]:
        """Try until an attempt is accepted, is final, or was the last.

        Returns its result, its number and its rows, which are recorded with the end of the node run.
        """
        node, rules = of.node, self.sweep.bound.workflow.nodes[of.node].rules
        last = tried + 1 + rules.retries
        number, previous, reserved, full = tried, prior.previous, held[-1], 0
        while True:
            number += 1
            task = Task(
                node,
                variant,
                execution.state,
                execution.at.position,
                execution.case.view(),
                repeat=execution.repeat,
                attempt=number,
                failed=number - last + rules.retries,
                draws=prior.draws if number == tried + 1 else None,
                seed=self.sweep.bound.spec.seed,
                params=self.sweep.bound.params,
                previous=previous,
                timeout=self._time_left(execution, rules.timeout),
                workspace=listener.visit.workspace,
                allowed=self.sweep.disk.left,
                join=alone,
                answers=execution.dialogue.answers,
                interactive=self.sweep.interactive,
                mode=self.sweep.bound.spec.run.mode,
                nobody=mode_of(self.sweep.bound.spec, self.sweep.bound.workflow)[0] == "none",
                saved=listener.visit.saved,
                done=listener.visit.calls,
                fine=self._fine,
                execution=execution.id,
                token=execution.token,
                allowance=reserved.allowance,
                on_event=listener.on_event,
                number=of.number,
                key=of.key,
                asked=prior.asked,
            )
            listener.begin(number, reserved)
            point("node.starting")
            try:
                result = self._accepted_files(self.code.run(task))
            finally:
                listener.end()
            point("node.answered")
            failure, record = result.failure, result.record
            if failure is not None:  # its changes of files are dropped
                result.workspace = execution.at.workspace
                if not keeps_calls(failure.kind, self._fine):
                    listener.visit.calls = []
            killed = failure is not None and failure.kind == "killed"
            if killed:  # by itself, the machine or a limit: which one is unknown, so it uses up no retry
                last += 1
                execution.kills += 1
                self.journal.record(execution.id, execution.token, change={"kills": execution.kills})
            may = execution.kills < self.sweep.bound.spec.run.set_aside_after if killed else number < last
            again = failure is not None and not failure.final and may
            self.sweep.progress.add(usd=record.usd)
            left: dict[str, list[rows.Row]] = {
                "attempts": [{**rows.attempt(run_id, number, result, listener.fingerprint), "again": listener.begun}],
                "events": [],
                "settled": self.sweep.budgets.ended(node, reserved, record, accepted=failure is None),
            }
            if failure is not None and failure.kind == "disk":  # not the fault of the node, so it uses up no retry
                last, full = last + 1, full + 1
                self.journal.record(execution.id, execution.token, appended=left)
                self.sweep.room.wait(disk_words(failure), full - 1)
                reserved = self._reserve(execution.id, node, first=False)
                held.append(reserved)
                continue
            if failure is not None and reserved.is_overspent(failure.kind, record):
                self.journal.record(execution.id, execution.token, appended=left)
                self.journal.flush(execution.id, force=True)  # so that the reported spending includes this attempt
                self.sweep.budgets.stop_for(reserved, record)
            if not again:
                return result, number, left
            most = self.sweep.bound.spec.run.set_aside_after if killed else last
            data = {**rows.about(of, variant), "attempt": number, "of": most, "error": str(failure)}
            left["events"] = [rows.event(self.sweep, execution.id, "attempt.failed", "warning", **data)]
            self.journal.record(execution.id, execution.token, appended=left)
            previous = Previous(number, last, str(failure), _output(record), tuple(record.suggestions))
            self.sweep.stop.wait(rules.backoff.seconds(number - tried))
            reserved = self._reserve(execution.id, node, first=False)
            held.append(reserved)

    def _reserve(self, execution: str, node: str, *, first: bool) -> Reserved:
        """Reserve budget for an attempt; wait while the disk of the database is full. Raises Stopped."""
        for tries in count():
            try:
                return self.sweep.budgets.reserve(execution, node, first=first)
            except StoreError as error:
                if not is_full(error):
                    raise
                why = f"the disk of the database is full ({error}): make room, and it goes on"
                self.sweep.room.wait(why, tries, DATABASE_BLIND_S)
        raise AssertionError("unreachable: the loop ends by a result or an exception")

    def _listener(
        self, execution: Execution, run_id: str, task: NodeTask, variant: str, fingerprint: str
    ) -> AttemptListener:
        earlier = execution.earlier.get((task.key, variant))
        visit = load_visit(self.sweep.database, execution, task, variant, earlier, self._fine)
        return AttemptListener(self.sweep, self.journal, execution, run_id, task, variant, fingerprint, visit)

    @cached_property
    def _stalls(self) -> Stalls | None:
        limit = self.sweep.bound.spec.run.stall
        return None if limit is None else Stalls(limit)

    @property
    def _fine(self) -> bool:
        return self.sweep.bound.spec.run.checkpoints == "fine"

    def _accepted_files(self, result: Result) -> Result:
        """The result, turned into a failure if its files exceed the disk quota of the session."""
        try:
            self.sweep.disk.take(result.files)
        except StateError as error:
            result.writes, result.files, result.failure = None, (), Failure.of(error, final=True)
        return result

    def _time_left(self, execution: Execution, timeout: float | None) -> float | None:
        """Seconds that an attempt may take: the timeout of the node, or what is left of that of the cell."""
        whole = self.sweep.bound.spec.limits.cell_timeout
        if whole is None:
            return timeout
        left = max(0.001, whole - execution.at.totals.elapsed_s)
        return left if timeout is None else min(timeout, left)


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
