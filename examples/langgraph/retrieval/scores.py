"""Precision and effort of the graders; `examples.retrieval.scores` has nDCG and recall of the ranking."""

from typing import Any

from wtb import evaluator


@evaluator(better="higher")
def precision(case: Any, result: Any) -> float:
    """Return the share of the good documents that people call similar; 0 if there are none."""
    good = result.state["good"]
    return len(set(good).intersection(case.expected)) / len(good) if good else 0.0


@evaluator(better="lower")
def rounds(case: Any, result: Any) -> int:
    """Return the number of searches."""
    return int(result.state["rounds"])
