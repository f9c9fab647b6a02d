"""Evaluators: functions of a case and its result that give a score, several named ones, or none.

@evaluator(better="lower")
def words(case, result) -> float:
    return len(result.state["answer"].split())
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from wtb.authoring.context.surroundings import AttemptWorkspace, Surroundings
from wtb.authoring.evaluation import regex_search
from wtb.core.errors import InputError, StateError
from wtb.core.failures import Failure, call_again, check_interrupt
from wtb.core.frozen import frozen
from wtb.core.provider_faults import lost_to
from wtb.core.scoring import scores as reasons
from wtb.core.scoring.measure import (
    Better,
    Compare,
    Figure,
    Label,
    Measure,
    Observed,
    Passes,
    Score,
    Threshold,
    write_observed,
)
from wtb.core.scoring.scores import (
    LEFT_OUT,
    OnFailure,
    Scale,
    placed,
    stored_reason,
)
from wtb.core.serialization.codec import decode
from wtb.core.serialization.plain_json import readable, storable
from wtb.core.stop import Stopped
from wtb.core.tree.checkpoints import Totals
from wtb.core.values import Arguments, State, Values

EVALUATION_S = 60.0  # that an evaluator may take for a cell
_SHARE_OF_TIME = 0.9  # of that, in which it may begin again after a failure of a provider
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
    """Declare properties of an evaluator: a function `(case, result) -> bool | float | wtb.Score | dict`.

    `case` has `id`, `input`, `expected` and `tags`; `result` is a `wtb.testing.CellResult`. To give the reason for a
    score, return `wtb.Score(value, reason)` instead of a number. Of a function that returns a dict, each key is a
    metric NAME.KEY, the key "" the one that has the evaluator's own name; `better`, `scale` and `on_failure` may be
    mappings by key.

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

    declared = (
        ("better", better),
        ("name", name),
        ("compare", compare),
        ("timeout", timeout),
        ("scale", scale),
        ("on_failure", on_failure),
    )

    def declare(fn: Fn) -> Fn:
        for key, setting in declared:
            setattr(fn, f"wtb_{key}", setting)
        return fn

    return declare


@frozen
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
    input: State
    expected: Any = None
    tags: tuple[str, ...] = ()


@dataclass
class CellResult:
    """The result of a cell, with the time and money it would have taken if it had run alone.

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
        judgements: Where replies of judges are kept; WTB gives it.

    Example:
        >>> from wtb.testing import CellResult
        >>> CellResult({"answer": 42}, cost=0.01).state["answer"]
        42
    """

    state: State
    path: tuple[str, ...] = ()
    duration_s: float = 0.0
    cost: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    node_runs: int = 0
    error: str | None = None
    workspace_of: Callable[[], Path] | None = field(default=None, repr=False)
    judgements: Path | None = field(default=None, repr=False)

    @cached_property
    def workspace(self) -> Path:
        """A directory with the files as the last node left them; it is removed after the evaluation.

        Raises:
            RuntimeError: If the result was made without one.
        """
        if self.workspace_of is None:
            raise RuntimeError("this result was made without a workspace")
        return self.workspace_of()


@frozen
class Unscored:
    """The reason why an evaluator gives no score, returned instead of it. The score then fails; it is not 0."""

    reason: str


@frozen
class Versioned:
    """A score, or why there is none, with the version of the model that gave it and its reason."""

    value: float | Unscored
    version: str | None
    reason: str | None = None


@frozen
class Priced:
    """The cost of judgements, and the part of it that was spent now; None if unknown."""

    value: float | Unscored
    spent: float | None


def beyond_scale(metric: str, loss: float, measure: Measure) -> str | None:
    """Return the reason why a loss is more than the scale of a metric allows, or None."""
    if measure.scale is None:
        return None
    low, high = measure.scale
    if loss <= high - low:
        return None
    expected = f"expected a loss in the unit of {metric!r}, at most {high - low:g}"
    return f"{loss:g} is more than its scale from {low:g} to {high:g}; {expected}"


