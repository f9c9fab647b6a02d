"""Node runs that an earlier claim began: of the executions at one head, one at a time may continue them."""

from __future__ import annotations

import time
from collections.abc import Iterable

from wtb.core.tree.grouping import TaskVariant
from wtb.execution.execution import Execution
from wtb.execution.journal import Journal, Lost
from wtb.execution.pauses import approval_modes
from wtb.execution.state import RunningSweep
from wtb.store.runs.node_progress import adopt
from wtb.store.tables.node_runs import NodeRunRow

PATIENCE_S = 1.0  # for another execution to leave a shared node run
LOOK_S = 0.05
SHARED = "another execution was in a node run that it shares"


def adopts_begun(sweep: RunningSweep, journal: Journal, execution: Execution, wanted: Iterable[TaskVariant]) -> bool:
    """Adopt the node runs of a step that have begun already. Returns False if another execution is in one of them.

    Waits a moment for the other one to leave. If it does not, what this execution was loaded with is out of date, or
    soon will be, so it has to be claimed again.

    Raises Stopped; Lost if the lease is gone.
    """
    begun = _begun(execution, wanted)
    if not begun:
        return True
    journal.flush(execution.id, force=True)  # one that was just forked may be in the buffer only
    ends = time.monotonic() + PATIENCE_S
    while (adoption := adopt(sweep.database, execution.id, execution.token, execution.at.id, begun)) == "busy":
        if time.monotonic() > ends:
            break
        sweep.limits.stop.wait(LOOK_S)
    if adoption == "lost":
        raise Lost(f"execution {execution.id} was taken away")
    return adoption == "ours"


def _begun(execution: Execution, wanted: Iterable[TaskVariant]) -> dict[str, NodeRunRow]:
    """The rows, by id, of node runs that further attempts would continue."""
    begun = {}
    for task, variant in wanted:
        earlier = execution.loaded.earlier.get((task.key, variant))
        if earlier is None or earlier.status in ("succeeded", "skipped"):
            continue
        prior = approval_modes.prior_answers(execution, task.key, variant)
        if prior.question is None and prior.failure is None:
            begun[earlier.id] = earlier
    return begun
