"""Figures over the repeats of a case, which options of an evaluator that passes or fails ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wtb.authoring.evaluation.options import takes
from wtb.authoring.evaluation.parts import PASS_OR_FAIL_PARTS
from wtb.core.errors import InputError
from wtb.core.mappings import Options
from wtb.core.scoring.passes import Kind, Passes
from wtb.core.scoring.scales import returns_bool

_OPTIONS: Mapping[str, Kind] = {"pass_at": "pass@", "pass_all": "pass^"}
_MOST = 9_999


def read_over_repeats(
    name: str, fn: Callable[..., Any], options: Options, *, passes_or_fails: bool
) -> tuple[Passes | None, Options]:
    """Read the figure over repeats that options ask for.

    Args:
        name: That of the evaluator.
        fn: Its function.
        options: Its options.
        passes_or_fails: Whether a threshold makes pass or fail of its score.

    Returns:
        The figure, None if there is none, and the other options.

    Raises:
        InputError: It is no number of repeats, or the evaluator gives scores that do not pass or fail.
    """
    given = {key: options[key] for key in _OPTIONS if key in options and not takes(fn, key)}
    if not given:
        return None, options
    if len(given) > 1:
        raise InputError(f"evaluator {name!r}: both 'pass_at' and 'pass_all'; expected two evaluators with one of each")
    ((key, k),) = given.items()
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= _MOST:
        raise InputError(f"evaluator {name!r}: {key!r} is {k!r:.50}; expected a number of repeats, such as 3")
    if not (passes_or_fails or returns_bool(fn) or fn in PASS_OR_FAIL_PARTS):
        raise InputError(
            f"evaluator {name!r}: {key!r} of scores that do not pass or fail; expected 'at_least' beside it"
        )
    return Passes(_OPTIONS[key], k), {option: value for option, value in options.items() if option != key}
