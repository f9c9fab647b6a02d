"""Evaluators: functions of a case and its result that give a score, several named ones, or none.

@evaluator(better="lower")
def words(case, result) -> float:
    return len(result.state["answer"].split())
"""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from wtb.authoring.context.surroundings import AttemptWorkspace, Surroundings
from wtb.authoring.evaluation import regex_search
from wtb.core.errors import InputError, StateError, did_you_mean
from wtb.core.failures import Failure, check_interrupt
from wtb.core.scoring.measure import Better, Compare, Measure, Score
from wtb.core.scoring.scales import (
    LEFT_OUT,
    PASS_OR_FAIL,
    OnFailure,
    Scale,
    failure_scores,
    placed,
    returns_bool,
    scale_of,
)
from wtb.core.serialization.codec import decode
from wtb.core.serialization.plain_json import storable
from wtb.core.stop import Stopped
from wtb.core.tree.checkpoints import Totals
from wtb.core.units import LONGEST_S
from wtb.core.values import Values

EVALUATION_S = 60.0  # that an evaluator may take for a cell
METRIC = 200  # characters of the name of a metric
MOST_METRICS = 1000  # of one evaluator
Fn = TypeVar("Fn", bound=Callable[..., Any])


def evaluator(
    *,
    better: Better | Mapping[str, Better] | None = None,
    name: str | None = None,
    compare: Compare = "mean",
    timeout: float | None = None,
    scale: Scale | Mapping[str, Scale] | None = None,
    on_failure: OnFailure | Mapping[str, OnFailure] | None = None,
) -> Callable[[Fn], Fn]:
    """Declare properties of an evaluator: a function `(case, result) -> bool | float | dict`.

    `case` has `id`, `input`, `expected` and `tags`; `result` is a `wtb.testing.CellResult`. Of a function that returns
    a dict, each key is a metric, and `better`, `scale` and `on_failure` may be mappings by key.

    Args:
        better: `higher` or `lower`: which scores are better.
        name: The metric's name; by default the function's.
        compare: The figure of the differences by which combinations are compared. `median` is for durations and
            the like, a few of which are far from the others for reasons of their own.
        timeout: Seconds that it may take for a cell if the sweep says nothing else; by default 60.
        scale: The lowest and the highest score that it gives, such as (0, 1). A score outside is an error, and a cell
            that fails counts as the worse end. A function annotated `-> bool` has (0, 1).
        on_failure: The score of a cell that fails, or `left_out`.

    Returns:
        A decorator that returns the function itself.

    Example:
        >>> from wtb import evaluator
        >>> from wtb.testing import CellResult, ScoredCase
        >>> @evaluator(better="lower", scale=(0, 100))
        ... def surplus(case, result):
        ...     return max(0, len(result.state["answer"]) - len(case.expected))
        >>> surplus(ScoredCase("why", {}, expected="42"), CellResult({"answer": "It is 42."}))
        7
    """

    def declare(fn: Fn) -> Fn:
        fn.wtb_better = better  # type: ignore[attr-defined]
        fn.wtb_name = name  # type: ignore[attr-defined]
        fn.wtb_compare = compare  # type: ignore[attr-defined]
        fn.wtb_timeout = timeout  # type: ignore[attr-defined]
        fn.wtb_scale = scale  # type: ignore[attr-defined]
        fn.wtb_on_failure = on_failure  # type: ignore[attr-defined]
        return fn

    return declare


@dataclass(frozen=True)
class ScoredCase:
    """The case as an evaluator sees it.

    Args:
        id: Its id.
        input: Its input, by key of the state.
        expected: What is expected of it; None if the dataset does not say.
        tags: Its tags.

    Example:
        >>> from wtb.testing import ScoredCase
        >>> ScoredCase("parcel", {"message": "my parcel is lost"}, expected="urgent").expected
        'urgent'
    """

    id: str
    input: dict[str, Any]
    expected: Any = None
    tags: tuple[str, ...] = ()


