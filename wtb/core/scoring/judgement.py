"""What a judge said."""

from __future__ import annotations

from dataclasses import dataclass

MOST_CALLS, CALLS_AT_ONCE = 10_000, 8  # to compare rows, unless something else is said
CASES_DRAWN = 100  # for people to label, unless something else is said


@dataclass(frozen=True)
class Judgement:
    """The score that a judge gave, or why there is none. usd: what it cost, None where nobody knows."""

    score: float | None
    problem: str = ""
    usd: float | None = 0.0
