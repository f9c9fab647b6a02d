"""Quick node runs that start from one checkpoint, made in one message to a node process in place of one for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from wtb.core.classes.frozen import frozen
from wtb.core.errors import WTBError
from wtb.core.tree.checkpoints import NodeTask
from wtb.core.tree.grouping import Choices
from wtb.execution.engine.protocol import Result
from wtb.execution.execution import Execution
from wtb.execution.node_run import GroupedNodeRun, NodeRuns

T = TypeVar("T")
MOST = 64  # at a time


@frozen(slots=True)
class Wanted:
    """A node run that is to be. cells: how many share it."""

    execution: Execution
    task: NodeTask
    variant: str
    cells: int


class Together:
    """Node runs of one checkpoint that are begun together. What each comes to waits in `Execution.ahead` for its step.

    wanted: those for which `NodeRuns.goes_together` is true. alone: whether each is the only one of its step.
    """

    def __init__(self, node_runs: NodeRuns, wanted: Sequence[Wanted], *, alone: bool) -> None:
        self._code = node_runs.code
        self._begun: list[GroupedNodeRun] = []
        if len(wanted) > 1:  # one alone gains nothing
            for one in wanted[:MOST]:
                running = node_runs.begin(one.execution, one.task, one.variant, one.cells, alone)
                one.execution.ahead[one.task.key, one.variant] = running.run
                self._begun.append(running)
        self.executions = {running.execution.id for running in self._begun}

    def run(self, go_on: Callable[[Sequence[Execution]], None] = lambda executions: None) -> None:
        """Have them made, and record what each has come to as soon as it has ended.

        go_on: called with executions that need not wait for the others any longer, where one of them is slow.
        """
        sent = [(running, running.first_task) for running in self._begun if running.first_task is not None]
        ended: list[Execution] = []

        def take(number: int, result: Result | Exception | None) -> None:
            running, _ = sent[number]
            running.take(result)
            ended.append(running.execution)
            if result is None:
                go_on(ended)
                ended.clear()

        try:
            if sent:
                self._code.run_together([task for _, task in sent], take)
        except WTBError as error:
            for running, _ in sent:
                running.take(error)
        finally:
            for running in self._begun:
                running.release()

    def before(self, work: Callable[[], T]) -> Callable[[], T]:
        """Return a job that has them made before it does its own work."""

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
    """Run the next node of executions that were forked just now, which is one task of each, together if it is quick.

    Args:
        node_runs: Runs them.
        children: The executions.
        grouped: For each of them, the variant that it chooses.
        dispatch: Gives executions to other slots.

    Returns:
        Those that were not dispatched.
    """
    (task,) = children[0].at.position.tasks
    holds = node_runs.sweep.holds
    wanted = [
        Wanted(child, task, variant, len(child.combinations))
        for child, (variant,) in zip(children, grouped, strict=True)
        if node_runs.goes_together(child, task, variant) and holds.before_step(child) is None
    ]
    together = Together(node_runs, wanted, alone=True)
    if not together.executions:
        return children
    left = {child.id: child for child in children if child.id in together.executions}
    if len(left) < len(children):
        dispatch([child for child in children if child.id not in left])

    def go_on(executions: Sequence[Execution]) -> None:
        for execution in executions:
            del left[execution.id]
        dispatch(executions)

    together.run(go_on)
    return [*left.values()]
