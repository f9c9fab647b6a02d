"""The measure of a metric, which defines how its values are read, and figures over all cells of a row."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from math import comb
from typing import Final, Literal, NamedTuple, TypedDict, get_args

from wtb.core.frozen import frozen
from wtb.core.scoring.scores import OnFailure, Scale

Figure = Literal[
    "macro_f1",
    "balanced_accuracy",
    "cohen_kappa",
    "class_f1",
    "class_precision",
    "class_recall",
    "auc",
    "calibration_error",
]
FIGURES: Final[tuple[Figure, ...]] = get_args(Figure)
OF_CLASSES: Final[frozenset[Figure]] = frozenset({"macro_f1", "balanced_accuracy", "cohen_kappa"})
OF_SCORES: Final[frozenset[Figure]] = frozenset({"auc", "calibration_error"})  # the rest is of one class
LABEL = 200  # characters of the name of a class
OBSERVED = 6 * 2 * LABEL + 10  # characters of an observation
Label = str | int | None
FEWEST_OF_CLASS = 15  # cases of the class that counts; there is no interval for fewer


@frozen(slots=True)
class Observed:
    """The observation of a cell for a figure.

    Attributes:
        value: The value that is shown of the cell: whether it is right, or its score.
        truth: The expected class; for figures of scores 1 if it is positive, else 0.
        answer: The class that was found; None for none.
    """

    value: float
    truth: str | int
    answer: Label = None


def write_observed(truth: Label, answer: Label) -> str:
    """Return the expected and the found class, as they are stored beside the value of a score."""
    return json.dumps([truth, answer])


def read_observed(text: str) -> tuple[Label, Label]:
    """Read the expected and the found class that `write_observed` returned. Raises ValueError."""
    pair = json.loads(text)
    if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(label, Label) for label in pair):
        raise ValueError(f"{text!r:.50} is no cell value of a figure")
    return pair[0], pair[1]


@frozen(slots=True)
class OfClass:
    """The cases of a class on which a figure over all cells of a row depends.

    Attributes:
        smallest: The number of cases of the row with the fewest.
        largest: The number of cases of the row with the most.
        name: The name of the class; None for all classes except the most common one.
        is_found: Whether they are the cases in which a row finds the class, not those expected to be of it.
        unit: The unit of the numbers, `cases` or `clusters`.
    """

    smallest: int
    largest: int
    name: str | None
    is_found: bool = False
    unit: str = "cases"


def class_sentence(metric: str, figure: Figure, of: OfClass) -> str:
    """Return the words for how many cases of a class a metric depends on, and the consequence if they are few."""
    many = f"{of.smallest:,}" if of.smallest == of.largest else f"{of.smallest:,} to {of.largest:,}"
    unit = of.unit.removesuffix("s") if of.smallest == of.largest == 1 else of.unit
    if figure.startswith("class_"):
        which = "in which a row finds the class" if of.is_found else "of the class"
    elif of.name is None:
        which = "that are not of its most common class"
    else:
        which = f"of {of.name}, its rarest class"
    if of.smallest >= FEWEST_OF_CLASS:
        consequence = ""
    elif of.largest >= FEWEST_OF_CLASS:
        consequence = f", and rows with less than {FEWEST_OF_CLASS} have no interval"
    else:
        consequence = f": there are no intervals below {FEWEST_OF_CLASS}"
    return f"{metric} rests on {many} {unit} {which}{consequence}"


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
    """The way in which values of a metric are read and compared.

    Attributes:
        better: The direction of better values.
        declared: Whether the evaluator declared the direction.
        compare: The statistic of differences by which combinations are compared.
        low: The lower end of the declared scale; without a scale, both ends are None.
        high: The upper end of the declared scale.
        on_failure: The declared score of a failed cell; None to use that of the sweep or the scale.
        figure: The figure over all cells of a row of which a value is a part; such values are never averaged.
        passes: The figure over the repeats of a case, for example pass@3.
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
        """The declared scale."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def worst(self) -> float | None:
        """The worse end of the declared scale, if there is one."""
        return self.low if self.better == "higher" else self.high

    @property
    def best(self) -> float | None:
        """The better end of the declared scale, if there is one."""
        return self.high if self.better == "higher" else self.low

    def row(self) -> StoredMeasure:
        """Return its columns in `metrics`."""
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

    Attributes:
        reason: The evaluator's reason for the value, if it gives one.
        observed: The observation of the cell, for figures.
        version: The version of the model or judge that gave it, if that is known.
        spent: US dollars that were spent to get it, None if unknown; cached scores cost nothing.
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
    """Return the US dollars that were spent to get scores; None if that is unknown."""
    spent = [score.spent for score in scores]
    # One unknown amount makes the sum unknown: a smaller sum would look like the whole cost.
    return None if None in spent else sum(amount or 0.0 for amount in spent)


def without_expected(metric: str, count: int, cases: int) -> str:
    """Return the words for cases that a metric does not score because they have no expected value."""
    verb = "has" if count == 1 else "have"
    return f"{count:,} of {cases:,} cases {verb} no expected value for {metric}: they get no score by it"


@frozen
class Threshold:
    """The scores that pass: from the lower end to the upper one, both included."""

    at_least: float = -math.inf
    at_most: float = math.inf

    def passes(self, score: float) -> bool:
        """Return whether a score passes."""
        return self.at_least <= score <= self.at_most


PASSES: Final = r"pass[@^][1-9][0-9]{0,3}"
Kind = Literal["pass@", "pass^"]


class Passes(NamedTuple):
    """A figure over the repeats of a case.

    `kind` is pass@ if one of k repeats has to pass, pass^ if all of them have to.
    """

    kind: Kind
    k: int

    def __str__(self) -> str:
        return f"{self.kind}{self.k}"

    def estimate(self, repeats: int, passed: int) -> float | None:
        """Estimate a case's figure without bias from all of its repeats, of which `passed` passed.

        It is the share of all choices of k repeats in which one passes, or all do (Chen et al. 2021, for pass@k).

        Returns:
            The estimate; None for fewer than k repeats.
        """
        if repeats < self.k:
            return None
        if self.kind == "pass^":
            return comb(passed, self.k) / comb(repeats, self.k)
        return 1 - comb(repeats - passed, self.k) / comb(repeats, self.k)


def read_passes(text: str | None) -> Passes | None:
    """Return the figure of a name such as pass@3; None for other names."""
    if text is None or not re.fullmatch(PASSES, text):
        return None
    return Passes("pass@" if text[4] == "@" else "pass^", int(text[5:]))
