"""Going on with what an earlier claim began: of the executions at one head, one at a time is in a node run."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from wtb.core.tree.grouping import Chosen
from wtb.execution.execution import Execution
from wtb.execution.journal import Journal, Lost
from wtb.execution.pauses import approval_modes
from wtb.execution.state import LiveSweep
from wtb.store.runs.dedupe import take_up

PATIENCE_S = 1.0  # for another execution to leave a node run that is shared
LOOK_S = 0.05
SHARED = "another execution was in a node run that it shares"


def is_taken_up(sweep: LiveSweep, journal: Journal, execution: Execution, wanted: Iterable[Chosen]) -> bool:
    """Whether what has begun of a step is this execution's to go on with, and not of another one at the same head.

    Waits for the other one a moment. Where it is not, what this one was told is out of date, or soon will be: it has to
    be claimed again. Raises Stopped, and Lost where its lease is gone.
    """
    begun = _begun(execution, wanted)
    if not begun:
        return True
    journal.settle(execution.id, force=True)  # one that was just forked may be in the buffer only
    ends = time.monotonic() + PATIENCE_S
    while (found := take_up(sweep.database, execution.id, execution.token, execution.at.id, begun)) == "busy":
        if time.monotonic() > ends:
            break
        sweep.stop.wait(LOOK_S)
    if found == "lost":
        raise Lost(f"execution {execution.id} was taken away")
    return found == "ours"


def _begun(execution: Execution, wanted: Iterable[Chosen]) -> dict[str, Mapping[str, Any]]:
    """The rows, by id, of node runs with which further attempts go on."""
    found = {}
    for task, variant in wanted:
        earlier = execution.earlier.get((task.key, variant))
        if earlier is None or earlier["status"] in ("succeeded", "skipped"):
            continue
        heard = approval_modes.heard(execution, task.key, variant)
        if heard.question is None and heard.failure is None:
            found[str(earlier["id"])] = earlier
    return found
