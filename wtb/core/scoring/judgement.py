"""What a judge said."""

from __future__ import annotations

from collections.abc import Mapping

from wtb.core.classes.frozen import frozen

MOST_CALLS, CALLS_AT_ONCE = 10_000, 8  # to compare rows, unless something else is said
MET: Mapping[str, str] = {"0": "does not meet the criteria", "1": "meets the criteria"}  # where there is no rubric
BY_HAND = "by hand"  # a metric decides gates, however far it agrees with people
JUDGING = "(judging)"  # the node of budgets for what judges may cost
UNKNOWN_PRICE = (
    "limit judging.usd cannot be kept, since the price of a judge's model is not known: lift it with "
    "--limits judging.usd=none"
)
CASES_DRAWN = 100  # for people to label, unless something else is said


def limit_name(node: str | None, kind: str) -> str:
    """What a budget is called among the limits of a sweep, such as `nodes.answer.usd`."""
    return f"judging.{kind}" if node == JUDGING else f"nodes.{node}.{kind}" if node else kind


@frozen
class Judgement:
    """The score that a judge gave, or why there is none. usd: what it cost, None where nobody knows.

    model: of which version the model was, as it says itself. reason: why it gave this score, empty if it did not say.
    """

    score: float | None
    problem: str = ""
    usd: float | None = 0.0
    model: str | None = None
    reason: str = ""
