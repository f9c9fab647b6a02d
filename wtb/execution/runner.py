"""The life of an execution, from its claim to its end.

An execution is a head on the tree of checkpoints, with the set of cells it stands for. It advances while all its
cells agree on the variant of every next node; where they differ it forks. Everything that happens goes to the
journal, which commits it in groups under the execution's lease; nothing else writes to the database here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Protocol, TypeVar

from wtb.authoring.evaluation.evaluators import EvaluationTask, scores_of_failed
from wtb.authoring.graph import queue_of
from wtb.core.failures import Failure, disk_words, is_disk_fault
from wtb.core.ids import new_id
from wtb.core.questions import Hold
from wtb.core.scoring.measure import Score
from wtb.core.stop import Stopped
from wtb.core.tree.checkpoints import NodeTask, visible_state
from wtb.core.tree.run_order import Choices, TaskVariant, node_runs, task_variants
from wtb.core.values import Json
from wtb.core.work_record import named
from wtb.execution import holds
from wtb.execution import rows as records
from wtb.execution.engine.executor import CodeExecutor
from wtb.execution.execution import NOTHING, Execution, NodeRun
from wtb.execution.join import Step, begin_case, join_step, waiting_as_one
from wtb.execution.journal import Journal, Lost
from wtb.execution.node_run import NodeRuns
from wtb.execution.rows import Happened
from wtb.execution.state import RunningSweep
from wtb.execution.together import PlannedRun, Together, run_forked
from wtb.store.access.reservations import Settlement
from wtb.store.control.extension import STOPPED
from wtb.store.control.stopped import stopped_numbers
from wtb.store.files.workspaces import Workspaces
from wtb.store.runs.batch import Appended
from wtb.store.runs.node_progress import transfer_node_runs
from wtb.store.tables.node_runs import NodeRunRow

PATIENCE_S = 1.0  # for another execution to leave a shared node run
LOOK_S = 0.05
SHARED = "another execution was in a node run that it shares"


def transfer_started_runs(
    sweep: RunningSweep, journal: Journal, execution: Execution, tasks: Iterable[TaskVariant]
) -> bool:
    """Transfer the started node runs of a step to an execution. Returns False if another execution is in one of them.

    Waits a moment for the other one to leave. If it does not, what this execution was loaded with is out of date, or
    soon will be, so it has to be claimed again.

    Raises Stopped; Lost if the lease is gone.
    """
    started_rows = _started_rows(execution, tasks)
    if not started_rows:
        return True
    # A new fork may exist in the buffer only, and `transfer_node_runs` reads the database.
    journal.flush(execution.id, force=True)
    ends = time.monotonic() + PATIENCE_S
    while (
        outcome := transfer_node_runs(sweep.database, execution.id, execution.token, execution.at.id, started_rows)
    ) == "busy":
        if time.monotonic() > ends:
            break
        sweep.limits.stop.wait(LOOK_S)
    if outcome == "lost":
        raise Lost(f"execution {execution.id} was reclaimed")
    return outcome == "ours"


def _started_rows(execution: Execution, tasks: Iterable[TaskVariant]) -> dict[str, NodeRunRow]:
    """Return the rows, by id, of node runs that further attempts would continue."""
    rows = {}
    for task, variant in tasks:
        earlier = execution.loaded.earlier.get((task.key, variant))
        if earlier is None or earlier.status in ("succeeded", "skipped"):
            continue
        prior = holds.prior_answers(execution, task.key, variant)
        if prior.question is None and prior.failure is None:
            rows[earlier.id] = earlier
    return rows


T = TypeVar("T")


class Dispatcher(Protocol):
    """Distributes work over slots: those of the local pool, or of workers on queues."""

    def serves(self, queue: str | None) -> bool:
        """Return whether this process takes executions of a queue."""

    def dispatch(self, executions: Sequence[Execution]) -> None:
        """Run executions, which are claimed already, as slots become free."""

    def requeued(self, execution: Execution) -> None:
        """Called after an execution was released; the next claim continues from its head."""

    def passes_on(self, execution: Execution) -> bool:
        """Hand an execution to another runner of this process, if one should continue it. Returns whether it did."""

    def run_parallel(self, execution: Execution, jobs: Sequence[Callable[[], NodeRun]]) -> list[NodeRun]:
        """Run jobs of an execution in parallel, as far as slots are free. Returns their results in order."""


class Runner:
    """Runs executions of one sweep. Threads share it; each call of `run` is for one execution."""

    def __init__(
        self,
        sweep: RunningSweep,
        code: CodeExecutor,
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
        self._metrics: set[str] = set()  # that are recorded
        self._names_queues = any(node.rules.queue is not None for node in sweep.bound.workflow.nodes.values())

    def run(self, execution: Execution) -> None:
        """Advance a claimed execution until it completes, fails, is stopped, or loses its lease."""
        try:
            with self.journal.slot():
                self._advance(execution)
        except Lost:
            return  # another runner has claimed it, and nothing that this one did since then was written
        except OSError as error:
            if not is_disk_fault(error):
                raise
            self.sweep.limits.stop.request(disk_words(error))

    def _advance(self, claimed: Execution) -> None:
        """Take steps until the execution has ended, forked, paused or been stopped."""
        execution: Execution | None = claimed
        try:
            if claimed.head is None and not self._begin(claimed):
                return
            while execution is not None:
                claimed.line.append(execution.id)
                self.sweep.limits.stop.check()
                execution = self._step(execution)
        except Stopped:
            assert execution is not None, "Stopped is raised only by work on an execution"
            self.release(execution)

    def _step(self, execution: Execution) -> Execution | None:
        """Pause, end or fork the execution, or run its next nodes. Returns the one to continue with. Raises Stopped."""
        if self.dispatcher.passes_on(execution):
            return None
        if self.sweep.combinations.has_stopped(execution) and not self._drop_stopped(execution):
            self._hold(execution, Hold("cancelled", STOPPED))
            return None
        # Before an execution without next nodes completes: people may have to approve the output of the last node.
        if hold := self.sweep.holds.before_step(execution):
            self._hold(execution, hold)
            return None
        position = execution.at.position
        nodes = position.next
        if not nodes:
            self._complete(execution)
            return None
        if not self._enter_queue(execution, nodes):
            return None
        if execution.choices is not None and (missing := self.sweep.combinations.lacks(execution.choices, nodes)):
            self._fail(execution, Failure("error", "InputError", f"the code has no {', '.join(missing)} any more"))
            return None
        grouped = self.sweep.combinations.grouped(execution, nodes)
        # A step of several nodes does not fork yet: groups share the node runs on which they agree, and fork in
        # `_join`.
        if len(grouped) > 1 and len(nodes) == 1:
            children = self._fork(execution, list(grouped.values()))
            if len(position.tasks) == 1:
                children = run_forked(self.node_runs, children, grouped, self.dispatcher.dispatch)
            return self._keep_one(children)
        distinct = node_runs(position.tasks, grouped)
        if execution.loaded.earlier and not transfer_started_runs(self.sweep, self.journal, execution, distinct):
            self.release(execution, SHARED, at_once=True)
            return None
        return self._join(execution, grouped, self._run_tasks(execution, distinct))

    def _drop_stopped(self, execution: Execution) -> bool:
        """Remove stopped combinations from an execution. Returns whether any are left."""
        combinations = self.sweep.combinations
        # Read again: what this process has in memory may be a second old, and stopped combinations can be started
        # again.
        combinations.stopped = stopped_numbers(self.sweep.database, self.sweep.ids.id)
        execution.combinations = [number for number in execution.combinations if number not in combinations.stopped]
        return bool(execution.combinations)

    def _enter_queue(self, execution: Execution, nodes: Sequence[str]) -> bool:
        """Move an execution to the queue of its next nodes. Returns False if this process does not serve that queue."""
        queue = queue_of(self.sweep.bound.workflow, nodes) if self._names_queues else None
        if queue == execution.queue:
            return True
        execution.queue = queue
        if self.dispatcher.serves(queue):
            return True
        self.release(execution, f"its next node is for the queue {queue or 'default'!r}")
        return False

    def release(self, execution: Execution, reason: str | None = None, *, at_once: bool = False) -> None:
        """Release an execution as pending; the next claim continues from its head.

        Args:
            execution: The execution.
            reason: The reason that people see; without one, that of the requested stop.
            at_once: Whether to wait for the commit, so that the execution can be claimed when this returns.
        """
        execution.status = "pending"
        change = records.ended("pending", reason=reason or self.sweep.limits.stop.reason)
        self._record(execution, change={**change, "queue": execution.queue})
        if at_once:
            self.journal.flush(execution.id, force=True)
        self.dispatcher.requeued(execution)

    def release_to_user(self, execution: Execution) -> None:
        """Pause or cancel an execution that waits for a slot, if a person requested that and the lease still holds."""
        if request := self.sweep.holds.requested(execution):
            with suppress(Lost):
                self._hold(execution, request)

    def _hold(self, execution: Execution, hold: Hold) -> None:
        """Release an execution that waits for a person. An answer, or `wtb resume`, makes it pending again."""
        details = {"reason": hold.reason, "by": hold.by, **hold.data}
        if hold.status == "cancelled":
            self._finish(execution, "cancelled", "cancelled", details)
            return
        execution.status = hold.status
        if hold.status == "waiting":
            execution.record.count_waiting()
        self._record(
            execution,
            [Happened(f"execution.{hold.status}", details)],
            change={**records.ended(hold.status, reason=hold.reason), "queue": execution.queue},
            held=records.cell_changes(self.sweep.ids, execution, "waiting" if hold.status == "waiting" else "pending"),
            questions=[records.question(self.sweep.ids, execution.at.id, question) for question in hold.questions],
        )

    def _begin(self, execution: Execution) -> bool:
        """Move to the root checkpoint. Returns False if the case failed to start; a retry then starts from scratch."""
        case = execution.case
        step = begin_case(self.code, self.sweep, execution)
        if isinstance(step, Failure):
            self._fail(execution, step)
            return False
        execution.state = case.input
        started = Happened("execution.started", {"case": case.id, "repeat": execution.repeat})
        self._move(execution, step, started, *records.decided(step.checkpoint.id, step.joined.decisions))
        return True

    def _fork(self, parent: Execution, grouped: Sequence[Sequence[int]]) -> list[Execution]:
        """Create one child per group of cells, each at the parent's head. Values are shared, not copied."""
        children = [parent.child(new_id(), cells) for cells in grouped]
        parent.status = "forked"
        self._record(
            parent,
            change=records.forked(len(children)),
            born=[records.born(self.sweep.ids, parent, child) for child in children],
        )
        return children

    def _keep_one(self, executions: Sequence[Execution]) -> Execution | None:
        """Return the first to continue with, and dispatch the others."""
        if len(executions) > 1:
            self.dispatcher.dispatch(executions[1:])
        return executions[0] if executions else None

    def _run_tasks(self, execution: Execution, distinct: Mapping[TaskVariant, int]) -> dict[TaskVariant, NodeRun]:
        """Run each distinct (task, variant) of a step once, however many groups need it."""
        if len(distinct) == 1:
            ((key, cells),) = distinct.items()
            return {key: self.node_runs.run(execution, *key, cells, alone=True)}
        quick = self.node_runs.goes_together
        quick_runs = [PlannedRun(execution, *key, n) for key, n in distinct.items() if quick(execution, *key)]
        together = Together(self.node_runs, quick_runs, alone=False)
        jobs: list[Callable[[], NodeRun]] = [partial(self._run_job, execution, *key, n) for key, n in distinct.items()]
        if together.executions:  # the others wait for it
            jobs[0] = together.before(jobs[0])
        with self.journal.idle():
            return dict(zip(distinct, self.dispatcher.run_parallel(execution, jobs), strict=True))

    def _run_job(self, execution: Execution, task: NodeTask, variant: str, cells: int) -> NodeRun:
        """Run one of several tasks of a step, on any slot."""
        with self.journal.slot():
            return self.node_runs.run(execution, task, variant, cells, alone=False)

    def _join(
        self,
        execution: Execution,
        grouped: Mapping[Choices, Sequence[int]],
        ran: Mapping[TaskVariant, NodeRun],
    ) -> Execution | None:
        """Join the step for each group; a failed node run fails only the groups that use it."""
        position = execution.at.position
        tasks, joined = position.tasks, []
        for choices in grouped:
            runs = [ran[task_variant] for task_variant in task_variants(tasks, choices)]
            joined.append(self._with_room(partial(join_step, self.code, self.workspaces, self.sweep, execution, runs)))
        # All groups are joined before any outcome is recorded, so that one fork covers them.
        outcomes = waiting_as_one(grouped, joined)
        following = [execution]
        if len(outcomes) > 1:
            following = self._fork(execution, [members for members, _ in outcomes])
        living = []
        for head, (_, outcome) in zip(following, outcomes, strict=True):
            if isinstance(outcome, Failure):
                self._fail(head, outcome)
            elif isinstance(outcome, Hold):
                self._hold(head, outcome)
            else:
                self._move(head, outcome)
                living.append(head)
        return self._keep_one(living) if len(living) != 1 else living[0]

    def _with_room(self, work: Callable[[], T]) -> T:
        """Call `work`, and again whenever there is room on the disk after it was full. Raises Stopped."""
        for tries in count():
            try:
                return work()
            except OSError as error:
                if not is_disk_fault(error):
                    raise
                self.sweep.limits.room.wait(disk_words(error), tries)
        raise AssertionError("unreachable: the loop ends by a result or an exception")

    def _move(self, execution: Execution, step: Step, *events: Happened) -> None:
        """Move the head to the checkpoint that a step created. Without `events`, the log derives its creation."""
        checkpoint, joined = step.checkpoint, step.joined
        execution.head = checkpoint
        execution.state = joined.after(execution.state, joined.changed)
        execution.path += tuple([writer.node for writer in checkpoint.writers])
        # Only a node that has ended clears the suspicion. The root checkpoint has no writers, so it does not.
        execution.suspect = execution.suspect and not checkpoint.writers
        execution.loaded, execution.passed = NOTHING, None
        self._record(
            execution,
            events,
            change={"head_id": checkpoint.id},
            values=joined.changed.values(),
            files=records.files(self.sweep.ids, step.files) if step.files else (),
            checkpoints=[
                records.checkpoint(self.sweep.ids, execution.id, checkpoint, None if events else joined.decisions)
            ],
            appended={"decisions": records.decisions(checkpoint.id, joined.decisions)} if joined.decisions else {},
        )

    def _complete(self, execution: Execution) -> None:
        """Score the final state and give every cell its outcome, in one transaction with the scores."""
        # With `durability: sync`, the last node is committed before evaluators run, which may take long or call a
        # model.
        if self.sweep.bound.evaluators:
            self.journal.flush(execution.id)
        case = execution.case
        state, head = visible_state(execution.state), execution.at
        about = case.id, case.tags, case.input, case.expected
        task = EvaluationTask(*about, state, execution.path, head.totals, head.workspace)
        with self.sweep.limits.budgets.judging(execution.id) as settle:
            scores = self._with_room(partial(self.code.score, task))
            self._end_scored(execution, scores, settle(scores))

    def _end_scored(
        self, execution: Execution, cell_scores: Sequence[Score], settlements: Sequence[Settlement]
    ) -> None:
        if waiting := execution.at.position.arrived:
            joins: dict[str, Json] = {name: [*sources] for name, sources in waiting.items()}
            self._record(execution, [Happened("join.unmet", {"joins": joins})], severity="warning")
        scores: dict[str, Json] = {
            score.metric: score.value if score.error is None else score.error for score in cell_scores
        }
        self._finish(
            execution, "completed", "succeeded", {"scores": scores}, scores=cell_scores, settlements=settlements
        )

    def _fail(self, execution: Execution, failure: Failure) -> None:
        """Mark the execution and its cells as failed. A retry resumes from the head."""
        cells = "set_aside" if failure.kind == "killed" else "failed"
        if failure.kind == "rejected":
            details = {"reason": failure.message, "error": str(failure)}
            self._finish(execution, "cancelled", "cancelled", details, failure=failure)
            return
        scores = scores_of_failed(self.sweep.bound.evaluators, execution.case.expected)
        self._finish(execution, "failed", cells, {"error": str(failure)}, failure=failure, scores=scores)

    def _finish(
        self,
        execution: Execution,
        status: str,
        cells: str,
        details: Mapping[str, Json],
        *,
        failure: Failure | None = None,
        scores: Sequence[Any] = (),
        settlements: Sequence[Settlement] = (),
    ) -> None:
        """Record the outcome of an execution and of its cells, with their scores."""
        # A combination that was stopped while the last node ran gets no outcome from this execution.
        if self.sweep.combinations.has_stopped(execution):
            self._drop_stopped(execution)
        execution.status = status
        self._count_outcome(execution, cells, failure)
        count = len(execution.combinations)
        is_derived = status == "completed" and count > 0  # the log derives the events from the row of the execution
        reason = str(details["reason"]) if "reason" in details else None
        self._record(
            execution,
            [] if is_derived else _end_events(execution, status, cells, details, failure),
            severity="error" if failure else "info",
            change=records.ended(status, failure=failure, reason=reason, cells=count if is_derived else None),
            outcomes=records.outcomes(self.sweep.ids, execution, cells, failure),
            metrics=records.metrics(self.sweep.ids, scores, self._metrics),
            appended={"scores": records.scores(self.sweep.ids, execution, scores), "settled": settlements},
        )
        self.sweep.progress.add(**{"succeeded" if cells == "succeeded" else "failed": count})

    def _count_outcome(self, execution: Execution, cells: str, failure: Failure | None) -> None:
        """Count the cells of an execution in the task that it runs in."""
        name = named(execution.case.id, self.sweep.combinations.agreed(execution)) if failure is not None else ""
        execution.record.count_outcome(cells, len(execution.combinations), failure, name)

    def _record(
        self,
        execution: Execution,
        events: Iterable[Happened] = (),
        *,
        severity: str = "info",
        appended: Appended | None = None,
        **rows: Any,
    ) -> None:
        """Buffer what an execution did with its events, as one unit."""
        logged = [records.event(self.sweep.ids, execution.id, kind, severity, **details) for kind, details in events]
        self.journal.record(
            execution.id, execution.token, appended={**(appended or Appended()), "events": logged}, **rows
        )


def _end_events(
    execution: Execution, status: str, cells: str, details: Mapping[str, Json], failure: Failure | None
) -> list[Happened]:
    """Return the events of an execution that has ended, and of each of its cells."""
    cell = {"case": execution.case.id, "repeat": execution.repeat, **details}
    end = Happened(f"execution.{status}", records.ending(execution, cell, failure))
    return [end, *(Happened(f"cell.{cells}", {**cell, "combination": number}) for number in execution.combinations)]
