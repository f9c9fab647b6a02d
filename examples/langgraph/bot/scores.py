"""The number of patterns that the bot built until one fitted."""

from typing import Any

from wtb import evaluator


@evaluator(better="lower")
def tries(case: Any, result: Any) -> int:
    """Return the number of patterns that were built."""
    return int(result.state["tries"])
