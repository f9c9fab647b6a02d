"""How many patterns did the bot build before one fitted?"""

from typing import Any

from wtb import evaluator


@evaluator(better="lower")
def tries(case: Any, result: Any) -> int:
    """The patterns that were built."""
    return int(result.state["tries"])
