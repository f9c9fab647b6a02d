"""Scores of a refund: the right amount, paid once, and the length of the letter."""

from typing import Any

from wtb import evaluator


@evaluator(better="higher")
def right(case: Any, result: Any) -> bool:
    """Return whether the case ended as expected and the total payment is the amount due."""
    paid = sum(payment["amount"] for payment in result.state.get("sent", []))
    return bool(result.state["outcome"] == case.expected["outcome"] and abs(paid - case.expected["amount"]) < 0.005)


@evaluator(better="lower")
def words(case: Any, result: Any) -> int:
    """Return the number of words of the letter."""
    return len(result.state["letter"].split())
