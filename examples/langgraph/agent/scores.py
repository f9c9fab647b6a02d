"""How good an answer of the agent is, and what it took."""

import re
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage

from wtb import evaluator


@evaluator(better="higher")
def right(case: Any, result: Any) -> bool:
    """Whether the first figure of the answer is the one expected; where none is, whether the agent says so."""
    said = result.state["answer"]
    if case.expected is None:
        return "cannot tell" in said
    figure = re.search(r"-?\d+(?:\.\d+)?", said)
    return figure is not None and abs(float(figure[0]) - case.expected) < 1e-6


@evaluator(better="higher")
def grounded(case: Any, result: Any) -> float:
    """The share of what was looked up that the customer gets to see: 0 to 1, and 1 where nothing was found."""
    found = [message.text for message in result.state["messages"] if _found(message)]
    return sum(text in result.state["answer"] for text in found) / len(found) if found else 1.0


@evaluator(better="lower")
def turns(case: Any, result: Any) -> int:
    """How often the model was asked."""
    return sum(isinstance(message, AIMessage) for message in result.state["messages"])


def _found(message: Any) -> bool:
    return isinstance(message, ToolMessage) and message.name == "lookup" and message.status == "success"
