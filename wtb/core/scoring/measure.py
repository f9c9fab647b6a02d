"""How the values of a metric are read, and one value of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from wtb.core.scoring.scales import LEFT_OUT, OnFailure, Scale

Better = Literal["higher", "lower"]
Compare = Literal["mean", "median"]


@dataclass(frozen=True, slots=True)
class Measure:
    """How the values of a metric are read: which are better, whether that was declared, and how they are compared.

    low, high: the ends of the scale that was declared, both or neither. on_failure: the score that was declared for a
    failed cell; None where the sweep, else the scale, says it.
    """

    better: Better = "higher"
    declared: bool = True
    compare: Compare = "mean"
    low: float | None = None
    high: float | None = None
    on_failure: OnFailure | None = None

    @property
    def scale(self) -> Scale | None:
        """The scale that was declared."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def worst(self) -> float | None:
        """The worse end of the scale, where one was declared."""
        return self.low if self.better == "higher" else self.high

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Measure:
        """That of a row of `metrics`."""
        by: Compare = "median" if row["by_median"] else "mean"
        declared = row["on_failure"]
        on_failure = declared if declared in (None, LEFT_OUT) else float(declared)
        return cls(row["better"], row["declared"], by, row["low"], row["high"], on_failure)

    def row(self) -> dict[str, Any]:
        """Its columns in `metrics`."""
        by_median = self.compare == "median"
        return {
            "better": self.better,
            "declared": self.declared,
            "by_median": by_median,
            "low": self.low,
            "high": self.high,
            "on_failure": None if self.on_failure is None else str(self.on_failure),
        }


@dataclass(frozen=True, slots=True)
class Score:
    """One metric of one cell: a value, or the reason why there is none."""

    metric: str
    value: float | None
    measure: Measure
    error: str | None = None
