"""Was the right amount paid back, once, and how much is there to read?"""

from typing import Any

from wtb import evaluator


@evaluator(better="higher")
def right(case: Any, result: Any) -> bool:
    """Whether the case ended as expected, and what was paid in all is what was due."""
    paid = sum(one["amount"] for one in result.state.get("sent", []))
    return bool(result.state["outcome"] == case.expected["outcome"] and abs(paid - case.expected["amount"]) < 0.005)


@evaluator(better="lower")
def words(case: Any, result: Any) -> int:
    """The words of the letter."""
    return len(result.state["letter"].split())
