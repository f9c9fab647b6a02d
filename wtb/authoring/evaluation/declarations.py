"""Evaluators from their declarations: a name, the options in the sweep file, and those of `@evaluator`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from wtb.authoring.evaluation.adapters import adapted
from wtb.authoring.evaluation.built_in import BUILT_IN, COMBINING, MEASURED, regex
from wtb.authoring.evaluation.combining import FAILED, USD, assertions
from wtb.authoring.evaluation.evaluator_options import (
    KEYS,
    PASS_OR_FAIL_PARTS,
    as_problems,
    check_built_in,
    check_options,
    problem_of_assertions,
    read_threshold,
    takes,
    with_parts,
)
from wtb.authoring.evaluation.evaluators import EVALUATION_S, CellResult, Evaluator, ScoredCase
from wtb.authoring.evaluation.fields import check_installed, expected_value, field_of, filled_value, json_of
from wtb.authoring.evaluation.regex_search import pattern_problem
from wtb.core.errors import InputError, WTBError, did_you_mean
from wtb.core.scoring.measure import Better, Compare, Figure, Kind, Passes, Threshold
from wtb.core.scoring.scores import LEFT_OUT, PASS_OR_FAIL, failure_scores, returns_bool, scale_of
from wtb.core.units import LONGEST_S
from wtb.core.values import Options

_OPTIONS: Mapping[str, Kind] = {"pass_at": "pass@", "pass_all": "pass^"}
_MAX_REPEATS = 9_999


def read_over_repeats(
    name: str, fn: Callable[..., Any], options: Options, *, passes_or_fails: bool
) -> tuple[Passes | None, Options]:
    """Read the figure over repeats that options name.

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
    requested = {key: options[key] for key in _OPTIONS if key in options and not takes(fn, key)}
    if not requested:
        return None, options
    if len(requested) > 1:
        raise InputError(f"evaluator {name!r}: both 'pass_at' and 'pass_all'; expected two evaluators with one of each")
    ((key, k),) = requested.items()
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= _MAX_REPEATS:
        raise InputError(f"evaluator {name!r}: {key!r} is {k!r:.50}; expected a number of repeats, such as 3")
    if not (passes_or_fails or returns_bool(fn) or fn in PASS_OR_FAIL_PARTS):
        raise InputError(
            f"evaluator {name!r}: {key!r} of scores that do not pass or fail; expected 'at_least' beside it"
        )
    return Passes(_OPTIONS[key], k), {option: setting for option, setting in options.items() if option != key}


_MAX_TEXT: Final = 120  # characters of a value
_Explain = Callable[[ScoredCase, CellResult, Options], str | None]


def explanation(name: str, options: Options) -> Callable[[ScoredCase, CellResult], str | None] | None:
    """Return a function that explains scores of a built-in evaluator other than the best; None if there is none.

    Args:
        name: That of the evaluator.
        options: Those that it is called with.
    """
    explain = _EXPLAIN.get(name)
    if explain is None:
        return None

    def explained(case: ScoredCase, result: CellResult) -> str | None:
        try:
            return explain(case, result, options)
        except (WTBError, ValueError, TypeError):  # the score stands without a reason
            return None

    return explained


def _exact_match(case: ScoredCase, result: CellResult, options: Options) -> str:
    field = options["field"]
    return f"{field} is {_shorten(field_of(result, field))}; expected {_shorten(expected_value(case.expected, field))}"


def _contains(case: ScoredCase, result: CellResult, options: Options) -> str:
    field = options["field"]
    answer, expected = field_of(result, field), _expected_by(case, options, "text")
    missing = [text for text in (expected if isinstance(expected, list) else [expected]) if text not in answer]
    return f"{', '.join(map(_shorten, missing))} is not in {field}"


def _contains_any(case: ScoredCase, result: CellResult, options: Options) -> str:
    expected = _expected_by(case, options, "text")
    texts = [expected] if isinstance(expected, str) else expected
    return f"none of {', '.join(map(_shorten, texts))} is in {options['field']}"


def _regex(case: ScoredCase, result: CellResult, options: Options) -> str:
    return f"the pattern {_shorten(_expected_by(case, options, 'pattern'))} is not found in {options['field']}"


