"""How figures of a matrix are written: as many digits as a metric needs, with an exponent where that is shorter."""

from __future__ import annotations

import math
from typing import Any

from wtb.core.texts import MISSING

_BIG, TINY = 1e9, 9  # a size, and decimals, from which on figures are written with an exponent


def decimals(document: dict[str, Any], metric: str) -> int:
    """Decimals for a metric: three significant figures of its largest mean; none where all are whole.

    From `TINY` on `number` and `signed` write an exponent instead.
    """
    found = [row["metrics"].get(metric, {}) for row in document["rows"]]
    means = [abs(each["mean"]) for each in found if each.get("mean") is not None]
    others = [each["delta"] for each in found if each.get("delta") is not None]
    others += [end for each in found for end in each.get("ci") or ()]
    if all(value == round(value) for value in means + others):
        return 0
    exponent = math.floor(math.log10(max(means) or 1.0))
    return min(TINY, max(0, 2 - exponent + (exponent >= 0)))


def number(value: float | None, digits: int) -> str:
    if value is None:
        return MISSING
    return scientific(value) if _is_extreme(value, digits) else f"{value:.{digits}f}"


def _is_extreme(value: float, digits: int) -> bool:
    return digits >= TINY or abs(value) >= _BIG


def scientific(value: float, digits: int = 3) -> str:
    """`5.500e-9`: with an exponent without zeros to fill it up."""
    if not value:
        return "0"
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def signed(value: float | None, digits: int) -> str:
    """A difference with its sign; none on what rounds to zero."""
    if value is None:
        return MISSING
    if _is_extreme(value, digits):
        return f"{'+' * (value > 0)}{scientific(value)}"
    return f"{value:+.{digits}f}" if round(value, digits) else f"{0:.{digits}f}"


def probability(p: float | None) -> str:
    if p is None:
        return MISSING
    return "<0.001" if p < 0.001 else f"{p:.3f}"
