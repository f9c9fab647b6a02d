"""Evaluators from their declarations: a name, the options in the sweep file, and what `@evaluator` says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from wtb.authoring.evaluation.adapters import adapted
from wtb.authoring.evaluation.built_in import BUILT_IN, COMBINING, MEASURED, regex
from wtb.authoring.evaluation.evaluators import EVALUATION_S, Evaluator
from wtb.authoring.evaluation.fields import filled_value
from wtb.authoring.evaluation.library.combining import FAILED, USD, assertions
from wtb.authoring.evaluation.library.explaining import explanation
from wtb.authoring.evaluation.options import check_built_in, check_options, takes
from wtb.authoring.evaluation.over_repeats import read_over_repeats
from wtb.authoring.evaluation.parts import problem_of_assertions, with_parts
from wtb.authoring.evaluation.regex_search import pattern_problem
from wtb.authoring.evaluation.requirements import check_installed
from wtb.authoring.evaluation.thresholds import KEYS, read_threshold
from wtb.core.errors import InputError, did_you_mean
from wtb.core.mappings import Options
from wtb.core.scoring.figures import Figure
from wtb.core.scoring.measure import Better, Compare
from wtb.core.scoring.scales import LEFT_OUT, PASS_OR_FAIL, failure_scores, returns_bool, scale_of
from wtb.core.scoring.threshold import Threshold
from wtb.core.units import LONGEST_S

# Imported and run where user code is, and never for remote callers: what they do reaches beyond the process.
BY_PATH: Mapping[str, str] = {
    "code_tests": "wtb.authoring.evaluation.library.code_tests:code_tests",
    "judge": "wtb.integrations.judges.judge:judge",
}
_JUDGE = "judge: {field: KEY, criteria: TEXT}"
_OF_PROMPTFOO: Mapping[str, str] = {  # types of its assertions, and what they are here
    **dict.fromkeys(("llm-rubric", "model-graded-closedqa", "g-eval", "factuality"), _JUDGE),
    "equals": "exact_match: {field: KEY}",
    "icontains": "regex: {field: KEY, pattern: '(?i)TEXT'}",
    "is-json": "json_schema: {field: KEY, schema: {...}}",
    "similar": "embedding_similarity: {field: KEY}",
    **dict.fromkeys(("javascript", "python"), "a Python function 'pkg.module:function'"),
}
_DECLARED = ("name", "better", "compare", "timeout", "scale", "on_failure")


def make_evaluator(
    name: str, options: Options, resolve: Callable[[str], Any], fn: Callable[..., Any] | None = None
) -> Evaluator:
    """Make an evaluator.

    Args:
        name: That of a built-in one, or an import path.
        options: Its own options; `timeout`, `scale`, `on_failure` and `name`, which override what `@evaluator` says;
            `at_least` and `at_most`, which make pass or fail of its score; `pass_at` and `pass_all`, which count
            repeats that pass.
        resolve: Imports a path.
        fn: The function, if it is at hand.

    Raises:
        InputError: There is no such evaluator, with a near match, or its options or declarations do not fit.
    """
    written = _function(name, resolve) if fn is None else fn
    fn = adapted(name, written)
    if not callable(fn):
        raise InputError(f"evaluator {name!r} is of type {type(fn).__name__}; expected a function (case, result)")
    is_built_in = any(fn is one for one in BUILT_IN.values())
    threshold = read_threshold(name, fn, options)
    passes, options = read_over_repeats(name, fn, options, passes_or_fails=threshold is not None)
    figure: Figure | None = getattr(fn, "wtb_figure", None)
    if figure is not None:
        _check_figure(name, threshold, options)
    declared, options = _declared(fn, options, is_built_in=is_built_in, passes_or_fails=threshold is not None)
    own_name = declared["name"]
    if is_built_in and name in COMBINING:
        options = _combining(name, options, declared, resolve)
    check_options(name, fn, options)
    check_installed(name, fn)
    if hasattr(fn, "wtb_check"):
        _as_problems(name, partial(fn.wtb_check, options))
    if hasattr(fn, "wtb_declare"):
        declared |= _declared_by_options(name, fn, options, declared["on_failure"], threshold)
    problem_of: Callable[[Any], str | None] | None = None
    if is_built_in:
        check_built_in(name, options)
        if fn is regex and options.get("pattern") is None:
            problem_of = partial(_pattern_problem, options["field"])
        elif name == assertions.__name__:
            problem_of = partial(problem_of_assertions, options)
    given: Callable[..., Any] = partial(fn, **options) if options else fn
    evaluator = Evaluator(
        _name(name, fn, declared["name"]) if passes is None or own_name else str(passes),
        given,
        _direction(name, declared["better"]),
        _comparison(name, declared["compare"]),
        EVALUATION_S if declared["timeout"] is None else _timeout(name, declared["timeout"]),
        problem_of,
        scale_of(name, declared["scale"]) or (PASS_OR_FAIL if threshold or returns_bool(fn) else None),
        failure_scores(name, declared["on_failure"]),
        is_built_in,
        threshold,
        figure,
        _reads(options) if is_built_in or name in BY_PATH or fn is not written else (),
        partial(fn.wtb_lacks_expected, options) if hasattr(fn, "wtb_lacks_expected") else None,
        passes,
        partial(fn.wtb_class_of, options) if hasattr(fn, "wtb_class_of") else None,
        explanation(name, options) if is_built_in else None,
    )
    evaluator.check_failure_scores()
    evaluator.check_passes()
    return evaluator


def _reads(options: Options) -> Collection[str]:
    """The keys of the final state that options name, those of parts included."""
    own = [options["field"]] if options.get("field") is not None else []
    return dict.fromkeys([*own, *(key for part in options.get("of", ()) for key in part.evaluator.reads)])


def _declared(
    fn: Callable[..., Any], options: Options, *, is_built_in: bool, passes_or_fails: bool
) -> tuple[dict[str, Any], Options]:
    """What an evaluator declares, with what options override of it; and the options that are the function's own."""
    declared = {key: getattr(fn, f"wtb_{key}", None) for key in _DECLARED}
    if passes_or_fails:  # whatever its score is
        declared |= {"better": "higher", "compare": "mean", "scale": None, "on_failure": None}
    overridable = {"name", "timeout", *KEYS}
    if fn not in MEASURED or passes_or_fails:
        overridable.add("on_failure")
    if not is_built_in and not hasattr(fn, "wtb_declare"):
        overridable.add("scale")
    taken = {key: options[key] for key in options if key in overridable and not takes(fn, key)}
    declared |= {key: value for key, value in taken.items() if key in declared}
    if "timeout" in options:  # its deadline, also where the function has the option
        declared["timeout"] = options["timeout"]
    return declared, {key: value for key, value in options.items() if key not in taken}


