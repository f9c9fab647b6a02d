"""How the values of a metric are read, and one value of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypedDict

from wtb.core.classes.frozen import frozen
from wtb.core.scoring.figures import Figure
from wtb.core.scoring.scales import OnFailure, Scale

Better = Literal["higher", "lower"]
Compare = Literal["mean", "median"]

MEASURED_NAMES: Final = frozenset({"latency", "cost", "tokens", "node_runs"})
"""Metrics of what a cell takes, not of what it comes to. Their evaluators are `built_in.MEASURED`."""


class StoredMeasure(TypedDict):
    """A `Measure` as columns of a table."""

    better: Better
    declared: bool
    by_median: bool
    low: float | None
    high: float | None
    on_failure: str | None
    figure: str | None


@frozen(slots=True)
class Measure:
    """How the values of a metric are read: which are better, whether that was declared, and how they are compared.

    low, high: the ends of the scale that was declared, both or neither. on_failure: the score that was declared for a
    failed cell; None where the sweep, else the scale, says it. figure: of which figure over all cells of a row a value
    is a part; such values are never averaged. passes: the figure over the repeats of a case, such as pass@3.
    """

    better: Better = "higher"
    declared: bool = True
    compare: Compare = "mean"
    low: float | None = None
    high: float | None = None
    on_failure: OnFailure | None = None
    figure: Figure | None = None
    passes: str | None = None

    @property
    def scale(self) -> Scale | None:
        """The scale that was declared."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def worst(self) -> float | None:
        """The worse end of the scale, where one was declared."""
        return self.low if self.better == "higher" else self.high

    @property
    def best(self) -> float | None:
        """The better end of the scale, where one was declared."""
        return self.high if self.better == "higher" else self.low

    def row(self) -> StoredMeasure:
        """Its columns in `metrics`."""
        by_median = self.compare == "median"
        return {
            "better": self.better,
            "declared": self.declared,
            "by_median": by_median,
            "low": self.low,
            "high": self.high,
            "on_failure": None if self.on_failure is None else str(self.on_failure),
            "figure": self.passes or self.figure,
        }


@frozen(slots=True)
class Score:
    """One metric of one cell: a value, or the reason why there is none, or neither if the case has no expected value.

    reason: why it has this value, where the evaluator says so. observed: of figures, what the cell tells. version: of
    what gave it, such as a model, where it says so itself.
    spent: US dollars that were spent to get it, None where nobody knows; what was kept from before cost nothing.
    """

    metric: str
    value: float | None
    measure: Measure
    error: str | None = None
    observed: str | None = None
    version: str | None = None
    spent: float | None = 0.0
    reason: str | None = None


def spent_of(scores: Iterable[Score]) -> float | None:
    """US dollars that were spent to get scores; None where nobody knows."""
    spent = [score.spent for score in scores]
    return None if None in spent else sum(amount or 0.0 for amount in spent)


def without_expected(metric: str, count: int, cases: int) -> str:
    """Return the words for cases that a metric does not score because they have no expected value."""
    verb = "has" if count == 1 else "have"
    return f"{count:,} of {cases:,} cases {verb} no expected value for {metric}: they get no score by it"
