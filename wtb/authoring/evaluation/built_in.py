"""The built-in evaluators: functions of a case and its result, with the options that a sweep file gives them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from wtb.authoring.evaluation import combining, predictions, regex_search, similarity, structures
from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase, evaluator
from wtb.authoring.evaluation.fields import expected_value, field_of, filled_value, json_of, needs_expected
from wtb.core.scoring.scores import LEFT_OUT, PASS_OR_FAIL


@needs_expected(expected_value)
@evaluator(better="higher", scale=PASS_OR_FAIL)
def exact_match(case: ScoredCase, result: CellResult, *, field: str, ignore_case: bool = False) -> bool:
    answer, expected = field_of(result, field), expected_value(case.expected, field)
    if ignore_case and isinstance(answer, str) and isinstance(expected, str):
        return answer.strip().casefold() == expected.strip().casefold()
    return bool(answer == expected)


@needs_expected(instead="text")
@evaluator(better="higher", scale=PASS_OR_FAIL)
def contains(case: ScoredCase, result: CellResult, *, field: str, text: str | None = None) -> bool:
    answer = field_of(result, field)
    expected = filled_value(case.expected, field) if text is None else text
    return all(part in answer for part in expected) if isinstance(expected, list) else expected in answer


@needs_expected(instead="pattern")
@evaluator(better="higher", scale=PASS_OR_FAIL)
def regex(case: ScoredCase, result: CellResult, *, field: str, pattern: str | None = None) -> bool:
    expected_pattern = filled_value(case.expected, field) if pattern is None else pattern
    return regex_search.search(expected_pattern, str(field_of(result, field)))


@needs_expected()
@evaluator(better="higher", scale=PASS_OR_FAIL)
def numeric_close(case: ScoredCase, result: CellResult, *, field: str, abs: float = 1e-9, rel: float = 1e-6) -> bool:
    answer, expected = float(field_of(result, field)), float(filled_value(case.expected, field))
    return math.isclose(answer, expected, abs_tol=abs, rel_tol=rel)


@evaluator(better="higher", scale=PASS_OR_FAIL)
def json_schema(case: ScoredCase, result: CellResult, *, field: str, schema: dict[str, Any]) -> bool:
    try:
        document = json_of(result, field)
    except ValueError:
        return False
    return regex_search.fits(schema, document)


@evaluator(better="lower", compare="median", on_failure=LEFT_OUT)
def latency(case: ScoredCase, result: CellResult) -> float:
    return result.duration_s


@evaluator(better="lower", on_failure=LEFT_OUT)
def cost(case: ScoredCase, result: CellResult) -> float:
    return result.cost


@evaluator(better="lower", on_failure=LEFT_OUT)
def tokens(case: ScoredCase, result: CellResult) -> float:
    return float(result.tokens_in + result.tokens_out)


@evaluator(better="lower", on_failure=LEFT_OUT)
def node_runs(case: ScoredCase, result: CellResult) -> float:
    return float(result.node_runs)


MEASURED = (latency, cost, tokens, node_runs)  # `MEASURED_NAMES` has their names
_TEXTS = (
    exact_match,
    contains,
    similarity.contains_any,
    regex,
    similarity.edit_similarity,
    similarity.rouge,
    similarity.bleu,
    similarity.chrf,
    similarity.embedding_similarity,
)
_RECORDS = (numeric_close, structures.quantity_close, json_schema, structures.json_equal, structures.sql_equal)
_RANKINGS = (
    predictions.ndcg,
    predictions.average_precision,
    predictions.reciprocal_rank,
    predictions.recall,
    predictions.precision,
)
_CLASSIFICATION = (
    predictions.macro_f1,
    predictions.balanced_accuracy,
    predictions.cohen_kappa,
    predictions.class_f1,
    predictions.class_precision,
    predictions.class_recall,
    predictions.auc,
    predictions.calibration_error,
    predictions.brier,
)
_TRAJECTORIES = (
    structures.tools_called,
    structures.tools_avoided,
    structures.tool_arguments,
    structures.tool_calls,
    structures.repeated_tool_calls,
    structures.nodes_visited,
)
_SAFETY = (similarity.no_secrets, similarity.no_personal_data)
COMBINING: Mapping[str, Callable[..., Any]] = {
    "not": combining.not_,
    "all_of": combining.all_of,
    "any_of": combining.any_of,
    "weighted_mean": combining.weighted_mean,
    "assertions": combining.assertions,
}
BUILT_IN: Mapping[str, Callable[..., Any]] = {
    **{
        fn.__name__: fn
        for fn in (*_TEXTS, *_RECORDS, *_RANKINGS, *_CLASSIFICATION, *_TRAJECTORIES, *_SAFETY, *MEASURED)
    },
    **COMBINING,
}
