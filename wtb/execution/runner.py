"""The life of an execution, from its claim to its end.

An execution is a head on the tree of checkpoints, with the set of cells it stands for. It advances while all its
cells agree on the variant of every next node; where they differ it forks. Everything that happens goes to the
journal, which commits it in groups under the execution's lease; nothing else writes to the database here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Protocol, TypeVar

from wtb.authoring.evaluation.evaluators import EvaluationTask
from wtb.core.failures import Failure, disk_words, is_disk_fault
from wtb.core.ids import new_id
from wtb.core.questions import Hold, Said
from wtb.core.stop import Stopped
from wtb.core.tree.checkpoints import shown
from wtb.core.tree.grouping import Choices, Chosen, chosen, node_runs
from wtb.execution import rows as records
from wtb.execution.dedupe import SHARED, is_taken_up
from wtb.execution.engine.executor import UserCode
from wtb.execution.execution import Execution
from wtb.execution.join import Step, begin_case, join_step, waiting_as_one
from wtb.execution.journal import Journal, Lost
from wtb.execution.node_run import NodeRun, NodeRuns
from wtb.execution.state import LiveSweep
from wtb.store.files.workspaces import Workspaces

T = TypeVar("T")


class Dispatcher(Protocol):
    """Who else can work: the local pool, or workers on queues."""

    def serves(self, queue: str | None) -> bool:
        """Whether executions of this queue are for us."""

    def offer(self, executions: Sequence[Execution]) -> None:
        """Have somebody run executions that are claimed already, sooner or later."""

    def returned(self, execution: Execution) -> None:
        """Somebody has to claim this execution: what is left of it goes on from its head."""

    def together(self, execution: Execution, jobs: Sequence[Callable[[], NodeRun]]) -> list[NodeRun]:
        """Run jobs of an execution side by side as far as somebody is free; their results in order."""


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
        except OSError as error:
            if not is_disk_fault(error):
                raise
            self.sweep.stop.request(disk_words(error))

    def _advance(self, claimed: Execution) -> None:
        execution: Execution | None = claimed
        try:
            if claimed.head is None and not self._begin(claimed):
                return
            while execution is not None:
                claimed.line.append(execution.id)
                self.sweep.stop.check()
                execution = self._step(execution)
        except Stopped:
            assert execution is not None, "only work on an execution is stopped"
            self.give_back(execution)

    def _step(self, execution: Execution) -> Execution | None:
        """Hold the execution up, end it, fork it, or run its next nodes. Returns what to go on with. Raises Stopped."""
        if hold := self.sweep.holds.before_step(execution):
            self._hold(execution, hold)
            return None
        nodes, tasks = execution.at.position.next, execution.at.position.tasks
        if not nodes:
            self._complete(execution)
            return None
        queue = self.sweep.queue_of(nodes)
        if queue != execution.queue:
            execution.queue = queue
            if not self.dispatcher.serves(queue):
                self.give_back(execution, f"its next node is for the queue {queue or 'default'!r}")
                return None
        grouped = self.sweep.grouped(execution, nodes)
        if len(grouped) > 1 and len(nodes) == 1:
            return self._keep_one(self._fork(execution, nodes, list(grouped.values())))
        distinct = node_runs(tasks, grouped)
        if not is_taken_up(self.sweep, self.journal, execution, distinct):
            self.give_back(execution, SHARED, at_once=True)
            return None
        return self._join(execution, grouped, self._run_tasks(execution, distinct))

    def give_back(self, execution: Execution, reason: str | None = None, *, at_once: bool = False) -> None:
        """Stop working on an execution; whoever claims it next goes on from its head. at_once: they can already."""
        execution.status = "pending"
        change = records.ended("pending", reason=reason or self.sweep.stop.reason)
        self._record(execution, change={**change, "queue": execution.queue})
        if at_once:
            self.journal.settle(execution.id, force=True)
        self.dispatcher.returned(execution)

    def let_go(self, execution: Execution) -> None:
        """Give a person what was asked of an execution that waits for a slot; nothing where it was taken away."""
        if wanted := self.sweep.holds.wanted(execution):
            with suppress(Lost):
                self._hold(execution, Hold(wanted["to"], wanted["reason"], by=wanted["by"]))

    def _hold(self, execution: Execution, hold: Hold) -> None:
        """Let go of an execution that waits for a person; with the answer, or by `wtb resume`, it becomes pending."""
        said = {"reason": hold.reason, "by": hold.by, **hold.data}
        if hold.status == "cancelled":
            self._finish(execution, "cancelled", "cancelled", said)
            return
        execution.status = hold.status
        self._record(
            execution,
            [(f"execution.{hold.status}", said)],
            change={**records.ended(hold.status, reason=hold.reason), "queue": execution.queue},
            held=records.held(self.sweep, execution, "waiting" if hold.status == "waiting" else "pending"),
            questions=[records.question(self.sweep, execution.at.id, asked) for asked in hold.questions],
        )
        self.journal.settle(execution.id)

    def _begin(self, execution: Execution) -> bool:
        """Move to the root checkpoint; whether there is one. A retry of what failed here begins anew."""
        case = execution.case
        begun = begin_case(self.code, self.sweep, execution)
        if isinstance(begun, Failure):
            self._fail(execution, begun)
            return False
        execution.state = case.input
        self._move(execution, begun, ("execution.started", {"case": case.id, "repeat": execution.repeat}))
        return True

    def _fork(self, parent: Execution, nodes: Sequence[str], grouped: Sequence[Sequence[int]]) -> list[Execution]:
        """One child a group of cells, each at the parent's head. Nothing is copied: they refer to the same values."""
        children = [parent.child(new_id(), cells) for cells in grouped]
        parent.status, parent.children = "forked", len(children)
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

    def _run_tasks(self, execution: Execution, distinct: Mapping[Chosen, int]) -> dict[Chosen, NodeRun]:
        """Run each distinct (task, variant) of a step once, whatever the number of groups that need it."""
        if len(distinct) == 1:
            ((key, cells),) = distinct.items()
            return {key: self.node_runs.run(execution, *key, cells, alone=True)}
        jobs = [partial(self.node_runs.run, execution, *key, n, False) for key, n in distinct.items()]
        return dict(zip(distinct, self.dispatcher.together(execution, jobs), strict=True))

    def _join(
        self,
        execution: Execution,
        grouped: Mapping[Choices, Sequence[int]],
        ran: Mapping[Chosen, NodeRun],
    ) -> Execution | None:
        """Join the step for each group; a failed node run fails only the groups that use it."""
        position = execution.at.position
        used = [[ran[one] for one in chosen(position.tasks, choices)] for choices in grouped]
        joined = [
            self._with_room(partial(join_step, self.code, self.workspaces, self.sweep, execution, runs))
            for runs in used
        ]
        settled = waiting_as_one(grouped, joined)
        cells = [members for members, _ in settled]
        following = [execution] if len(settled) == 1 else self._fork(execution, position.next, cells)
        living = []
        for head, (_, outcome) in zip(following, settled, strict=True):
            if isinstance(outcome, Failure):
                self._fail(head, outcome)
            elif isinstance(outcome, Hold):
                self._hold(head, outcome)
            else:
                self._step_to(head, outcome)
                living.append(head)
        self.journal.settle(execution.id)
        return self._keep_one(living)

    def _with_room(self, work: Callable[[], T]) -> T:
        """Do something that needs room on a disk; wait for that where there is none. Raises Stopped."""
        for tries in count():
            try:
                return work()
            except OSError as error:
                if not is_disk_fault(error):
                    raise
                self.sweep.room.wait(disk_words(error), tries)
        raise AssertionError("it is tried until it is done, or stopped")

    def _step_to(self, execution: Execution, step: Step) -> None:
        made = step.checkpoint
        said = {"checkpoint": made.id, "step": made.step, "next": made.position.next}
        self._move(execution, step, ("checkpoint.created", said))

    def _move(self, execution: Execution, step: Step, told: tuple[str, Mapping[str, Any]]) -> None:
        """Move a head to the checkpoint that a step leads to. told: what the event log says of it."""
        made, joined = step.checkpoint, step.joined
        execution.head = made
        execution.state = joined.after(execution.state, joined.changed)
        execution.path += tuple(writer.node for writer in made.writers)
        execution.earlier, execution.earlier_values = {}, {}
        execution.said, execution.saved, execution.passed = Said(), {}, None
        self._record(
            execution,
            [told],
            change={"head_id": made.id},
            values=joined.changed.values(),
            files=records.files(self.sweep, step.files),
            checkpoints=[records.checkpoint(self.sweep, execution.id, made)],
            appended={"decisions": records.decisions(made.id, joined.decisions)},
        )

    def _complete(self, execution: Execution) -> None:
        """Score the final state and give every cell its outcome, in one transaction with the scores."""
        case = execution.case
        state, head = shown(execution.state), execution.at
        about = case.id, case.tags, case.input, case.expected
        task = EvaluationTask(*about, state, execution.path, head.totals, head.workspace)
        made = self._with_room(partial(self.code.score, task))
        if waiting := head.position.arrived:
            self._record(execution, [("join.unmet", {"joins": dict(waiting)})], severity="warning")
        scores = {score.metric: score.value if score.error is None else score.error for score in made}
        self._finish(execution, "completed", "succeeded", {"scores": scores}, scores=made)

    def _fail(self, execution: Execution, failure: Failure) -> None:
        """No cell of the execution gets further, or may kill another process; a retry goes on from its head."""
        cells = "set_aside" if failure.kind == "killed" else "failed"
        if failure.kind == "rejected":
            said = {"reason": failure.message, "error": str(failure)}
            self._finish(execution, "cancelled", "cancelled", said, failure=failure)
            return
        self._finish(execution, "failed", cells, {"error": str(failure)}, failure=failure)

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
        execution.status = status
        if failure is not None:
            execution.failures.append(f"{execution.id} ({execution.case.id}): {failure}")
        said = {"case": execution.case.id, "repeat": execution.repeat, **data}
        about = {"cells": len(execution.combinations)} if execution.combinations else said
        each = [(f"cell.{cells}", {**said, "combination": number}) for number in execution.combinations]
        self._record(
            execution,
            [(f"execution.{status}", about), *each],
            severity="error" if failure else "info",
            change=records.ended(status, failure=failure, reason=data.get("reason")),
            outcomes=records.outcomes(self.sweep, execution, cells, failure),
            metrics=records.metrics(self.sweep, scores),
            appended={"scores": records.scores(self.sweep, execution, scores)},
        )
        self.journal.settle(execution.id)
        self.sweep.progress.add(**{"succeeded" if cells == "succeeded" else "failed": len(each)})

    def _record(
        self,
        execution: Execution,
        events: Iterable[tuple[str, Mapping[str, Any]]] = (),
        *,
        severity: str = "info",
        appended: Mapping[str, Iterable[records.Row]] | None = None,
        **rows: Any,
    ) -> None:
        said = [records.event(self.sweep, execution.id, kind, severity, **data) for kind, data in events]
        self.journal.record(execution.id, execution.token, appended={**(appended or {}), "events": said}, **rows)
