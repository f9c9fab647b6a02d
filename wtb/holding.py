"""What holds an execution up before its next step: what a person asked for, breakpoints, and approvals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wtb.approvals import Hold

if TYPE_CHECKING:
    from wtb.engine import Failure
    from wtb.live import Execution


class Holds:
    """Asked before every step of an execution.

    asked: what people want of executions that run here: to, by and reason, by execution; it is looked up once a second.
    """

    def __init__(self) -> None:
        self.asked: Mapping[str, Mapping[str, Any]] = {}

    def before_step(self, execution: Execution) -> Hold | None:
        """Why an execution does not go on from its head, or None."""
        wanted = self.asked.get(execution.id) or execution.asked
        if wanted is not None:
            return Hold(wanted["to"], wanted["reason"], by=wanted["by"])
        return None

    def after_failure(self, execution: Execution, failure: Failure) -> Hold | None:
        """Why a failure is not the end of an execution, or None."""
        return None
