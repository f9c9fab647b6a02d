"""Gates in words: whether each holds, and by which figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from wtb.analysis.comparison.verdicts import is_unclear
from wtb.core.texts import printable

if TYPE_CHECKING:
    from wtb.core.documents.comparison import ComparisonDocument
    from wtb.core.documents.matrix import GateDocument, JudgedMatrixDocument, MatrixDocument


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
        figures = [_figure(value) for value in values.values()]
    else:
        figures = [f"{name} = {_figure(value)}" for name, value in values.items()]
    shown = f" ({', '.join(figures)})" if any(value is not None for value in values.values()) else ""
    because = gate["because"]
    return printable(f"{gate['gate']}{shown}{f': {because}' if because else ''}")


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
