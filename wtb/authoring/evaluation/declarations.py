"""Evaluators from their declarations: a name, the options in the sweep file, and what `@evaluator` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from wtb.authoring.evaluation.built_in import BUILT_IN, MEASURED, regex
from wtb.authoring.evaluation.evaluators import EVALUATION_S, Evaluator, ScoredCase
from wtb.authoring.evaluation.fields import expected_of
from wtb.authoring.evaluation.options import check_built_in, check_options, takes
from wtb.authoring.evaluation.requirements import check_installed
from wtb.core.errors import InputError, did_you_mean
from wtb.core.scoring.measure import Better, Compare
from wtb.core.scoring.scales import PASS_OR_FAIL, failure_scores, returns_bool, scale_of
from wtb.core.units import LONGEST_S


def make_evaluator(
    name: str, options: Mapping[str, Any], resolve: Callable[[str], Any], fn: Callable[..., Any] | None = None
) -> Evaluator:
    """Make an evaluator.

    Args:
        name: That of a built-in one, or an import path.
        options: Its own options, and `timeout`, `scale` and `on_failure`, which override what `@evaluator` says.
        resolve: Imports a path.
        fn: The function, if it is at hand.

    Raises:
        InputError: There is no such evaluator, with a near match, or its options or declarations do not fit.
    """
    fn = _function(name, resolve) if fn is None else fn
    if not callable(fn):
        raise InputError(f"evaluator {name!r} is of type {type(fn).__name__}; expected a function (case, result)")
    is_built_in = any(fn is one for one in BUILT_IN.values())
    declared = {key: getattr(fn, f"wtb_{key}", None) for key in ("better", "compare", "timeout", "scale", "on_failure")}
    overridable = ["timeout", *(["on_failure"] if fn not in MEASURED else []), *(["scale"] if not is_built_in else [])]
    for key in overridable:
        if key in options and not takes(fn, key):
            declared[key] = options[key]
            options = {option: value for option, value in options.items() if option != key}
    if "timeout" in options:  # the function's own option, which is its deadline, too
        declared["timeout"] = options["timeout"]
    check_options(name, fn, options)
    check_installed(name, fn)
    pattern_of = None
    if is_built_in:
        check_built_in(name, options)
        if fn is regex and options.get("pattern") is None:
            pattern_of = partial(_pattern_of, options["field"])
    given: Callable[..., Any] = partial(fn, **options) if options else fn
    made = Evaluator(
        str(getattr(fn, "wtb_name", None) or getattr(fn, "__name__", type(fn).__name__)),
        given,
        _direction(name, declared["better"]),
        _comparison(name, declared["compare"]),
        EVALUATION_S if declared["timeout"] is None else _timeout(name, declared["timeout"]),
        pattern_of,
        scale_of(name, declared["scale"]) or (PASS_OR_FAIL if returns_bool(fn) else None),
        failure_scores(name, declared["on_failure"]),
        is_built_in,
    )
    made.check_failure_scores()
    return made


def _function(name: str, resolve: Callable[[str], Any]) -> Any:
    if name in BUILT_IN:
        return BUILT_IN[name]
    if ":" in name:
        return resolve(name)
    known = f"; expected one of {', '.join(BUILT_IN)}, or an import path 'pkg.module:function'"
    raise InputError(f"there is no evaluator {name!r}{did_you_mean(name, BUILT_IN) or known}")


def _pattern_of(field: str, expected: Any) -> Any:
    return expected_of(ScoredCase("", {}, expected), field)


def _timeout(name: str, timeout: Any) -> float:
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout <= LONGEST_S:
        raise InputError(f"evaluator {name!r}: 'timeout' is {timeout!r:.50}; expected seconds, such as 60")
    return float(timeout)


def _direction(name: str, better: Any) -> Better | Mapping[str, Better] | None:
    """The direction that an evaluator declares, if any. Raises InputError."""
    if better is None:
        return None
    each = better.values() if isinstance(better, Mapping) else [better]
    for one in each:
        if one not in ("higher", "lower"):
            raise InputError(f"evaluator {name!r}: better is {one!r:.50}; expected 'higher' or 'lower'")
    declared: Better | Mapping[str, Better] = better
    return declared


def _comparison(name: str, compare: Any) -> Compare:
    compare = compare or "mean"
    if compare not in ("mean", "median"):
        raise InputError(f"evaluator {name!r}: compare is {compare!r:.50}; expected 'mean' or 'median'")
    found: Compare = compare
    return found
