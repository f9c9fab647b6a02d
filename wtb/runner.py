"""The life of an execution, from its claim to its end.

An execution is a head on the tree of checkpoints, with the set of cells it stands for. It advances while all its
cells agree on the variant of every next node; where they differ it forks. Everything that happens goes to the
journal, which commits it in groups under the execution's lease; nothing else writes to the database here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from wtb import records
from wtb.engine import Failure, Joined, Value
from wtb.errors import StateError
from wtb.evaluation import EvaluationTask
from wtb.forking import Choices, groups, node_runs
from wtb.graph import Decision
from wtb.history import Checkpoint, CheckpointId, Totals, Writer
from wtb.ids import new_id
from wtb.journal import Journal, Lost
from wtb.limits import Stopped
from wtb.live import Execution, LiveSweep, NodeRunKey
from wtb.noderun import NodeRun, NodeRuns
from wtb.usercode import UserCode
from wtb.workspace import Workspaces


class Dispatcher(Protocol):
    """Who else can work: the local pool, or a queue of workers."""

    def offer(self, executions: Sequence[Execution]) -> None:
        """Have somebody run executions that are claimed already, sooner or later."""

    def together(self, jobs: Sequence[Callable[[], NodeRun]]) -> list[NodeRun]:
        """Run jobs side by side as far as somebody is free; their results in order."""


@dataclass(frozen=True)
class Step:
    """A step joined for one group of cells: the checkpoint it leads to, and what is new in it."""

    checkpoint: Checkpoint
    changed: Mapping[str, Value]
    decisions: Sequence[Decision]


class Runner:
    """Runs executions of one sweep. Threads share it; each call of `run` is for one execution."""

    def __init__(
        self,
        sweep: LiveSweep,
        code: UserCode,
        journal: Journal,
        workspaces: Workspaces,
        dispatcher: Dispatcher,
    ) -> None:
        self.sweep = sweep
        self.code = code
        self.journal = journal
        self.workspaces = workspaces
        self.dispatcher = dispatcher
        self.node_runs = NodeRuns(sweep, code, journal)

    def run(self, execution: Execution) -> None:
        """Advance a claimed execution until it completes, fails, is stopped, or loses its lease."""
        try:
            self._advance(execution)
        except Lost:
            return  # somebody else has it, and nothing that we did since then was written

    def _advance(self, claimed: Execution) -> None:
        execution: Execution | None = claimed
        if claimed.head is None:
            self._begin(claimed)
        while execution is not None:
            if self.sweep.stop.requested:
                self.give_back(execution)
                return
            nodes = execution.at.position.next
            if not nodes:
                self._complete(execution)
                return
            grouped = groups(nodes, execution.combinations, self.sweep.variant_of)
            if len(grouped) > 1 and len(nodes) == 1:
                execution = self._keep_one(self._fork(execution, nodes, grouped))
                continue
            try:
                ran = self._run_nodes(execution, nodes, grouped)
            except Stopped:
                self.give_back(execution)
                return
            execution = self._join(execution, nodes, grouped, ran)

    def give_back(self, execution: Execution) -> None:
        """Stop working on an execution; whoever claims it next goes on from its head."""
        self._record(execution, change=records.ended("pending", reason=self.sweep.stop.reason))

    def _begin(self, execution: Execution) -> None:
        """The root checkpoint: the case's input, and the entry nodes next."""
        case = execution.case
        made = Checkpoint(
            CheckpointId(new_id()),
            None,
            self.code.begin(),
            {name: value.digest for name, value in case.input.items()},
            workspace=case.workspace,
            created_at=time.time(),
        )
        execution.state, execution.head = dict(case.input), made
        self._record(
            execution,
            [("execution.started", {"case": case.id, "repeat": execution.repeat})],
            change={"head_id": made.id},
            checkpoints=[records.checkpoint(self.sweep, execution.id, made)],
        )

    def _fork(
        self, parent: Execution, nodes: Sequence[str], grouped: Mapping[Choices, Sequence[int]]
    ) -> list[Execution]:
        """One child a group, each at the parent's head. Nothing is copied: they refer to the same values."""
        children = [
            Execution(
                new_id(),
                1,
                parent.case,
                parent.repeat,
                members,
                parent.head,
                parent.state,
                parent.path,
                parent.earlier,
                parent.earlier_values,
            )
            for members in grouped.values()
        ]
        self._record(
            parent,
            [("execution.forked", {"children": len(children), "by": nodes})],
            change=records.ended("forked"),
            born=[records.born(self.sweep, parent, child) for child in children],
        )
        return children

    def _keep_one(self, executions: Sequence[Execution]) -> Execution | None:
        """Go on with the first; whoever is free takes the others, else they are done in turn."""
        if len(executions) > 1:
            self.dispatcher.offer(executions[1:])
        return executions[0] if executions else None

    def _run_nodes(
        self, execution: Execution, nodes: Sequence[str], grouped: Mapping[Choices, Sequence[int]]
    ) -> dict[NodeRunKey, NodeRun]:
        """Run each distinct (node, variant) of a step once, whatever the number of groups that need it."""
        distinct = node_runs(nodes, grouped)
        if len(distinct) == 1:
            ((key, cells),) = distinct.items()
            return {key: self.node_runs.run(execution, *key, cells, alone=True)}
        jobs = [partial(self.node_runs.run, execution, *key, n, False) for key, n in distinct.items()]
        return dict(zip(distinct, self.dispatcher.together(jobs), strict=True))

    def _join(
        self,
        execution: Execution,
        nodes: Sequence[str],
        grouped: Mapping[Choices, Sequence[int]],
        ran: Mapping[NodeRunKey, NodeRun],
    ) -> Execution | None:
        """Join the step for each group; a failed node run fails only the groups that use it."""
        joined = [
            self._joined(execution, [ran[pair] for pair in zip(nodes, choices, strict=True)]) for choices in grouped
        ]
        one = len(grouped) == 1
        following = [execution] if one else self._fork(execution, nodes, grouped)
        living = []
        for head, outcome in zip(following, joined, strict=True):
            if isinstance(outcome, Failure):
                self._fail(head, outcome)
            else:
                self._move(head, outcome)
                living.append(head)
        self.journal.settle(execution.id)
        return self._keep_one(living)

    def _joined(self, execution: Execution, ran: Sequence[NodeRun]) -> Step | Failure:
        """What a step comes to for one group of cells."""
        failed = next((run.failure for run in ran if run.failure is not None), None)
        if failed is not None:
            return failed
        outcome = ran[0].result.joined if len(ran) == 1 else None
        if outcome is None:
            writes = [(run.node, run.result.writes or {}) for run in ran]
            try:
                outcome = self.code.join(execution.state, execution.at.position, writes)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - reducers and branches are user code
                outcome = Failure.of(error)
        if isinstance(outcome, Failure):
            return outcome
        try:
            snapshots = {run.node: run.result.workspace for run in ran}
            workspace = self.workspaces.merge(execution.at.workspace, snapshots)
        except StateError as error:
            return Failure.of(error)
        return Step(self._checkpoint(execution, ran, outcome, workspace), outcome.changed, outcome.decisions)

    def _checkpoint(
        self, execution: Execution, ran: Sequence[NodeRun], joined: Joined, workspace: str | None
    ) -> Checkpoint:
        head, totals = execution.at, execution.at.totals
        accepted = [run.result for run in ran if not run.skipped]
        return Checkpoint(
            CheckpointId(new_id()),
            head.id,
            joined.position,
            {**head.state, **{name: value.digest for name, value in joined.changed.items()}},
            tuple(Writer(run.node, run.variant, run.id) for run in ran),
            workspace,
            Totals(
                totals.elapsed_s + max((result.duration_s for result in accepted), default=0.0),
                totals.usd + sum(result.record.usd for result in accepted),
                totals.tokens_in + sum(result.record.tokens_in for result in accepted),
                totals.tokens_out + sum(result.record.tokens_out for result in accepted),
                totals.node_runs + len(accepted),
            ),
            created_at=time.time(),
        )

    def _move(self, execution: Execution, step: Step) -> None:
        """Move a head to the checkpoint that a step leads to."""
        made = step.checkpoint
        execution.head = made
        execution.state = {**execution.state, **step.changed}
        execution.path += tuple(writer.node for writer in made.writers)
        execution.earlier, execution.earlier_values = {}, {}
        self._record(
            execution,
            [("checkpoint.created", {"checkpoint": made.id, "step": made.step, "next": made.position.next})],
            change={"head_id": made.id},
            values=step.changed.values(),
            checkpoints=[records.checkpoint(self.sweep, execution.id, made)],
            appended={"decisions": records.decisions(made.id, step.decisions)},
        )

    def _complete(self, execution: Execution) -> None:
        """Score the final state and give every cell its outcome, in one transaction with the scores."""
        case = execution.case
        made = self.code.score(
            EvaluationTask(
                case.id,
                case.tags,
                case.input,
                case.expected,
                execution.state,
                execution.path,
                execution.at.totals,
                execution.at.workspace,
            )
        )
        scores = {score.metric: score.value if score.error is None else score.error for score in made}
        self._finish(execution, "completed", "succeeded", {"scores": scores}, scores=made)

    def _fail(self, execution: Execution, failure: Failure) -> None:
        """Every cell of the execution has failed; a retry goes on from its head."""
        self._finish(execution, "failed", "failed", {"error": str(failure)}, failure=failure)

    def _finish(
        self,
        execution: Execution,
        status: str,
        cells: str,
        data: Mapping[str, Any],
        *,
        failure: Failure | None = None,
        scores: Sequence[Any] = (),
    ) -> None:
        said = {"case": execution.case.id, "repeat": execution.repeat, **data}
        each = [(f"cell.{cells}", {**said, "combination": number}) for number in execution.combinations]
        self._record(
            execution,
            [(f"execution.{status}", {"cells": len(each)}), *each],
            change=records.ended(status, failure=failure),
            outcomes=records.outcomes(self.sweep, execution, cells, failure),
            metrics=records.metrics(self.sweep, scores),
            appended={"scores": records.scores(self.sweep, execution, scores)},
        )
        self.journal.settle(execution.id)
        self.sweep.progress.add(**{cells: len(each)})

    def _record(
        self,
        execution: Execution,
        events: Iterable[tuple[str, Mapping[str, Any]]] = (),
        *,
        appended: Mapping[str, Iterable[records.Row]] | None = None,
        **rows: Any,
    ) -> None:
        said = [
            records.event(self.sweep, execution.id, kind, "error" if "failed" in kind else "info", **data)
            for kind, data in events
        ]
        self.journal.record(execution.id, execution.token, appended={**(appended or {}), "events": said}, **rows)