def _json_schema(case: ScoredCase, result: CellResult, options: Options) -> str:
    field = options["field"]
    try:
        json_of(result, field)
    except ValueError as error:
        return f"{field} is no JSON: {error}"
    return f"{field} does not fit the schema: it is {_shorten(json_of(result, field))}"


def _tools_called(case: ScoredCase, result: CellResult, options: Options) -> str:
    field, tools = options["field"], options.get("tools")
    expected = expected_value(case.expected, field) if tools is None else tools
    order = options.get("order", "any")
    how = "" if order == "any" else f" ({order} order)"
    return f"expected calls of {_shorten(expected)}{how} in {field}"


def _tools_avoided(case: ScoredCase, result: CellResult, options: Options) -> str:
    return f"a tool was called that must be avoided: one of {_shorten(options['tools'])}"


def _expected_by(case: ScoredCase, options: Options, option: str) -> Any:
    override = options.get(option)
    return filled_value(case.expected, options["field"]) if override is None else override


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


_EXPLAIN: Final[Mapping[str, _Explain]] = {
    "exact_match": _exact_match,
    "json_equal": _exact_match,
    "numeric_close": _exact_match,
    "quantity_close": _exact_match,
    "contains": _contains,
    "contains_any": _contains_any,
    "regex": _regex,
    "json_schema": _json_schema,
    "tools_called": _tools_called,
    "tools_avoided": _tools_avoided,
}


