"""Scores of an agent's answer: quality and effort."""

import re
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage

from wtb import evaluator


@evaluator(better="higher")
def right(case: Any, result: Any) -> bool:
    """Return whether the first figure is as expected; if none is expected, whether the agent cannot tell."""
    answer = result.state["answer"]
    if case.expected is None:
        return "cannot tell" in answer
    figure = re.search(r"-?\d+(?:\.\d+)?", answer)
    return figure is not None and abs(float(figure[0]) - case.expected) < 1e-6


@evaluator(better="higher")
def grounded(case: Any, result: Any) -> float:
    """Return the share of lookup results that the answer shows: 0 to 1, and 1 if there are none."""
    results = [message.text for message in result.state["messages"] if _is_lookup(message)]
    return sum(text in result.state["answer"] for text in results) / len(results) if results else 1.0


@evaluator(better="lower")
def turns(case: Any, result: Any) -> int:
    """Return the number of model calls."""
    return sum(isinstance(message, AIMessage) for message in result.state["messages"])


def _is_lookup(message: Any) -> bool:
    return isinstance(message, ToolMessage) and message.name == "lookup" and message.status == "success"
