"""Scores as evaluators return them, with their reasons, and the scales that they declare."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, TypeVar

from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import storable

T = TypeVar("T")
MOST_REASON: Final = 4_096
"""Characters of a reason that are stored."""
MOST_COMMENT: Final = 4_096
"""Characters of a comment that somebody writes on a cell."""


@frozen
class Score:
    """A score with its reason, which an evaluator may return instead of a number.

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


MOST_CALLS, CALLS_AT_ONCE = 10_000, 8  # to compare rows, unless set otherwise
MET: Mapping[str, str] = {"0": "does not meet the criteria", "1": "meets the criteria"}  # without a rubric
BY_HAND = "by hand"  # a metric decides gates, however far it agrees with people
JUDGING = "(judging)"  # the node of budgets for what judges may cost
UNKNOWN_PRICE = (
    "limit judging.usd cannot be kept, since the price of a judge's model is not known: lift it with "
    "--limits judging.usd=none"
)
CASES_DRAWN = 100  # for people to label, unless set otherwise


def limit_name(node: str | None, kind: str) -> str:
    """Return the name of a budget among the limits of a sweep, for example `nodes.answer.usd`."""
    return f"judging.{kind}" if node == JUDGING else f"nodes.{node}.{kind}" if node else kind


@frozen
class Judgement:
    """The score that a judge gave, or the reason why there is none.

    Attributes:
        usd: Its cost, None if unknown.
        model: The version of the model, if the model reports it.
        reason: The judge's reason for this score, empty if it gave none.
    """

    score: float | None
    problem: str = ""
    usd: float | None = 0.0
    model: str | None = None
    reason: str = ""


Scale = tuple[float, float]  # the lower end and the higher one
PASS_OR_FAIL: Scale = (0.0, 1.0)
LEFT_OUT: Final = "left_out"
OnFailure = float | Literal["left_out"]  # the score of a failed cell, or that it has none
ON_FAILURE = f"a finite number or {LEFT_OUT}"
_ROUNDING = 1e-9  # the share of a scale by which rounding may put an average outside


def scale_of(name: str, declared: Any) -> Scale | Mapping[str, Scale] | None:
    """Return the scale that the evaluator of a name declares, or its scales by key. Raises InputError."""
    return _by_key("scale", declared, partial(_ends, name))


def _by_key(what: str, declared: Any, read: Callable[[str, Any], T]) -> T | Mapping[str, T] | None:
    """Return what an evaluator declares for all its metrics, or for each by its key. Raises InputError."""
    if isinstance(declared, Mapping):
        return {str(key): read(f"the {what} of {key!r:.50}", of_key) for key, of_key in declared.items()}
    return None if declared is None else read(what, declared)


def _ends(name: str, what: str, declared: Any) -> Scale:
    """Read the two ends of a scale. Raises InputError."""
    ends = [_number(end) for end in declared] if isinstance(declared, list | tuple) else []
    if len(ends) != 2 or not all(map(math.isfinite, ends)) or not ends[0] < ends[1]:
        expected = "expected two finite numbers, the lower one first, such as [0, 1]"
        raise InputError(f"evaluator {name!r}: {what} is {declared!r:.50}; {expected}")
    return ends[0], ends[1]


def failure_scores(name: str, declared: Any) -> OnFailure | Mapping[str, OnFailure] | None:
    """Return the score of a failed cell that the evaluator of a name declares, if it does. Raises InputError."""
    return _by_key("on_failure", declared, partial(_failure_score, name))


def _failure_score(name: str, what: str, declared: Any) -> OnFailure:
    score = failure_score(declared)
    if score is None:
        raise InputError(f"evaluator {name!r}: {what} is {declared!r:.50}; expected {ON_FAILURE}")
    return score


def failure_score(declared: Any) -> OnFailure | None:
    """Read the score of a failed cell; None if the value is not one."""
    if declared == LEFT_OUT:
        return LEFT_OUT
    number = _number(declared)
    return number if math.isfinite(number) else None


def read_failure_score(who: str, text: str) -> OnFailure:
    """Read the score of a failed cell from a text. Raises InputError."""
    try:
        score = failure_score(float(text))
    except ValueError:
        score = failure_score(text)
    if score is None:
        raise InputError(f"{who} is {text!r:.50}; expected {ON_FAILURE}")
    return score


def _number(score: Any) -> float:
    """Return a value as a number, or NaN if it is none."""
    # A bool is an int in Python, and no end of a scale.
    if isinstance(score, bool) or not isinstance(score, int | float):
        return math.nan
    try:
        return float(score)
    except OverflowError:
        return math.inf


def returns_bool(fn: Callable[..., Any]) -> bool:
    """Return whether a function is annotated to return a bool."""
    try:
        return inspect.signature(fn).return_annotation in (bool, "bool")
    except ValueError:
        return False


def placed(number: float, low: float, high: float) -> float | None:
    """Return a score on its scale, corrected for rounding; None if it is outside."""
    nearest = min(max(number, low), high)
    return None if abs(number - nearest) > _ROUNDING * (high - low) else nearest
