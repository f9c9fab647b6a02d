"""Holds: reasons why an execution does not take its next step (requests of people, breakpoints, approvals)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from wtb.authoring.breakpoints import Breakpoint, parse_breakpoint
from wtb.core.questions import Hold
from wtb.core.serialization.plain_json import readable
from wtb.execution.pauses.approval_modes import ApprovalModes

if TYPE_CHECKING:
    from wtb.execution.execution import Execution
    from wtb.planning.binding import Bound
    from wtb.store.control.executions import Request


class Holds:
    """Decides before every step whether an execution goes on.

    requests: what people ask of executions that run in this process, by execution.
    `refresh` brings requests and breakpoints up to date, once a second.
    """

    def __init__(self, bound: Bound, breakpoints: Iterable[str] = ()) -> None:
        self.bound = bound
        self.approvals = ApprovalModes(bound)
        self.requests: Mapping[str, Request] = {}
        self._texts: tuple[str, ...] = ()
        self._breakpoints: tuple[Breakpoint, ...] = ()
        self.refresh({}, breakpoints)

    def refresh(self, requests: Mapping[str, Request], breakpoints: Iterable[str]) -> None:
        """Replace requests and breakpoints. Breakpoints are texts that were checked when they were set."""
        self.requests = requests
        if (texts := tuple(breakpoints)) != self._texts:
            nodes, keys = self.bound.workflow.nodes, self.bound.workflow.schema.keys
            self._breakpoints = tuple(parse_breakpoint(text, nodes, keys) for text in texts)
            self._texts = texts

    def before_step(self, execution: Execution) -> Hold | None:
        """Why an execution does not go on from its head; None if it does."""
        if (self.requests or execution.asked) and (request := self.requested(execution)):
            return request
        if self._breakpoints and execution.at.id != execution.passed:
            stopped = self._stopped_at(execution)
            if stopped is not None:
                return stopped
        return self.approvals.before_step(execution) if self.approvals.asks_before_steps else None

    def requested(self, execution: Execution) -> Hold | None:
        """What a person asked for."""
        request = self.requests.get(execution.id)
        # A request with another token was made, and carried out, under an earlier claim.
        asked = request.asked if request is not None and request.token == execution.token else execution.asked
        if asked is None:
            return None
        return Hold("cancelled" if asked["to"] == "cancelled" else "paused", asked["reason"], by=asked["by"])

    def _stopped_at(self, execution: Execution) -> Hold | None:
        """Return the hold of the first breakpoint that applies at the head, if any."""
        ran = [writer.node for writer in execution.at.writers]
        for one in self._breakpoints:
            keys = () if one.condition is None else one.condition.keys
            state = {key: readable(execution.state[key].data) for key in keys if key in execution.state}
            if reason := one.reached(execution.at.position.next, ran, state):
                return Hold("paused", reason, data={"breakpoint": str(one)})
        return None
