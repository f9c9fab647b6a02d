"""Calls of models that a provider failed and that the node has not repeated with success."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from wtb.authoring.boundary import ANSWERED_AFTER_FAILURE
from wtb.core.providers.faults import ProviderFault, describe

if TYPE_CHECKING:
    from wtb.authoring.context.attempt_record import Record


class FailedCalls:
    """The failed calls of one attempt, by request."""

    def __init__(self) -> None:
        self._faults: dict[str, ProviderFault] = {}

    def add(self, request: str, fault: ProviderFault) -> None:
        """Note that a provider failed a request."""
        self._faults[request] = fault

    def remove(self, request: str) -> None:
        """Note that a request was answered, which makes up for its failures."""
        self._faults.pop(request, None)

    def report(self, record: Record) -> None:
        """Report them, if there are any, for a node that has answered without their replies."""
        if self._faults:
            message = describe(next(iter(self._faults.values())))
            data = {"level": "warning", "calls": len(self._faults), "message": message}
            record.report("event", (ANSWERED_AFTER_FAILURE, time.time(), data))
