"""Joining a step: from the results of its nodes to the next checkpoint, for one group of cells."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from wtb.core.errors import StateError, StoreError
from wtb.core.failures import Failure, is_disk_fault
from wtb.core.frozen import frozen
from wtb.core.ids import new_id
from wtb.core.questions import Hold
from wtb.core.tree.checkpoints import Checkpoint, CheckpointId, Totals, Writer
from wtb.core.values import Values
from wtb.execution.engine.executor import CodeExecutor
from wtb.execution.engine.protocol import Joined
from wtb.execution.execution import Execution, NodeRun
from wtb.execution.holds import distinct
from wtb.execution.state import RunningSweep
from wtb.store.files.workspaces import Workspaces


@frozen
class Step:
    """A beginning, or a step joined for one group of cells: its checkpoint, and the new values in it.

    Attributes:
        files: (digest, bytes) of the files that merging has added.
    """

    checkpoint: Checkpoint
    joined: Joined
    files: Sequence[tuple[str, int]] = ()


def begin_case(code: CodeExecutor, sweep: RunningSweep, execution: Execution) -> Step | Failure:
    """Make the root checkpoint of an execution from the input of its case."""
    case = execution.case
    joined = code.begin(case.input, sweep.root(execution))
    if isinstance(joined, Failure):
        return joined
    state = joined.after(_digests(case.input), _digests(joined.changed))
    checkpoint = Checkpoint(
        CheckpointId(new_id()), None, joined.position, state, workspace=case.workspace, created_at=time.time()
    )
    return Step(checkpoint, joined)


def join_step(
    code: CodeExecutor, workspaces: Workspaces, sweep: RunningSweep, execution: Execution, ran: Sequence[NodeRun]
) -> Step | Failure | Hold:
    """Join the node runs that one group of cells uses. A failure of any of them is the failure of the group.

    If any of them has a question for a person, the group waits for the answers.
    """
    head = execution.at
    questions, changed_files = [], False
    for run in ran:
        # A failure comes before questions: nobody should answer one for a step that has failed.
        if run.failure is not None:
            return run.failure
        if run.result.question is not None:
            questions.append(run.result.question)
        changed_files |= run.result.workspace != head.workspace
    if questions:
        return Hold("waiting", "; ".join(question.text for question in questions)[:1000], questions)
    joined = ran[0].result.joined if len(ran) == 1 else None  # a node alone in its step was joined at once
    if joined is None:
        writes = [(run.task, run.result.writes or {}) for run in ran]
        joined = code.join(execution.state, head.position, writes, sweep.root(execution))
    if isinstance(joined, Failure):
        return joined
    # Most steps change no files, and merging has to read the snapshots.
    if not changed_files:
        return Step(_checkpoint(head, ran, joined, head.workspace), joined)
    try:
        merged = workspaces.merge(head.workspace, {run.task: run.result.workspace for run in ran})
    except (StateError, StoreError) as error:
        # The caller waits for room and joins again. Any other error is a conflict between the files of the nodes.
        if is_disk_fault(error):
            raise
        return Failure.of(error)
    return Step(_checkpoint(head, ran, joined, merged.digest), joined, merged.new)


def _checkpoint(head: Checkpoint, ran: Sequence[NodeRun], joined: Joined, workspace: str | None) -> Checkpoint:
    """Make the checkpoint after a step."""
    return Checkpoint(
        CheckpointId(new_id()),
        head.id,
        joined.position,
        joined.after(head.state, _digests(joined.changed)),
        tuple([Writer(run.node, run.variant, run.id) for run in ran]),
        workspace,
        _totals(head.totals, ran),
        created_at=time.time(),
    )


def _totals(before: Totals, ran: Sequence[NodeRun]) -> Totals:
    """Sum up the totals after a step: accepted attempts count, and the time is that of the longest."""
    longest_s, usd, tokens_in, tokens_out, accepted = 0.0, 0.0, 0, 0, 0
    for run in ran:
        if not run.skipped:
            record = run.result.record
            longest_s = max(longest_s, run.result.duration_s)
            usd, tokens_in, tokens_out = usd + record.usd, tokens_in + record.tokens_in, tokens_out + record.tokens_out
            accepted += 1
    return Totals(
        before.elapsed_s + longest_s,
        before.usd + usd,
        before.tokens_in + tokens_in,
        before.tokens_out + tokens_out,
        before.node_runs + accepted,
    )


def _digests(values: Values) -> dict[str, str]:
    return {name: value.digest for name, value in values.items()}


def waiting_as_one(
    grouped: Mapping[tuple[str, ...], Sequence[int]], joined: Sequence[Step | Failure | Hold]
) -> list[tuple[Sequence[int], Step | Failure | Hold]]:
    """Pair groups with their outcomes, with all groups that wait as one.

    A question of a node run that several groups share is thus answered once, and the node run is repeated once.
    """
    outcomes = list(zip(grouped.values(), joined, strict=True))
    waiting = [(cells, outcome) for cells, outcome in outcomes if isinstance(outcome, Hold)]
    if len(waiting) < 2:
        return outcomes
    questions = distinct(question for _, hold in waiting for question in hold.questions)
    hold = Hold("waiting", "; ".join(question.text for question in questions)[:1000], questions)
    together = sorted(number for cells, _ in waiting for number in cells)
    return [pair for pair in outcomes if not isinstance(pair[1], Hold)] + [(together, hold)]