@dataclass
class CellResult:
    """What came of a cell, and what it took as if it had run alone.

    Args:
        state: Its final state, by key.
        path: The nodes in the order in which they ran.
        duration_s: Seconds.
        cost: US dollars.
        tokens_in: Tokens of prompts.
        tokens_out: Tokens of responses.
        node_runs: How many node runs it took.
        error: Why it failed, if it did.
        workspace_of: Opens its workspace; WTB gives it.

    Example:
        >>> from wtb.testing import CellResult
        >>> CellResult({"answer": 42}, cost=0.01).state["answer"]
        42
    """

    state: dict[str, Any]
    path: tuple[str, ...] = ()
    duration_s: float = 0.0
    cost: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    node_runs: int = 0
    error: str | None = None
    workspace_of: Callable[[], Path] | None = field(default=None, repr=False)

    @cached_property
    def workspace(self) -> Path:
        """A directory with the files as the last node left them; it is removed after the evaluation.

        Raises:
            RuntimeError: If the result was made without one.
        """
        if self.workspace_of is None:
            raise RuntimeError("this result was made without a workspace")
        return self.workspace_of()


def beyond_scale(metric: str, loss: float, measure: Measure) -> str | None:
    """What is wrong with a loss that is more than the scale of a metric, in words, or None."""
    if measure.scale is None:
        return None
    low, high = measure.scale
    if loss <= high - low:
        return None
    expected = f"expected a loss in the unit of {metric!r}, at most {high - low:g}"
    return f"{loss:g} is more than its scale from {low:g} to {high:g}; {expected}"


@dataclass(frozen=True)
class Evaluator:
    """A named scoring function. better: None where nobody said; higher is taken to be.

    timeout: seconds that it may take for a cell. pattern_of: of the pattern that it takes from what is expected of a
    case, where it does. scale: the least and the greatest score, on_failure: that of a failed cell; by key for one
    that returns a dict.
    """

    name: str
    fn: Callable[[ScoredCase, CellResult], Any]
    better: Better | Mapping[str, Better] | None = None
    compare: Compare = "mean"
    timeout: float = EVALUATION_S
    pattern_of: Callable[[Any], Any] | None = None
    scale: Scale | Mapping[str, Scale] | None = None
    on_failure: OnFailure | Mapping[str, OnFailure] | None = None

    def problem(self, expected: Any) -> str | None:
        """What is wrong with what a case says is expected, in words."""
        pattern = None if self.pattern_of is None else self.pattern_of(expected)
        wrong = pattern_problem(pattern) if isinstance(pattern, str) else None
        return None if wrong is None else f"evaluator {self.name!r} takes its pattern from 'expected': {wrong}"

    def check_failure_scores(self, of_sweep: OnFailure | None = None) -> None:
        """Refuse scores of failed cells that lie outside a declared scale. Raises InputError.

        of_sweep: what the sweep says for evaluators that do not say it.
        """
        by_key = [one for one in (self.scale, self.on_failure) if isinstance(one, Mapping)]
        for key in dict.fromkeys(key for one in by_key for key in one) if by_key else [""]:
            scale, own = self._scale_of(key), self._failure_score_of(key)
            score = of_sweep if own is None else own
            if scale is None or not isinstance(score, float | int) or scale[0] <= score <= scale[1]:
                continue
            what = f"the on_failure of {key!r}" if key else "on_failure"
            expected = f"expected a score on its scale, {scale[0]:g} to {scale[1]:g}, or {LEFT_OUT}"
            raise InputError(f"evaluator {self.name!r}: {what} is {score:g}; {expected}")

    def _scale_of(self, key: str) -> Scale | None:
        return self.scale.get(key) if isinstance(self.scale, Mapping) else self.scale

    def _failure_score_of(self, key: str) -> OnFailure | None:
        return self.on_failure.get(key) if isinstance(self.on_failure, Mapping) else self.on_failure

    def gives(self, metric: str) -> bool:
        """Whether a metric is one of those that it gives."""
        return metric == self.name or metric.startswith(f"{self.name}.")

    def measure(self, metric: str) -> Measure:
        key = metric.removeprefix(f"{self.name}.")
        better = self.better.get(key) if isinstance(self.better, Mapping) else self.better
        low, high = self._scale_of(key) or (None, None)
        on_failure = self._failure_score_of(key)
        return Measure(better or "higher", better is not None, self.compare, low, high, on_failure)


@dataclass(frozen=True, slots=True)
class EvaluationTask:
    """A finished cell in encoded form, to be scored where user code runs."""

    case_id: str
    tags: tuple[str, ...]
    input: Values
    expected: bytes | None
    state: Values
    path: tuple[str, ...]
    totals: Totals
    workspace: str | None = None