def _declared_by_options(name: str, fn: Any, options: Options, on_failure: Any, threshold: Threshold | None) -> Options:
    """What an evaluator of several metrics declares by its options, which it checks. Raises InputError."""
    if threshold is not None:
        raise InputError(
            f"evaluator {name!r}: 'at_least' or 'at_most' of several metrics; expected a gate on one of them"
        )
    found: Options = _as_problems(name, partial(fn.wtb_declare, options, on_failure))
    return found


def _combining(name: str, options: Options, declared: dict[str, Any], resolve: Callable[[str], Any]) -> Options:
    """The options of a combined evaluator with its parts made; what it declares is changed by them."""
    combined = with_parts(name, options, lambda part, its: make_evaluator(part, its, resolve), declared["timeout"])
    if name == "not" and declared["name"] is None:  # which is a word of conditions, and can name nothing in them
        declared["name"] = f"not_{combined['of'][0].evaluator.name}"
    if name == assertions.__name__ or any(part.asks for part in combined["of"]):
        declared |= _declared_with_judges(declared)
    return combined


def _declared_with_judges(declared: Options) -> dict[str, Any]:
    """What a combined evaluator declares that may ask judges: what they cost and how often they failed, too."""
    of_score = {} if declared["on_failure"] is None else {"": declared["on_failure"]}
    return {
        "better": {"": "higher", FAILED: "lower", USD: "lower"},
        "scale": {"": PASS_OR_FAIL, FAILED: PASS_OR_FAIL},
        "on_failure": {**of_score, FAILED: LEFT_OUT, USD: LEFT_OUT},
    }


def _check_figure(name: str, threshold: Threshold | None, options: Options) -> None:
    """Refuse what only a score of a cell can have. Raises InputError."""
    if threshold is not None:
        near = f"expected a gate, such as {options.get('name', name)} > 0.8"
        raise InputError(f"evaluator {name!r}: 'at_least' or 'at_most' of a figure over all cells of a row; {near}")
    given = options.get("on_failure")
    if given not in (None, LEFT_OUT):
        raise InputError(
            f"evaluator {name!r}: 'on_failure' is {given!r:.50}; a cell that fails is wrong, or {LEFT_OUT} where that "
            "is said"
        )


def _as_problems(name: str, check: Callable[[], Any]) -> Any:
    """What a check of options returns. Raises InputError, which names the evaluator."""
    try:
        return check()
    except InputError as error:
        raise InputError(*(f"evaluator {name!r}: {text}" for text in error.problems)) from None


def _name(name: str, fn: Callable[..., Any], declared: Any) -> str:
    """What an evaluator is called. Raises InputError for a name that no condition could have."""
    if declared is None:
        return str(getattr(fn, "__name__", type(fn).__name__))
    if declared != getattr(fn, "wtb_name", None) and not (isinstance(declared, str) and declared.isidentifier()):
        raise InputError(f"evaluator {name!r}: 'name' is {declared!r:.50}; expected letters, digits and underscores")
    return str(declared)


def _function(name: str, resolve: Callable[[str], Any]) -> Any:
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name in BY_PATH or ":" in name:
        return resolve(BY_PATH.get(name, name))
    raise InputError(unknown_evaluator(name) or "")


def unknown_evaluator(name: str) -> str | None:
    """Return what is wrong with the name of an evaluator; None if there is one, or it is an import path."""
    names = [*BUILT_IN, *BY_PATH]
    if name in names or ":" in name:
        return None
    if name in _OF_PROMPTFOO:
        return f"there is no evaluator {name!r}; use {_OF_PROMPTFOO[name]}"
    known = f"; expected one of {', '.join(names)}, or an import path 'pkg.module:function'"
    return f"there is no evaluator {name!r}{did_you_mean(name, names) or known}"


def _pattern_problem(field: str, expected: Any) -> str | None:
    """What is wrong with the pattern that a case expects, in words."""
    pattern = filled_value(expected, field)
    wrong = pattern_problem(pattern) if isinstance(pattern, str) else None
    return None if wrong is None else f"its pattern is taken from 'expected': {wrong}"


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
