"""Evaluators of predictions: classes and scores over all cells of a row, and rankings as trec_eval defines them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase, evaluator
from wtb.authoring.evaluation.fields import field_of, filled_value, needs_expected
from wtb.core.errors import InputError, describe
from wtb.core.scoring.measure import LABEL, OF_CLASSES, Better, Figure, Label, Observed
from wtb.core.scoring.scores import PASS_OR_FAIL
from wtb.core.serialization.plain_json import storable
from wtb.core.values import Options

Observing = Callable[..., Observed]


def _expected_class(options: Options, expected: Any) -> Label:
    """Return the expected class of a case. Raises InputError."""
    return _label(filled_value(expected, options["field"]), f"'expected' of {options['field']!r}")


def _expected_side(options: Options, expected: Any) -> int:
    """Return 1 if the expected class of a case is the positive one, else 0. Raises InputError."""
    return _is_positive(expected, options["field"], options.get("positive"))


def _over_row(figure: Figure, better: Better = "higher") -> Callable[[Observing], Observing]:
    """Declare that a function observes cells for a figure over all cells of a row."""

    def declare(fn: Observing) -> Observing:
        setattr(fn, "wtb_figure", figure)  # noqa: B010 (a function has no such attribute by its type)
        setattr(fn, "wtb_class_of", _expected_class if figure in OF_CLASSES else _expected_side)  # noqa: B010
        return needs_expected()(evaluator(better=better, scale=PASS_OR_FAIL)(fn))

    return declare


@_over_row("macro_f1")
def macro_f1(case: ScoredCase, result: CellResult, *, field: str) -> Observed:
    return _classes(case, result, field)


@_over_row("balanced_accuracy")
def balanced_accuracy(case: ScoredCase, result: CellResult, *, field: str) -> Observed:
    return _classes(case, result, field)


@_over_row("cohen_kappa")
def cohen_kappa(case: ScoredCase, result: CellResult, *, field: str) -> Observed:
    return _classes(case, result, field)


@_over_row("class_f1")
def class_f1(case: ScoredCase, result: CellResult, *, field: str, positive: Label) -> Observed:
    return _one_class(case, result, field, positive)


@_over_row("class_precision")
def class_precision(case: ScoredCase, result: CellResult, *, field: str, positive: Label) -> Observed:
    return _one_class(case, result, field, positive)


@_over_row("class_recall")
def class_recall(case: ScoredCase, result: CellResult, *, field: str, positive: Label) -> Observed:
    return _one_class(case, result, field, positive)


@_over_row("auc")
def auc(case: ScoredCase, result: CellResult, *, field: str, positive: Label = None) -> Observed:
    return Observed(_number(result, field), _is_positive(case.expected, field, positive))


@_over_row("calibration_error", better="lower")
def calibration_error(case: ScoredCase, result: CellResult, *, field: str, positive: Label = None) -> Observed:
    return Observed(_probability(result, field), _is_positive(case.expected, field, positive))


@needs_expected()
@evaluator(better="lower", scale=PASS_OR_FAIL)
def brier(case: ScoredCase, result: CellResult, *, field: str, positive: Label = None) -> float:
    return (_probability(result, field) - _is_positive(case.expected, field, positive)) ** 2


def _classes(case: ScoredCase, result: CellResult, field: str) -> Observed:
    expected, observed = _expected_class({"field": field}, case.expected), _observed_class(result, field)
    assert expected is not None, "a case without an expected value is not scored"
    return Observed(float(observed == expected), expected, observed)


def _one_class(case: ScoredCase, result: CellResult, field: str, positive: Label) -> Observed:
    expected, observed = _is_positive(case.expected, field, positive), int(_observed_class(result, field) == positive)
    return Observed(float(observed == expected), expected, observed)


def _observed_class(result: CellResult, field: str) -> Label:
    return _label(field_of(result, field), f"{field!r} of the final state")


def _label(label: Any, what: str) -> Label:
    """Return the name of a class: text, or a whole number (1 for true, 0 for false). Raises InputError."""
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    if isinstance(label, int) and abs(label) < 1 << 53:
        return int(label)
    if label is None:
        return None
    if not isinstance(label, str):
        raise InputError(f"{what} is {describe(label)}; expected the name of a class, or a whole number")
    return storable(label, LABEL)


def _is_positive(truth: Any, field: str, positive: Label) -> int:
    expected = _expected_class({"field": field}, truth)
    if positive is not None:
        return int(expected == _label(positive, "'positive'"))
    if expected not in (0, 1):
        raise InputError(
            f"'expected' of {field!r} is {describe(expected)}; expected true or false, or the option positive"
        )
    return int(expected)


def _number(result: CellResult, field: str) -> float:
    """Return a key of the final state that must be a number. Raises InputError."""
    number = field_of(result, field)
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise InputError(f"{field!r} of the final state is {describe(number)}; expected a finite number")
    return float(number)


def _probability(result: CellResult, field: str) -> float:
    """Return a key of the final state that must be a number from 0 to 1. Raises InputError."""
    probability = _number(result, field)
    if not 0 <= probability <= 1:
        raise InputError(f"{field!r} of the final state is {probability:g}; expected a probability from 0 to 1")
    return probability


def _relevant(expected: Any, field: str) -> Any:
    """Return the ids that are relevant, or the grades of ids; None if no id is relevant, since nothing can be found.

    A mapping without the field is one of grades if all of its values are numbers, else it is about other fields.
    """
    if isinstance(expected, Mapping) and field not in expected and all(map(_is_grade, expected.values())):
        expected = {field: expected}
    relevant = filled_value(expected, field)
    if isinstance(relevant, Mapping) and not any(not _is_grade(grade) or grade > 0 for grade in relevant.values()):
        return None
    return relevant


def _is_grade(grade: Any) -> bool:
    return isinstance(grade, int | float) and not isinstance(grade, bool) and math.isfinite(grade)


@needs_expected(_relevant)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def ndcg(case: ScoredCase, result: CellResult, *, field: str, k: int = 10) -> float:
    ranking, grades = _ranking(result, field), _grades(case, field)
    return _discounted(grades.get(document, 0.0) for document in ranking[:k]) / _discounted(
        sorted(grades.values(), reverse=True)[:k]
    )


@needs_expected(_relevant)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def average_precision(case: ScoredCase, result: CellResult, *, field: str, k: int | None = None) -> float:
    ranking, relevant = _ranking(result, field)[:k], _grades(case, field)
    hits = [rank for rank, document in enumerate(ranking, start=1) if document in relevant]
    return sum(number / rank for number, rank in enumerate(hits, start=1)) / len(relevant)


@needs_expected(_relevant)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def reciprocal_rank(case: ScoredCase, result: CellResult, *, field: str, k: int | None = None) -> float:
    ranking, relevant = _ranking(result, field)[:k], _grades(case, field)
    return next((1 / rank for rank, document in enumerate(ranking, start=1) if document in relevant), 0.0)


@needs_expected(_relevant)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def recall(case: ScoredCase, result: CellResult, *, field: str, k: int | None = None) -> float:
    relevant = _grades(case, field)
    return len(relevant.keys() & set(_ranking(result, field)[:k])) / len(relevant)


@needs_expected(_relevant)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def precision(case: ScoredCase, result: CellResult, *, field: str, k: int = 10) -> float:
    # By `k` even if the ranking is shorter, as trec_eval does.
    return len(_grades(case, field).keys() & set(_ranking(result, field)[:k])) / k


def _discounted(grades: Iterable[float]) -> float:
    """Discounted cumulative gain with linear gains, as trec_eval has it (Järvelin and Kekäläinen, 2002)."""
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, start=1))


def _ranking(result: CellResult, field: str) -> list[str]:
    ids = field_of(result, field)
    if not isinstance(ids, list | tuple):
        raise InputError(f"{field!r} of the final state is {describe(ids)}; expected a list of ids, the best first")
    return list(dict.fromkeys(map(str, ids)))


def _grades(case: ScoredCase, field: str) -> dict[str, float]:
    """Return the relevant ids, each with its grade. Raises InputError."""
    expected = _relevant(case.expected, field)
    if isinstance(expected, Mapping):
        grades = {str(document): _grade(field, grade) for document, grade in expected.items()}
        return {document: grade for document, grade in grades.items() if grade > 0}
    if isinstance(expected, list):
        return dict.fromkeys(map(str, expected), 1.0)
    hint = "expected a list of relevant ids, or a mapping from ids to grades, with one that is relevant"
    raise InputError(f"'expected' of {field!r} is {describe(expected)}; {hint}")


def _grade(field: str, grade: Any) -> float:
    if not _is_grade(grade):
        raise InputError(f"a grade in 'expected' of {field!r} is {describe(grade)}; expected a finite number")
    return float(grade)