def evaluate(
    task: EvaluationTask,
    evaluators: Sequence[Evaluator],
    surroundings: Surroundings,
    scored: Callable[[list[Score]], None] = lambda scores: None,
) -> list[Score]:
    """Score one cell. A failing evaluator fails its score, visibly, and nothing else.

    scored: takes the scores of each evaluator but the last as soon as they are there; those of the last are returned.
    """
    made: list[Score] = []
    for number, one in enumerate(evaluators):
        if number:
            scored(made)
        made = _score(one, task, surroundings)
    return made


def unscored(one: Evaluator, failure: Failure) -> Score:
    """The score that an evaluator does not give, and why."""
    return Score(one.name, None, one.measure(one.name), str(failure))


def _score(one: Evaluator, task: EvaluationTask, surroundings: Surroundings) -> list[Score]:
    opened: list[AttemptWorkspace] = []

    def workspace() -> Path:
        opened.append(surroundings.workspace(task.workspace))
        return opened[0].path

    case = ScoredCase(
        task.case_id,
        {name: decode(value.data) for name, value in task.input.items()},
        None if task.expected is None else decode(task.expected),
        task.tags,
    )
    result = CellResult(
        {name: decode(value.data) for name, value in task.state.items()},
        task.path,
        task.totals.elapsed_s,
        task.totals.usd,
        task.totals.tokens_in,
        task.totals.tokens_out,
        task.totals.node_runs,
        workspace_of=workspace,
    )
    try:
        with regex_search.within(one.timeout):
            return _read(one, _called(one, case, result, surroundings))
    except Stopped:  # of the run, not of the evaluator
        raise
    except BaseException as error:
        check_interrupt(error, own_process=surroundings.own_process)
        failure = Failure.of(error)
        if failure.kind == "disk":  # of which the cell is not to blame
            raise
        where = failure.trace.strip().splitlines()
        at = f" ({where[-2].strip() if len(where) > 1 else where[-1].strip()})" if where else ""
        return [Score(one.name, None, one.measure(one.name), f"{failure}{at}")]
    finally:
        if opened:
            opened[0].close(keep=False)


def _called(one: Evaluator, case: ScoredCase, result: CellResult, surroundings: Surroundings) -> Any:
    """What an evaluator returns. Where it has a process of its own, the runner ends that at the deadline."""
    own = getattr(one.fn, "func", one.fn)
    if surroundings.own_process or any(own is fn for fn, _ in BUILT_IN.values()):
        return surroundings.call(one.fn, case, result, timeout=None)
    return surroundings.call(one.fn, case, result, timeout=one.timeout)


def _read(one: Evaluator, returned: Any) -> list[Score]:
    if not isinstance(returned, Mapping):
        return [_number(one, one.name, returned)]
    found: dict[str, Score] = {}
    for key, value in returned.items():
        metric = storable(f"{one.name}.{key}", METRIC)
        if metric in found or len(found) == MOST_METRICS:
            more = f"more than {MOST_METRICS:,} metrics" if metric not in found else f"the metric {metric!r} twice"
            raise StateError(f"it returned {more}")
        found[metric] = _number(one, metric, value)
    return list(found.values())


def _number(one: Evaluator, metric: str, value: Any) -> Score:
    measure = one.measure(metric)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        expected = "expected a bool, a number or a dict of them"
        return Score(metric, None, measure, storable(f"returned {type(value).__name__}; {expected}"))
    if not math.isfinite(number):
        return Score(metric, None, measure, f"returned {number}; a score must be finite")
    if measure.scale is None:
        return Score(metric, number, measure)
    on_scale = placed(number, *measure.scale)
    if on_scale is None:
        declared = f"outside the declared scale from {measure.low:g} to {measure.high:g}"
        return Score(metric, None, measure, f"returned {number:g}; {declared}")
    return Score(metric, on_scale, measure)


# Built in. Each maker takes the options that stand in the sweep file.


def _field(result: CellResult, name: str) -> Any:
    if name not in result.state:
        raise InputError(f"the final state has no key {name!r}{did_you_mean(name, result.state)}")
    return result.state[name]


def _expected(case: ScoredCase, name: str) -> Any:
    """What is expected of a field: `expected[field]` where it is a mapping that has it, else `expected`."""
    if isinstance(case.expected, Mapping) and name in case.expected:
        return case.expected[name]
    return case.expected


