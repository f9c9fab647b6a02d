"""Evaluators of retrieval: a ranking of ids against the relevant ones, from 0 to 1, as trec_eval defines them.

What is expected is a list of relevant ids, or a mapping from id to grade; a grade of 0 is not relevant. An id that is
ranked twice counts where it is first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase, evaluator
from wtb.authoring.evaluation.fields import field_of, filled_value, needs_expected
from wtb.core.errors import InputError, describe
from wtb.core.scoring.scales import PASS_OR_FAIL


def _relevant(expected: Any, field: str) -> Any:
    """Return the ids that are relevant, or the grades of ids; None if no id is relevant, since nothing can be found.

    A mapping without the field is one of grades if all of its values are numbers, else it is about other fields.
    """
    if isinstance(expected, Mapping) and field not in expected and all(map(_is_grade, expected.values())):
        expected = {field: expected}
    value = filled_value(expected, field)
    if isinstance(value, Mapping) and not any(not _is_grade(grade) or grade > 0 for grade in value.values()):
        return None
    return value


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
