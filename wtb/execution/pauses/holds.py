"""What holds an execution up before its next step: what a person asked for, breakpoints, and approvals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from wtb.authoring.breakpoints import Breakpoint, parse_breakpoint
from wtb.core.questions import Hold
from wtb.core.serialization.plain_json import readable
from wtb.execution.pauses import approval_modes

if TYPE_CHECKING:
    from wtb.execution.execution import Execution
    from wtb.planning.binding import Bound


class Holds:
    """Asked before every step of an execution.

    asked: what people want of executions that run here: to, by, reason and token, by execution; `see` keeps it and the
    breakpoints up to date, once a second.
    """

    def __init__(self, bound: Bound, breakpoints: Iterable[str] = ()) -> None:
        self.bound = bound
        self.asked: Mapping[str, Mapping[str, Any]] = {}
        self._texts: tuple[str, ...] = ()
        self._breakpoints: tuple[Breakpoint, ...] = ()
        self.see({}, breakpoints)

    def see(self, asked: Mapping[str, Mapping[str, Any]], breakpoints: Iterable[str]) -> None:
        """Take note of what people want now. Breakpoints are in words that were checked when they were set."""
        self.asked = asked
        if (texts := tuple(breakpoints)) != self._texts:
            nodes, keys = self.bound.workflow.nodes, self.bound.workflow.schema.keys
            self._breakpoints = tuple(parse_breakpoint(text, nodes, keys) for text in texts)
            self._texts = texts

    def before_step(self, execution: Execution) -> Hold | None:
        """Why an execution does not go on from its head, or None."""
        if wanted := self.wanted(execution):
            return Hold(wanted["to"], wanted["reason"], by=wanted["by"])
        if self._breakpoints and execution.at.id != execution.passed:
            stopped = self._stopped_at(execution)
            if stopped is not None:
                return stopped
        return approval_modes.before_step(self.bound, execution)

    def wanted(self, execution: Execution) -> Mapping[str, Any] | None:
        """What a person asked for: to, by and reason."""
        wanted = self.asked.get(execution.id)
        # What was asked under an earlier claim has been done.
        return wanted if wanted is not None and wanted["token"] == execution.token else execution.asked

    def _stopped_at(self, execution: Execution) -> Hold | None:
        ran = [writer.node for writer in execution.at.writers]
        for one in self._breakpoints:
            keys = () if one.condition is None else one.condition.keys
            state = {key: readable(execution.state[key].data) for key in keys if key in execution.state}
            if reason := one.reached(execution.at.position.next, ran, state):
                return Hold("paused", reason, data={"breakpoint": str(one)})
        return None
