"""What the graders kept and what it took; `examples.retrieval.scores` has nDCG and recall of the ranking."""

from typing import Any

from wtb import evaluator


@evaluator(better="higher")
def precision(case: Any, result: Any) -> float:
    """The share of what was graded as good that people call similar; 0 where nothing was."""
    good = result.state["good"]
    return len(set(good).intersection(case.expected)) / len(good) if good else 0.0


@evaluator(better="lower")
def rounds(case: Any, result: Any) -> int:
    """How often was searched."""
    return int(result.state["rounds"])