def exact_match(case: ScoredCase, result: CellResult, *, field: str, ignore_case: bool = False) -> bool:
    found, expected = _field(result, field), _expected(case, field)
    if ignore_case and isinstance(found, str) and isinstance(expected, str):
        return found.strip().casefold() == expected.strip().casefold()
    return bool(found == expected)


def contains(case: ScoredCase, result: CellResult, *, field: str, text: str | None = None) -> bool:
    found = _field(result, field)
    wanted = _expected(case, field) if text is None else text
    return all(one in found for one in wanted) if isinstance(wanted, list) else wanted in found


def regex(case: ScoredCase, result: CellResult, *, field: str, pattern: str | None = None) -> bool:
    wanted = _expected(case, field) if pattern is None else pattern
    return regex_search.search(wanted, str(_field(result, field)))


def numeric_close(case: ScoredCase, result: CellResult, *, field: str, abs: float = 1e-9, rel: float = 1e-6) -> bool:
    found, expected = float(_field(result, field)), float(_expected(case, field))
    return math.isclose(found, expected, abs_tol=abs, rel_tol=rel)


def json_schema(case: ScoredCase, result: CellResult, *, field: str, schema: dict[str, Any]) -> bool:
    found = _field(result, field)
    if isinstance(found, str):
        import json

        try:
            found = json.loads(found)
        except json.JSONDecodeError:
            return False
    return regex_search.fits(schema, found)


def latency(case: ScoredCase, result: CellResult) -> float:
    return result.duration_s


def cost(case: ScoredCase, result: CellResult) -> float:
    return result.cost


def tokens(case: ScoredCase, result: CellResult) -> float:
    return float(result.tokens_in + result.tokens_out)


def node_runs(case: ScoredCase, result: CellResult) -> float:
    return float(result.node_runs)


MEASURED = (latency, cost, tokens, node_runs)  # of what a cell takes, not of what it comes to
BUILT_IN: Mapping[str, tuple[Callable[..., Any], Better]] = {
    "exact_match": (exact_match, "higher"),
    "contains": (contains, "higher"),
    "regex": (regex, "higher"),
    "numeric_close": (numeric_close, "higher"),
    "json_schema": (json_schema, "higher"),
    "latency": (latency, "lower"),
    "cost": (cost, "lower"),
    "tokens": (tokens, "lower"),
    "node_runs": (node_runs, "lower"),
}


def make_evaluator(
    name: str, options: Mapping[str, Any], resolve: Callable[[str], Any], fn: Callable[..., Any] | None = None
) -> Evaluator:
    """An evaluator by built-in name or import path, with options. Raises InputError, naming a near match."""
    shown: str = name
    better: Better | Mapping[str, Better] | None
    if fn is None and name in BUILT_IN:
        fn, better = BUILT_IN[name]
        compare: Compare = "median" if fn is latency else "mean"
    else:
        if fn is None:
            if ":" not in name:
                known = f"; expected one of {', '.join(BUILT_IN)}, or an import path 'pkg.module:function'"
                raise InputError(f"there is no evaluator {name!r}{did_you_mean(name, BUILT_IN) or known}")
            fn = resolve(name)
        if not callable(fn):
            raise InputError(f"evaluator {name!r} is of type {type(fn).__name__}; expected a function (case, result)")
        better = _declared(name, getattr(fn, "wtb_better", None))
        compare = _compared(name, getattr(fn, "wtb_compare", "mean"))
        shown = str(getattr(fn, "wtb_name", None) or getattr(fn, "__name__", type(fn).__name__))
    is_built_in = any(fn is one for one, _ in BUILT_IN.values())
    timeout = options.get("timeout", getattr(fn, "wtb_timeout", None))
    if not _takes(fn, "timeout"):
        options = {key: value for key, value in options.items() if key != "timeout"}
    scale: Scale | Mapping[str, Scale] | None
    on_failure: OnFailure | Mapping[str, OnFailure] | None = None
    if fn in MEASURED:
        scale, on_failure = None, LEFT_OUT
    else:
        scale = PASS_OR_FAIL if is_built_in or returns_bool(fn) else None
        options, declared = _declarations(fn, options, () if is_built_in else ("scale",))
        scale = scale_of(name, declared["scale"]) or scale
        on_failure = failure_scores(name, declared["on_failure"])
    _check_options(name, fn, options)
    pattern_of = None
    if is_built_in:
        _check_built_in(name, options)
        if fn is regex and options.get("pattern") is None:
            pattern_of = partial(_pattern_of, options["field"])
    limit = EVALUATION_S if timeout is None else _seconds(name, timeout)
    given: Callable[..., Any] = partial(fn, **options) if options else fn
    made = Evaluator(shown, given, better, compare, limit, pattern_of, scale, on_failure)
    made.check_failure_scores()
    return made


