"""A score with the reason for it, as evaluators return it. Pure."""

from __future__ import annotations

from typing import Final

from wtb.core.classes.frozen import frozen
from wtb.core.serialization.plain_json import storable

MOST_REASON: Final = 4_096
"""Characters of a reason that are stored."""
MOST_COMMENT: Final = 4_096
"""Characters of a comment that somebody writes on a cell."""


@frozen
class Score:
    """What an evaluator returns to give the reason for a score.

    Args:
        value: The score: a bool or a number.
        reason: Why, in words for people. At most 4,096 characters are stored, after redaction.

    Example:
        >>> from wtb import Score, evaluator
        >>> @evaluator(scale=(0, 1))
        ... def polite(case, result):
        ...     is_polite = "please" in result.state["answer"]
        ...     return Score(is_polite, None if is_polite else "it does not say please")
        >>> from wtb.testing import CellResult, ScoredCase
        >>> polite(ScoredCase("order", {}), CellResult({"answer": "Come here."})).reason
        'it does not say please'
    """

    value: float
    reason: str | None = None

    def __float__(self) -> float:
        return float(self.value)


def stored_reason(reason: object) -> str | None:
    """Return a reason as it is stored; None for none, and for a blank one."""
    text = "" if reason is None else storable(str(reason), MOST_REASON).strip()
    return text or None
