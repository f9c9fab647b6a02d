"""What several events have in common."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

Severity = Literal["debug", "info", "warning", "error"]
# Metric -> score; of an evaluator that failed, its error.
Scores = dict[str, float | str | None]


class Event(TypedDict):
    """What all events have.

    `case` is there if it was asked for, None where the event is of no execution; so is `choices`, the variant by node
    of the combination whose number the event has.
    """

    id: int
    at: str
    severity: Severity
    sweep: str
    execution: str | None
    case: NotRequired[str | None]
    choices: NotRequired[dict[str, str]]
