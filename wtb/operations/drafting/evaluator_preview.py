"""Trying an evaluator on one output before a sweep uses it. No code of users runs here, and no model is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wtb.authoring.evaluation import regex_search
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.evaluation.evaluators import CellResult, Evaluator, ScoredCase, score_now
from wtb.authoring.evaluation.library.meanings import embedding_similarity
from wtb.core.arguments.checking import checked
from wtb.core.documents.workflows.new_sweeps import EvaluatorPreviewDocument, PreviewScore
from wtb.core.errors import InputError
from wtb.core.scoring.measure import Score
from wtb.operations.context import Context
from wtb.planning.factors.parameter_files import check_no_files
from wtb.planning.sweep_spec import read_evaluators

MOST_BYTES = 100_000  # of what is scored: some evaluators compare each word with each
SEARCH_S = 5.0
_CODE = "it is code of users, which runs on workers only"
_MODEL = "it takes a model, which is asked on workers only"


class _OnWorkers(InputError):
    """What runs on workers only."""


@checked
def preview_evaluator(
    context: Context,
    evaluator: str | Mapping[str, Any],
    state: Mapping[str, Any],
    *,
    expected: Any = None,
    input: Mapping[str, Any] | None = None,
) -> EvaluatorPreviewDocument:
    """Score an output with a built-in evaluator.

    Evaluators that are code of users or ask a model are not tried: they run on workers only.

    Args:
        context: Where.
        evaluator: As in a sweep file: a name, or a mapping of a name to its options.
        state: The final state: values by key, such as `{answer: "42"}`.
        expected: The expected value of the case.
        input: The input of the case.

    Returns:
        Its scores, or why it was not tried.

    Raises:
        InputError: If there is no such evaluator, its options do not fit, or it cannot score this.
    """
    size = len(json.dumps([state, expected, input], default=str))
    if size > MOST_BYTES:
        raise InputError(f"state: {size:,} bytes with the case; expected at most {MOST_BYTES:,}", argument="state")
    check_no_files(evaluator, "evaluator")
    (ref,) = read_evaluators([evaluator])
    if ref.name == embedding_similarity.__name__:
        return _untried(ref.name, _MODEL)
    try:
        instance = make_evaluator(ref.name, ref.options, _resolve)
    except _OnWorkers as error:
        return _untried(ref.name, error.problems[0])
    return _try_evaluator(instance, ScoredCase("preview", dict(input or {}), expected), CellResult(dict(state)))


def _resolve(path: str) -> Any:
    """Import nothing. Raises _OnWorkers."""
    raise _OnWorkers(_MODEL if path.startswith("wtb.") else _CODE)


def _untried(name: str, reason: str) -> EvaluatorPreviewDocument:
    return {"evaluator": name, "runs": "workers", "reason": reason, "needs_expected": False, "scores": []}


def _try_evaluator(evaluator: Evaluator, case: ScoredCase, result: CellResult) -> EvaluatorPreviewDocument:
    wrong = None if case.expected is None else evaluator.problem(case.expected)
    if wrong is not None:
        raise InputError(wrong, argument="expected")
    searchers = regex_search.Searchers()
    try:
        with regex_search.apart(searchers):
            scores = score_now(evaluator, case, result, SEARCH_S)
    finally:
        searchers.close()
    return {
        "evaluator": evaluator.name,
        "runs": "here",
        "reason": None,
        "needs_expected": evaluator.lacks_expected(case.expected),
        "scores": [_score(score) for score in scores],
    }


def _score(score: Score) -> PreviewScore:
    return {
        "metric": score.metric,
        "value": score.value,
        "better": score.measure.better,
        "scale": None if score.measure.scale is None else list(score.measure.scale),
        "error": score.error,
        "observed": score.observed,
    }
