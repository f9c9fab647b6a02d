"""How figures of a matrix are written: as many digits as a metric needs, with an exponent where that is shorter."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from wtb.core.texts import MISSING

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument


_BIG, TINY = 1e9, 9  # a size, and decimals, from which on figures are written with an exponent


def decimals(document: MatrixDocument, metric: str) -> int:
    """Decimals for a metric: three significant figures of its largest mean; none where all are whole.

    From `TINY` on `number` and `signed` write an exponent instead.
    """
    found = [row["metrics"][metric] for row in document["rows"] if metric in row["metrics"]]
    others = [each["delta"] for each in found if each["delta"] is not None]
    others += [end for each in found for end in each["ci"] or ()]
    return decimals_of([each["mean"] for each in found if each["mean"] is not None], others)


def decimals_of(figures: Iterable[float], others: list[float]) -> int:
    """Decimals for figures, as `decimals`; with none, if all of these and of the others are whole."""
    means = [abs(one) for one in figures]
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
