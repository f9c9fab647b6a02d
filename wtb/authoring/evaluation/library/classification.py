"""Evaluators whose figures are over all cells of a row: of classes, such as macro F1, and of scores, such as AUC."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase, evaluator
from wtb.authoring.evaluation.fields import field_of, filled_value, needs_expected
from wtb.core.errors import InputError, describe
from wtb.core.mappings import Options
from wtb.core.scoring.figures import LABEL, OF_CLASSES, Figure, Label, Observed
from wtb.core.scoring.measure import Better
from wtb.core.scoring.scales import PASS_OR_FAIL
from wtb.core.serialization.plain_json import storable

Observing = Callable[..., Observed]


def _expected_class(options: Options, expected: Any) -> Label:
    """The class that a case is expected to be of. Raises InputError."""
    return _label(filled_value(expected, options["field"]), f"'expected' of {options['field']!r}")


def _expected_side(options: Options, expected: Any) -> int:
    """1 where a case is expected to be of the class that is positive, else 0. Raises InputError."""
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
    expected, found = _expected_class({"field": field}, case.expected), _found(result, field)
    assert expected is not None, "a case without an expected value is not scored"
    return Observed(float(found == expected), expected, found)


def _one_class(case: ScoredCase, result: CellResult, field: str, positive: Label) -> Observed:
    expected, found = _is_positive(case.expected, field, positive), int(_found(result, field) == positive)
    return Observed(float(found == expected), expected, found)


def _found(result: CellResult, field: str) -> Label:
    return _label(field_of(result, field), f"{field!r} of the final state")


def _label(value: Any, what: str) -> Label:
    """The name of a class: text, or a whole number, as which true and false are 1 and 0. Raises InputError."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and abs(value) < 1 << 53:
        return int(value)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InputError(f"{what} is {describe(value)}; expected the name of a class, or a whole number")
    return storable(value, LABEL)


def _is_positive(value: Any, field: str, positive: Label) -> int:
    expected = _expected_class({"field": field}, value)
    if positive is not None:
        return int(expected == _label(positive, "'positive'"))
    if expected not in (0, 1):
        raise InputError(
            f"'expected' of {field!r} is {describe(expected)}; expected true or false, or the option positive"
        )
    return int(expected)


def _number(result: CellResult, field: str) -> float:
    """A key of the final state that is a number. Raises InputError."""
    found = field_of(result, field)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise InputError(f"{field!r} of the final state is {describe(found)}; expected a finite number")
    return float(found)


def _probability(result: CellResult, field: str) -> float:
    """The same between 0 and 1. Raises InputError."""
    found = _number(result, field)
    if not 0 <= found <= 1:
        raise InputError(f"{field!r} of the final state is {found:g}; expected a probability from 0 to 1")
    return found