@frozen
class Evaluator:
    """A named scoring function.

    Attributes:
        name: The name of its metric, or the beginning of the names of several.
        fn: The function.
        better: `higher` or `lower`, by key if it returns a dict. None if it is not declared; higher is better then.
        compare: The figure by which combinations are compared.
        timeout: Seconds that it may take for a cell.
        problem_of: Returns the problem of the expected value of a case; None if there is nothing to check.
        scale: The lowest and the highest score, by key if it returns a dict.
        on_failure: The score of a failed cell, by key if it returns a dict.
        is_built_in: It is one of WTB's own.
        threshold: The threshold of scores that pass, if its score is only pass or fail.
        figure: A figure over all cells of a row, for which it returns what it observed of each cell.
        reads: Keys of the final state that its options name.
        lacks: Returns whether a case lacks the expected value that it needs.
        passes: The figure over the repeats of a case by which combinations are compared.
        class_of: Reads the class of a case from its expected value, for a figure over all cells of a row.
        explain: Returns the reason why a cell does not have the best score. Only for built-in evaluators.
    """

    name: str
    fn: Callable[[ScoredCase, CellResult], Any]
    better: Better | Mapping[str, Better] | None = None
    compare: Compare = "mean"
    timeout: float = EVALUATION_S
    problem_of: Callable[[Any], str | None] | None = None
    scale: Scale | Mapping[str, Scale] | None = None
    on_failure: OnFailure | Mapping[str, OnFailure] | None = None
    is_built_in: bool = False
    threshold: Threshold | None = None
    figure: Figure | None = None
    reads: Collection[str] = ()
    lacks: Callable[[Any], bool] | None = None
    passes: Passes | None = None
    class_of: Callable[[Any], Label] | None = None
    explain: Callable[[ScoredCase, CellResult], str | None] | None = None

    @property
    def may_ask_judges(self) -> bool:
        """Return whether it is built in and combines others, among which there may be judges."""
        return self.is_built_in and isinstance(self.better, Mapping)

    def score_of(self, case: ScoredCase, result: CellResult) -> float:
        """Return the score that a built-in evaluator of one number gives a cell; 1 or 0 if it has a threshold."""
        return self.judged(float(self.fn(case, result)))

    def judged(self, number: float) -> float:
        """Return a score as it counts: itself, or 1 or 0 by the threshold."""
        return number if self.threshold is None else float(self.threshold.passes(number))

    def lacks_expected(self, expected: Any) -> bool:
        """Return whether it needs an expected value and the case has none, so that the cell gets no score."""
        return self.lacks is not None and self.lacks(expected)

    def problem(self, expected: Any) -> str | None:
        """Return the problem of the expected value of a case, or None."""
        wrong = None if self.problem_of is None else self.problem_of(expected)
        return None if wrong is None else f"evaluator {self.name!r}: {wrong}"

    def check_passes(self) -> None:
        """Reject a figure over repeats of several metrics. Raises InputError."""
        if self.passes is not None and isinstance(self.better, Mapping):
            raise InputError(f"evaluator {self.name!r} gives several metrics; expected one that passes or fails")

    def problem_of_repeats(self, repeats: int) -> str | None:
        """Return the reason why there are too few repeats of each case; None if there are enough."""
        if self.passes is None or self.passes.k <= repeats:
            return None
        has = "1 repeat" if repeats == 1 else f"{repeats:,} repeats"
        return f"{self.passes} needs {self.passes.k:,} repeats of each case, and the sweep has {has}"

    def check_failure_scores(self, of_sweep: OnFailure | None = None) -> None:
        """Reject scores of failed cells outside of a declared scale. Raises InputError.

        Args:
            of_sweep: The score that the sweep gives for evaluators which declare none.
        """
        by_key = [mapping for mapping in (self.scale, self.on_failure) if isinstance(mapping, Mapping)]
        for key in dict.fromkeys(key for mapping in by_key for key in mapping) if by_key else [""]:
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
        """Return whether a metric is one of those that it gives."""
        return metric == self.name or metric.startswith(f"{self.name}.")

    def measure(self, metric: str) -> Measure:
        key = "" if metric == self.name else metric.removeprefix(f"{self.name}.")
        better = self.better.get(key) if isinstance(self.better, Mapping) else self.better
        low, high = self._scale_of(key) or (None, None)
        on_failure = self._failure_score_of(key)
        passes = None if self.passes is None else str(self.passes)
        return Measure(better or "higher", better is not None, self.compare, low, high, on_failure, self.figure, passes)


