"""Thresholds: `at_least` and `at_most` make pass or fail of the score of any evaluator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from wtb.authoring.evaluation.options import takes
from wtb.core.errors import InputError
from wtb.core.mappings import Options
from wtb.core.scoring.threshold import Threshold

KEYS = ("at_least", "at_most")


def read_threshold(name: str, fn: Callable[..., Any], options: Options) -> Threshold | None:
    """The threshold among the options of an evaluator, where the function has no option of that name.

    Raises:
        InputError: An end is no finite number, no score could pass, or a scale is given beside it.
    """
    given = {key: options[key] for key in KEYS if key in options and not takes(fn, key)}
    if not given:
        return None
    for key, end in given.items():
        if isinstance(end, bool) or not isinstance(end, int | float) or not math.isfinite(end):
            raise InputError(f"evaluator {name!r}: {key!r} is {end!r:.50}; expected a finite number, such as 0.5")
    if "scale" in options and not takes(fn, "scale"):
        raise InputError(
            f"evaluator {name!r}: both 'scale' and {next(iter(given))!r}; what passes or fails has its own"
        )
    threshold = Threshold(**given)
    if threshold.at_least > threshold.at_most:
        raise InputError(
            f"evaluator {name!r}: 'at_least' is {threshold.at_least:g} and 'at_most' {threshold.at_most:g}; "
            "expected the lower end first, since no score passes"
        )
    return threshold