def _declarations(
    fn: Callable[..., Any], options: Mapping[str, Any], more: Sequence[str]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The options of a function's own, and what else is declared of its scores: in the sweep file, else on it."""
    declared = {key: getattr(fn, f"wtb_{key}", None) for key in ("scale", "on_failure")}
    for key in ("on_failure", *more):
        if key in options and not _takes(fn, key):
            declared[key] = options[key]
            options = {option: value for option, value in options.items() if option != key}
    return options, declared


def _pattern_of(field: str, expected: Any) -> Any:
    return _expected(ScoredCase("", {}, expected), field)


def _seconds(name: str, timeout: Any) -> float:
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout <= LONGEST_S:
        raise InputError(f"evaluator {name!r}: 'timeout' is {timeout!r:.50}; expected seconds, such as 60")
    return float(timeout)


def _takes(fn: Callable[..., Any], option: str) -> bool:
    try:
        parameter = inspect.signature(fn).parameters.get(option)
    except ValueError:
        return False
    return parameter is not None and parameter.kind is parameter.KEYWORD_ONLY


# What an option of a built-in evaluator may be, and that in words.
_OPTIONS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "field": (str, "the name of a key of the state"),
    "ignore_case": (bool, "true or false"),
    "text": ((str, list, tuple), "a text or a list of texts"),
    "pattern": (str, "a regular expression"),
    "abs": ((int, float), "a number from 0 on"),
    "rel": ((int, float), "a number from 0 on"),
}


def _check_built_in(name: str, options: Mapping[str, Any]) -> None:
    """Raises InputError for options of a built-in evaluator that can give no score."""
    for option, value in options.items():
        kind, expected = _OPTIONS.get(option, (object, ""))
        fits = isinstance(value, kind)
        if fits and isinstance(value, int | float) and option != "ignore_case":
            fits = not isinstance(value, bool) and value >= 0
        if value is not None and not fits:
            raise InputError(f"evaluator {name!r}: {option!r} is {value!r:.50}; expected {expected}")
    if (pattern := options.get("pattern")) is not None and (wrong := pattern_problem(pattern)):
        raise InputError(f"evaluator {name!r}: 'pattern' is {wrong}")
    if "schema" in options:
        _check_schema(name, options["schema"])


def pattern_problem(pattern: str) -> str | None:
    """What is wrong with a regular expression, in words; None where nothing is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"{pattern!r:.100}, which is no regular expression ({error}); expected one as Python's `re` takes it"
    return None


def _declared(name: str, better: Any) -> Better | Mapping[str, Better] | None:
    """The direction that an evaluator declares, if any. Raises InputError."""
    if better is None:
        return None
    each = better.values() if isinstance(better, Mapping) else [better]
    for one in each:
        if one not in ("higher", "lower"):
            raise InputError(f"evaluator {name!r}: better is {one!r:.50}; expected 'higher' or 'lower'")
    declared: Better | Mapping[str, Better] = better
    return declared


def _compared(name: str, compare: Any) -> Compare:
    if compare not in ("mean", "median"):
        raise InputError(f"evaluator {name!r}: compare is {compare!r:.50}; expected 'mean' or 'median'")
    found: Compare = compare
    return found


def _check_schema(name: str, schema: Any) -> None:
    from wtb.authoring.evaluation.json_schemas import check_schema

    try:
        check_schema(schema)
    except InputError as error:
        raise InputError(*(f"evaluator {name!r}: {text}" for text in error.problems)) from None


def _check_options(name: str, fn: Callable[..., Any], options: Mapping[str, Any]) -> None:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except ValueError:
        return
    known = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    for option in options:
        if option not in known:
            takes = ", ".join(known) or "no options"
            raise InputError(
                f"evaluator {name!r} takes no option {option!r}{did_you_mean(option, known)} (it takes: {takes})"
            )
    for parameter in known.values():
        if parameter.default is parameter.empty and parameter.name not in options:
            raise InputError(f"evaluator {name!r} needs the option {parameter.name!r}")