@frozen(slots=True)
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

    Args:
        task: The cell.
        evaluators: The evaluators, in order.
        surroundings: The services of the process.
        scored: Receives the scores of each evaluator but the last as soon as they are there.

    Returns:
        The scores of the last evaluator.
    """
    latest_scores: list[Score] = []
    for number, evaluator in enumerate(evaluators):
        if number:
            scored(latest_scores)
        latest_scores = _score(evaluator, task, surroundings)
    return latest_scores


def score_now(scorer: Evaluator, case: ScoredCase, result: CellResult, seconds: float) -> list[Score]:
    """Score a result in this process, by an evaluator that is built in.

    Raises InputError with the error of the evaluator. `seconds` limits a search that another process makes.
    """
    if scorer.lacks_expected(case.expected):
        return [without_expected(scorer)]
    try:
        with regex_search.within(seconds):
            return _read(scorer, scorer.fn(case, result))
    except BaseException as error:
        check_interrupt(error)
        raise InputError(f"evaluator {scorer.name!r}: {Failure.of(error)}") from error


def unscored(evaluator: Evaluator, failure: Failure) -> Score:
    """Return a score without a value, with the failure that explains it."""
    return Score(evaluator.name, None, evaluator.measure(evaluator.name), str(failure))


def without_expected(scorer: Evaluator) -> Score:
    """Return the score of a case without an expected value for an evaluator: neither a value nor an error."""
    return Score(scorer.name, None, scorer.measure(scorer.name))


def scores_of_failed(evaluators: Sequence[Evaluator], expected: bytes | None) -> list[Score]:
    """Return the scores of a failed cell: only that its case has no expected value for some evaluators.

    By these metrics the failure does not count, because they do not score the case either way.

    Args:
        evaluators: Those of the sweep.
        expected: The encoded expected value. It is not decoded, which could import user code.
    """
    readable_value = None if expected is None else readable(expected)
    return [without_expected(evaluator) for evaluator in evaluators if evaluator.lacks_expected(readable_value)]


def _score(scorer: Evaluator, task: EvaluationTask, surroundings: Surroundings) -> list[Score]:
    opened: list[AttemptWorkspace] = []

    def workspace() -> Path:
        opened.append(surroundings.workspace(task.workspace))
        return opened[0].path

    case = ScoredCase(
        task.case_id,
        {name: decode(encoded.data) for name, encoded in task.input.items()},
        None if task.expected is None else decode(task.expected),
        task.tags,
    )
    result = CellResult(
        {name: decode(encoded.data) for name, encoded in task.state.items()},
        task.path,
        task.totals.elapsed_s,
        task.totals.usd,
        task.totals.tokens_in,
        task.totals.tokens_out,
        task.totals.node_runs,
        workspace_of=workspace,
        judgements=surroundings.judgements,
    )
    try:
        if scorer.lacks_expected(case.expected):
            return [without_expected(scorer)]
        with regex_search.within(scorer.timeout):
            longest_s = scorer.timeout * _SHARE_OF_TIME
            returned = call_again(lambda used_s: _called(scorer, case, result, surroundings, used_s), longest_s)
            return _explained(scorer, _read(scorer, returned), case, result)
    except Stopped:  # of the run, not of the evaluator
        raise
    except BaseException as error:
        check_interrupt(error, own_process=surroundings.own_process)
        failure = Failure.of(error)
        # A full disk is no fault of the evaluator, so it must not become a failed score.
        if failure.kind == "disk":
            raise
        where = failure.trace.strip().splitlines()
        at = f" ({where[-2].strip() if len(where) > 1 else where[-1].strip()})" if where else ""
        cause = f"{lost_to(failure.provider)}: " if failure.provider is not None else ""
        return [Score(scorer.name, None, scorer.measure(scorer.name), f"{cause}{failure}{at}")]
    finally:
        if opened:
            opened[0].close(keep=False)


def _explained(scorer: Evaluator, scores: list[Score], case: ScoredCase, result: CellResult) -> list[Score]:
    """Add the reason for a score that a built-in evaluator can explain."""
    if scorer.explain is None or len(scores) != 1:
        return scores
    (score,) = scores
    if score.value in (None, 1.0) or score.reason is not None:
        return scores
    return [replace(score, reason=stored_reason(scorer.explain(case, result)))]


def _called(
    evaluator: Evaluator, case: ScoredCase, result: CellResult, surroundings: Surroundings, used_s: float
) -> Any:
    """Call an evaluator. In a process of its own it gets no timeout: the runner ends the process at the deadline."""
    if surroundings.own_process or evaluator.is_built_in:
        return surroundings.call(evaluator.fn, case, result, timeout=None)
    return surroundings.call(evaluator.fn, case, result, timeout=evaluator.timeout - used_s)


def _read(scorer: Evaluator, returned: Any) -> list[Score]:
    if not isinstance(returned, Mapping):
        return [_number(scorer, scorer.name, returned)]
    by_metric: dict[str, Score] = {}
    for key, figure in returned.items():
        metric = scorer.name if key == "" else storable(f"{scorer.name}.{key}", METRIC)
        if metric in by_metric or len(by_metric) == MOST_METRICS:
            more = f"more than {MOST_METRICS:,} metrics" if metric not in by_metric else f"the metric {metric!r} twice"
            raise StateError(f"it returned {more}")
        by_metric[metric] = _number(scorer, metric, figure)
    return list(by_metric.values())


def _number(scorer: Evaluator, metric: str, figure: Any) -> Score:
    if isinstance(figure, Versioned | reasons.Score | Priced):
        return replace(_number(scorer, metric, figure.value), **_about(figure))
    measure = scorer.measure(metric)
    if isinstance(figure, Unscored):
        return Score(metric, None, measure, storable(figure.reason))
    # The scale is that of the figure over all cells, not of the value of one cell.
    if isinstance(figure, Observed):
        return Score(metric, figure.value, measure, observed=write_observed(figure.truth, figure.answer))
    try:
        number = float(figure)
    except (TypeError, ValueError, OverflowError):
        expected = "expected a bool, a number, a wtb.Score or a dict of them"
        return Score(metric, None, measure, storable(f"returned {type(figure).__name__}; {expected}"))
    if not math.isfinite(number):
        return Score(metric, None, measure, f"returned {number}; a score must be finite")
    # With judges, the threshold is for the score only, not for their cost and their failures.
    if metric == scorer.name or not isinstance(scorer.scale, Mapping):
        number = scorer.judged(number)
    if measure.scale is None:
        return Score(metric, number, measure)
    on_scale = placed(number, *measure.scale)
    if on_scale is None:
        declared = f"outside the declared scale from {measure.low:g} to {measure.high:g}"
        return Score(metric, None, measure, f"returned {number:g}; {declared}")
    return Score(metric, on_scale, measure)


def _about(score: Versioned | reasons.Score | Priced) -> Arguments:
    """Return everything that an evaluator returned about a score besides its value."""
    if isinstance(score, Priced):
        return {"spent": score.spent}
    reason = {"reason": stored_reason(score.reason)}
    if isinstance(score, reasons.Score):
        return reason
    return {**reason, "version": None if score.version is None else storable(score.version, METRIC)}
