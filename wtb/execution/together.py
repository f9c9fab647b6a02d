"""Quick node runs that start from one checkpoint and travel to a node process in one message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from wtb.core.errors import WTBError
from wtb.core.frozen import frozen
from wtb.core.tree.checkpoints import NodeTask
from wtb.core.tree.run_order import Choices
from wtb.execution.engine.protocol import Result
from wtb.execution.execution import Execution
from wtb.execution.node_run import GroupedNodeRun, NodeRuns

T = TypeVar("T")
MAX_TOGETHER = 64  # at a time


@frozen(slots=True)
class PlannedRun:
    """A node run before it begins. `cells` is the number of cells that share it."""

    execution: Execution
    task: NodeTask
    variant: str
    cells: int


class Together:
    """Node runs of one checkpoint that are begun together. Their ends wait in `Execution.ahead` for the next step.

    Args:
        node_runs: Runs them.
        planned_runs: Node runs for which `NodeRuns.goes_together` is true.
        alone: Whether each is the only one of its step.
    """

    def __init__(self, node_runs: NodeRuns, planned_runs: Sequence[PlannedRun], *, alone: bool) -> None:
        self._code = node_runs.code
        self._running: list[GroupedNodeRun] = []
        if len(planned_runs) > 1:  # one alone gains nothing
            for planned in planned_runs[:MAX_TOGETHER]:
                running = node_runs.begin(planned.execution, planned.task, planned.variant, planned.cells, alone)
                planned.execution.ahead[planned.task.key, planned.variant] = running.run
                self._running.append(running)
        self.executions = {running.execution.id for running in self._running}

    def run(self, continue_elsewhere: Callable[[Sequence[Execution]], None] = lambda executions: None) -> None:
        """Run them, and record each result as soon as it is there.

        Args:
            continue_elsewhere: Called with executions that need not wait for the others any longer, if one of them is
                slow.
        """
        sent = [(running, running.first_task) for running in self._running if running.first_task is not None]
        ended: list[Execution] = []

        def take(number: int, outcome: Result | Exception | None) -> None:
            running, _ = sent[number]
            running.take(outcome)
            ended.append(running.execution)
            # A slow one holds up the message: this one, which has not begun, and those that ended continue elsewhere.
            if outcome is None:
                continue_elsewhere(ended)
                ended.clear()

        try:
            if sent:
                self._code.run_together([task for _, task in sent], take)
        except WTBError as error:
            for running, _ in sent:
                running.take(error)
        finally:
            for running in self._running:
                # Whatever ended this, slots that wait for one of the node runs must not wait for ever.
                running.release()

    def before(self, work: Callable[[], T]) -> Callable[[], T]:
        """Return a job that runs them before it does its own work."""

        def both() -> T:
            self.run()
            return work()

        return both


def run_forked(
    node_runs: NodeRuns,
    children: list[Execution],
    grouped: Iterable[Choices],
    dispatch: Callable[[Sequence[Execution]], None],
) -> list[Execution]:
    """Run the next node of new forks, which is one task of each, together if it is quick.

    Args:
        node_runs: Runs them.
        children: The executions.
        grouped: For each of them, the variant that it chooses.
        dispatch: Hands executions to other slots.

    Returns:
        Those that were not dispatched.
    """
    (task,) = children[0].at.position.tasks
    holds = node_runs.sweep.holds
    planned_runs = [
        PlannedRun(child, task, variant, len(child.combinations))
        for child, (variant,) in zip(children, grouped, strict=True)
        if node_runs.goes_together(child, task, variant) and holds.before_step(child) is None
    ]
    together = Together(node_runs, planned_runs, alone=True)
    if not together.executions:
        return children
    undispatched = {child.id: child for child in children if child.id in together.executions}
    # Forks whose node is not quick start elsewhere now, instead of waiting for the message.
    if len(undispatched) < len(children):
        dispatch([child for child in children if child.id not in undispatched])

    def continue_elsewhere(executions: Sequence[Execution]) -> None:
        for execution in executions:
            del undispatched[execution.id]
        dispatch(executions)

    together.run(continue_elsewhere)
    return [*undispatched.values()]
