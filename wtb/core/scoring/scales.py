"""Scales: the least and the greatest score that an evaluator declares to give, and the score of a failed cell."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from wtb.core.errors import InputError

Scale = tuple[float, float]  # the lower end and the higher one
PASS_OR_FAIL: Scale = (0.0, 1.0)
LEFT_OUT: Final = "left_out"
OnFailure = float | Literal["left_out"]  # the score of a failed cell, or that it has none
ON_FAILURE = f"a finite number or {LEFT_OUT}"
_ROUNDING = 1e-9  # of a scale: an average of scores within it may lie outside by as much


def scale_of(name: str, declared: Any) -> Scale | Mapping[str, Scale] | None:
    """The scale that the evaluator of this name declares, or its scales by key. Raises InputError."""
    if declared is None:
        return None
    if isinstance(declared, Mapping):
        return {str(key): _ends(name, f"the scale of {key!r:.50}", scale) for key, scale in declared.items()}
    return _ends(name, "scale", declared)


def _ends(name: str, what: str, declared: Any) -> Scale:
    """Read the two ends of a scale. Raises InputError."""
    ends = [_number(end) for end in declared] if isinstance(declared, list | tuple) else []
    if len(ends) != 2 or not all(map(math.isfinite, ends)) or not ends[0] < ends[1]:
        expected = "expected two finite numbers, the lower one first, such as [0, 1]"
        raise InputError(f"evaluator {name!r}: {what} is {declared!r:.50}; {expected}")
    return ends[0], ends[1]


def failure_scores(name: str, declared: Any) -> OnFailure | Mapping[str, OnFailure] | None:
    """What a failed cell counts as, as the evaluator of this name declares it, if it does. Raises InputError."""
    if declared is None:
        return None
    if isinstance(declared, Mapping):
        return {
            str(key): _failure_score(name, f"the on_failure of {key!r:.50}", score) for key, score in declared.items()
        }
    return _failure_score(name, "on_failure", declared)


def _failure_score(name: str, what: str, declared: Any) -> OnFailure:
    score = failure_score(declared)
    if score is None:
        raise InputError(f"evaluator {name!r}: {what} is {declared!r:.50}; expected {ON_FAILURE}")
    return score


def failure_score(declared: Any) -> OnFailure | None:
    """What is given as the score of a failed cell; None where it is nothing of the kind."""
    if declared == LEFT_OUT:
        return LEFT_OUT
    number = _number(declared)
    return number if math.isfinite(number) else None


def read_failure_score(who: str, text: str) -> OnFailure:
    """The score of a failed cell as somebody wrote it. Raises InputError."""
    try:
        score = failure_score(float(text))
    except ValueError:
        score = failure_score(text)
    if score is None:
        raise InputError(f"{who} is {text!r:.50}; expected {ON_FAILURE}")
    return score


def _number(value: Any) -> float:
    """The number that a value is, else NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def returns_bool(fn: Callable[..., Any]) -> bool:
    """Return whether a function is annotated so."""
    try:
        return inspect.signature(fn).return_annotation in (bool, "bool")
    except ValueError:
        return False


def placed(number: float, low: float, high: float) -> float | None:
    """A score on its scale, without what rounding put outside; None where it lies outside."""
    nearest = min(max(number, low), high)
    return None if abs(number - nearest) > _ROUNDING * (high - low) else nearest
