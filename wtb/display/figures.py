"""Figures of a matrix as text: as many digits as a metric needs, with an exponent where that is shorter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from wtb.analysis.comparison.verdicts import is_unclear
from wtb.core.texts import MISSING, printable

if TYPE_CHECKING:
    from wtb.core.documents.comparison import ComparisonDocument
    from wtb.core.documents.matrix import GateDocument, JudgedMatrixDocument, MatrixDocument

_BIG, TINY = 1e9, 9  # a size, and decimals, from which on figures are written with an exponent


def decimals(document: MatrixDocument, metric: str) -> int:
    """Decimals for a metric: three significant figures of its largest mean; none where all are whole.

    From `TINY` on `number` and `signed` write an exponent instead.
    """
    estimates = [row["metrics"][metric] for row in document["rows"] if metric in row["metrics"]]
    other_figures = [each["delta"] for each in estimates if each["delta"] is not None]
    other_figures += [end for each in estimates for end in each["ci"] or ()]
    return decimals_of([each["mean"] for each in estimates if each["mean"] is not None], other_figures)


def decimals_of(figures: Iterable[float], other_figures: list[float]) -> int:
    """Decimals for figures, as `decimals`; with none, if all of these and of the others are whole."""
    means = [abs(figure) for figure in figures]
    if all(figure == round(figure) for figure in means + other_figures):
        return 0
    # All means may be 0, which has no logarithm.
    exponent = math.floor(math.log10(max(means) or 1.0))
    return min(TINY, max(0, 2 - exponent + (exponent >= 0)))


def number(figure: float | None, digits: int) -> str:
    if figure is None:
        return MISSING
    return scientific(figure) if _is_extreme(figure, digits) else f"{figure:.{digits}f}"


def _is_extreme(figure: float, digits: int) -> bool:
    return digits >= TINY or abs(figure) >= _BIG


def scientific(figure: float, digits: int = 3) -> str:
    """`5.500e-9`: with an exponent without zeros to fill it up."""
    if not figure:
        return "0"
    mantissa, exponent = f"{figure:.{digits}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def signed(figure: float | None, digits: int) -> str:
    """A difference with its sign; none on what rounds to zero."""
    if figure is None:
        return MISSING
    if _is_extreme(figure, digits):
        return f"{'+' * (figure > 0)}{scientific(figure)}"
    # A sign before 0.00 would claim a direction that cannot be seen.
    return f"{figure:+.{digits}f}" if round(figure, digits) else f"{0:.{digits}f}"


def probability(p: float | None) -> str:
    if p is None:
        return MISSING
    return "<0.001" if p < 0.001 else f"{p:.3f}"


HOLDS, FAILED, UNCLEAR = "gate holds", "GATE FAILED", "gate unclear"
UNDECIDED = "gate cannot be decided"


def found_in(document: MatrixDocument | ComparisonDocument) -> Sequence[GateDocument]:
    """Return the gates of a matrix or a comparison; none where it has not been judged."""
    return cast("JudgedMatrixDocument", document).get("gates", ())


def lines(gates: Iterable[GateDocument]) -> list[str]:
    """`gate holds: ndcg.mean >= 0.25 (0.296)`, a line for each gate."""
    return [f"{mark(gate)}: {gate_text(gate)}" for gate in gates]


def mark(gate: GateDocument) -> str:
    """Return whether a gate holds, in words; one on a baseline may be unclear, one without its figures is undecided."""
    if is_unclear(gate):
        return UNCLEAR
    if gate["holds"] is None:
        return UNDECIDED
    return HOLDS if gate["holds"] else FAILED


def gate_text(gate: GateDocument) -> str:
    """A gate with its figures, and why where there is more to say."""
    values = gate["values"]
    if len(values) == 1:
        figures = [_figure(figure) for figure in values.values()]
    else:
        figures = [f"{name} = {_figure(figure)}" for name, figure in values.items()]
    values_text = f" ({', '.join(figures)})" if any(figure is not None for figure in values.values()) else ""
    because = gate["because"]
    return printable(f"{gate['gate']}{values_text}{f': {because}' if because else ''}")


def _figure(figure: float | None) -> str:
    return "unknown" if figure is None else f"{figure:.4g}"
