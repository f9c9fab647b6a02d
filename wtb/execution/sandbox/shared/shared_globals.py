"""What node runs that share a process do to what it has once, and whose results that may have changed."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.execution.sandbox.shared.global_functions import Change, tell_of_changes
from wtb.execution.sandbox.shared.own_globals import OwnGlobals
from wtb.execution.sandbox.shared.shared_run import SharedRun
from wtb.execution.sandbox.shared.verdict import Verdict

_GLOBAL = "keep it in the state, in a ContextVar, or in an argument"
_OUTPUT = "use contextlib.redirect_stdout"


class Traces:
    """What a run has done to the globals of its process, and what its neighbours have.

    Attributes:
        changes: By the run.
        met: Changes that may have changed its result, by node.
        is_apart: Whether its node is to share no process from now on.
    """

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.met: dict[str, str] = {}
        self.is_apart = False


class SharedGlobals:
    """Notes what runs do to globals that they share."""

    def __init__(self, workflow: WorkflowFacts) -> None:
        self._own = OwnGlobals(workflow)
        self._lock = threading.Lock()
        self._traces: dict[SharedRun, Traces] = {}
        self._changers: dict[SharedRun, None] = {}
        self._left: list[tuple[str, Change]] = []  # by runs that have ended: the process is being replaced
        self._warned: set[tuple[str, str]] = set()
        tell_of_changes(self._note)

    @property
    def is_changed(self) -> bool:
        """Return whether a run that has ended has left a change behind."""
        return bool(self._left)

    def begin(self, run: SharedRun) -> None:
        """Note that a run begins."""
        with self._lock:
            self._own.scan()
            traces = self._traces[run] = Traces()
            if self._left:
                traces.met.update((change.what, node) for node, change in self._left)
            for changer in self._changers:
                for change in self._traces[changer].changes:
                    self._meet(changer, change, (run,))
            self._compare()
            outputs = self._own.outputs(run.node, run.variant)
        for rebound in outputs:
            self._note(run, Change(rebound.what, rebound.place, _OUTPUT))

    def end(self, run: SharedRun, verdict: Verdict, usd: float) -> Verdict:
        """Note that a run ends.

        A result that a change may have made another one does not count if a repeat costs no model call. Otherwise a
        warning names what a repeat costs.

        Args:
            run: The run.
            verdict: On its result, as far as the event loop is concerned.
            usd: What it has cost.

        Returns:
            The verdict on its result.
        """
        with self._lock:
            self._compare()
            traces = self._traces.pop(run)
            if run in self._changers:
                del self._changers[run]
                self._left += [(run.node, change) for change in traces.changes if not change.is_own]
        if traces.is_apart:
            verdict = replace(verdict, is_apart=True)
        if not traces.met or verdict.lost is not None:
            return verdict
        changed = ", ".join(f"{what} (node {node})" for what, node in sorted(traces.met.items()))
        if not run.has_cost:
            return replace(verdict, lost=f"what it shares with other runs in its process was changed: {changed}")
        run.warn(
            f"the result may be that of another run, since what they share was changed: {changed}. "
            f"A repeat by `wtb rollback` costs about ${usd:.4g}",
            "",
        )
        return verdict

    def _note(self, run: SharedRun, change: Change) -> None:
        """Note a change by a run, as it makes it."""
        with self._lock:
            traces = self._traces.get(run)
            if traces is None:  # the run has ended, and a thread or task of it continues
                return
            traces.changes.append(change)
            self._changers[run] = None
            self._meet(run, change, [other for other in self._traces if other is not run])

    def _meet(self, changer: SharedRun, change: Change, others: Iterable[SharedRun]) -> None:
        """Note which runs a change may have harmed. A seeded sequence harms nobody if nobody else is there."""
        others = list(others)
        for run in others if not change.is_own else [changer] if others else []:
            self._traces[run].met[change.what] = changer.node
        if others or not change.is_own:
            self._blame(changer, change)

    def _blame(self, run: SharedRun, change: Change) -> None:
        """Have the node of a run share no process from now on, and warn of what it does, once for each process."""
        self._traces[run].is_apart = True
        if (run.node, change.what) not in self._warned:
            self._warned.add((run.node, change.what))
            run.warn(
                f"node {run.node!r} changes {change.what}, which is the same for all runs in a shared process, at "
                f"{change.place}: {change.advice}. Its runs have a process each from now on",
                change.place,
            )

    def _compare(self) -> None:
        """Find globals that have other values than before. Which run changed them is not known."""
        rebound_globals = self._own.rebound()
        if len(self._traces) < 2:
            return
        for rebound in rebound_globals:
            change = Change(rebound.what, rebound.place, _GLOBAL)
            blamed = [run for run in self._traces if self._own.may_rebind(run.node, run.variant, rebound)]
            for run in blamed or self._traces:
                self._blame(run, change)
            nodes = ", ".join(sorted({run.node for run in blamed})) or "unknown"
            for traces in self._traces.values():
                traces.met[change.what] = nodes