# Imported and run with user code only, never for remote callers, because their effects reach beyond the process.
BY_PATH: Mapping[str, str] = {
    "code_tests": "wtb.authoring.evaluation.code_tests:code_tests",
    "judge": "wtb.integrations.judge:judge",
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
    is_built_in = any(fn is built_in for built_in in BUILT_IN.values())
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
        as_problems(name, partial(fn.wtb_check, options))
    if hasattr(fn, "wtb_declare"):
        declared |= _declared_by_options(name, fn, options, declared["on_failure"], threshold)
    problem_of: Callable[[Any], str | None] | None = None
    if is_built_in:
        check_built_in(name, options)
        if fn is regex and options.get("pattern") is None:
            problem_of = partial(_pattern_problem, options["field"])
        elif name == assertions.__name__:
            problem_of = partial(problem_of_assertions, options)
    bound: Callable[..., Any] = partial(fn, **options) if options else fn
    evaluator = Evaluator(
        _name(name, fn, declared["name"]) if passes is None or own_name else str(passes),
        bound,
        _direction(name, declared["better"]),
        _comparison(name, declared["compare"]),
        EVALUATION_S if declared["timeout"] is None else _timeout(name, declared["timeout"]),
        problem_of,
        scale_of(name, declared["scale"]) or (PASS_OR_FAIL if threshold or returns_bool(fn) else None),
        failure_scores(name, declared["on_failure"]),
        is_built_in,
        threshold,
        figure,
        # Only for these functions is it known that the option `field` names a key of the final state.
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
    """Return the keys of the final state that options name, including those of parts."""
    own = [options["field"]] if options.get("field") is not None else []
    return dict.fromkeys([*own, *(key for part in options.get("of", ()) for key in part.evaluator.reads)])


def _declared(
    fn: Callable[..., Any], options: Options, *, is_built_in: bool, passes_or_fails: bool
) -> tuple[dict[str, Any], Options]:
    """Return the declarations of an evaluator, as its options override them, and the options of the function itself."""
    declared = {key: getattr(fn, f"wtb_{key}", None) for key in _DECLARED}
    if passes_or_fails:  # whatever its score is
        declared |= {"better": "higher", "compare": "mean", "scale": None, "on_failure": None}
    overridable = {"name", "timeout", *KEYS}
    if fn not in MEASURED or passes_or_fails:
        overridable.add("on_failure")
    if not is_built_in and not hasattr(fn, "wtb_declare"):
        overridable.add("scale")
    overrides = {key: options[key] for key in options if key in overridable and not takes(fn, key)}
    declared |= {key: setting for key, setting in overrides.items() if key in declared}
    if "timeout" in options:  # its deadline, also where the function has the option
        declared["timeout"] = options["timeout"]
    return declared, {key: setting for key, setting in options.items() if key not in overrides}


def _declared_by_options(name: str, fn: Any, options: Options, on_failure: Any, threshold: Threshold | None) -> Options:
    """Return the declarations of an evaluator of several metrics by its options. Raises InputError for wrong ones."""
    if threshold is not None:
        raise InputError(
            f"evaluator {name!r}: 'at_least' or 'at_most' of several metrics; expected a gate on one of them"
        )
    declared: Options = as_problems(name, partial(fn.wtb_declare, options, on_failure))
    return declared


def _combining(name: str, options: Options, declared: dict[str, Any], resolve: Callable[[str], Any]) -> Options:
    """Return the options of a combined evaluator with its parts, and change its declarations by these."""
    combined = with_parts(name, options, lambda part, its: make_evaluator(part, its, resolve), declared["timeout"])
    # `not` is a word of conditions, so it cannot name a metric in them.
    if name == "not" and declared["name"] is None:
        declared["name"] = f"not_{combined['of'][0].evaluator.name}"
    if name == assertions.__name__ or any(part.asks for part in combined["of"]):
        declared |= _declared_with_judges(declared)
    return combined


def _declared_with_judges(declared: Options) -> dict[str, Any]:
    """Return the declarations of a combined evaluator with judges, including those of their cost and failures."""
    of_score = {} if declared["on_failure"] is None else {"": declared["on_failure"]}
    return {
        "better": {"": "higher", FAILED: "lower", USD: "lower"},
        "scale": {"": PASS_OR_FAIL, FAILED: PASS_OR_FAIL},
        "on_failure": {**of_score, FAILED: LEFT_OUT, USD: LEFT_OUT},
    }


def _check_figure(name: str, threshold: Threshold | None, options: Options) -> None:
    """Reject options that only scores of cells can have. Raises InputError."""
    if threshold is not None:
        near = f"expected a gate, such as {options.get('name', name)} > 0.8"
        raise InputError(f"evaluator {name!r}: 'at_least' or 'at_most' of a figure over all cells of a row; {near}")
    score = options.get("on_failure")
    if score not in (None, LEFT_OUT):
        raise InputError(
            f"evaluator {name!r}: 'on_failure' is {score!r:.50}; a failed cell counts as wrong, or is left out with "
            f"{LEFT_OUT}"
        )


def _name(name: str, fn: Callable[..., Any], declared: Any) -> str:
    """Return the name of an evaluator. Raises InputError for a name that no condition could have."""
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
    """Return the problem of the name of an evaluator; None if it exists, or is an import path."""
    names = [*BUILT_IN, *BY_PATH]
    if name in names or ":" in name:
        return None
    if name in _OF_PROMPTFOO:
        return f"there is no evaluator {name!r}; use {_OF_PROMPTFOO[name]}"
    expected = f"; expected one of {', '.join(names)}, or an import path 'pkg.module:function'"
    return f"there is no evaluator {name!r}{did_you_mean(name, names) or expected}"


def _pattern_problem(field: str, expected: Any) -> str | None:
    """Return the problem of the pattern that a case expects, or None."""
    pattern = filled_value(expected, field)
    wrong = pattern_problem(pattern) if isinstance(pattern, str) else None
    return None if wrong is None else f"its pattern is taken from 'expected': {wrong}"


def _timeout(name: str, timeout: Any) -> float:
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout <= LONGEST_S:
        raise InputError(f"evaluator {name!r}: 'timeout' is {timeout!r:.50}; expected seconds, such as 60")
    return float(timeout)


def _direction(name: str, better: Any) -> Better | Mapping[str, Better] | None:
    """Return the direction that an evaluator declares, if any. Raises InputError."""
    if better is None:
        return None
    each = better.values() if isinstance(better, Mapping) else [better]
    for direction in each:
        if direction not in ("higher", "lower"):
            raise InputError(f"evaluator {name!r}: better is {direction!r:.50}; expected 'higher' or 'lower'")
    declared: Better | Mapping[str, Better] = better
    return declared


def _comparison(name: str, compare: Any) -> Compare:
    compare = compare or "mean"
    if compare not in ("mean", "median"):
        raise InputError(f"evaluator {name!r}: compare is {compare!r:.50}; expected 'mean' or 'median'")
    checked: Compare = compare
    return checked
