"""How good a ranking is; `case.expected` maps ids of relevant documents to their similarity (0.5 to 1)."""

from collections.abc import Iterable
from math import log2
from typing import Any

from wtb import evaluator

DEPTH = 10


@evaluator(better="higher")
def ndcg(case: Any, result: Any) -> float:
    """nDCG@10 with graded relevance, 0 to 1 (Järvelin and Kekäläinen, 2002).

    A document's gain is its mean human similarity to the query where that is at least 0.5, else 0;
    the gain at rank r (from 1) is divided by log2(r + 1); the sum is divided by that of the best
    possible ranking.
    """
    gains = case.expected
    ideal = sorted(gains.values(), reverse=True)
    return _discounted(gains.get(document, 0.0) for document in result.state["ranking"]) / _discounted(ideal)


@evaluator(better="higher")
def recall(case: Any, result: Any) -> float:
    """Recall@10, 0 to 1: the share of the relevant documents that are among the first ten."""
    return len(set(case.expected).intersection(result.state["ranking"][:DEPTH])) / len(case.expected)


def _discounted(gains: Iterable[float]) -> float:
    return sum(gain / log2(rank + 1) for rank, gain in zip(range(1, DEPTH + 1), gains, strict=False))
