"""A run that goes on on threads of this process, while its caller does something else."""

from __future__ import annotations

import threading

from wtb.execution.runtime.sweep_run import Ended, SweepRun
from wtb.execution.state import Progress
from wtb.operations.context import Context
from wtb.operations.running.local import Ran, follow_started
from wtb.store.read import queries


def run_in_background(context: Context, run: SweepRun, grace: float) -> Ran:
    """Begin a run that nobody waits for, as `follow` runs one that somebody does. Returns that it is running."""
    BackgroundRun(context, run, grace)
    return Ran(queries.find_sweep(context.database, run.sweep_id), Ended("running"))


class BackgroundRun:
    """A run that has begun, and is followed by a thread of its own.

    Args:
        context: Where; it is warned of what needs people's attention.
        run: Not started yet.
        grace: Seconds that running nodes get once it is stopped.

    Raises:
        WTBError: If it cannot begin.
    """

    def __init__(self, context: Context, run: SweepRun, grace: float) -> None:
        run.start()
        self._run = run
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._follow, args=(context, grace), name="wtb-background", daemon=True)
        self._thread.start()

    def _follow(self, context: Context, grace: float) -> None:
        try:
            follow_started(context, self._run, grace)
        except BaseException as error:  # noqa: BLE001 - `check` raises it
            self._error = error

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return self._run.progress

    def wait(self, seconds: float = 0.0) -> bool:
        """Wait for at most some seconds. Returns whether this process does no more for it."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def check(self) -> None:
        """Raise the error that ended the run, such as a database out of reach; not the failure of a node."""
        if self._error is not None:
            raise self._error
