"""Gates in words: whether each holds, and by which figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.analysis.comparison.verdicts import is_unclear
from wtb.core.texts import printable

HOLDS, FAILED, UNCLEAR = "gate holds", "GATE FAILED", "gate unclear"


def lines(document: Mapping[str, Any]) -> list[str]:
    """`gate holds: ndcg.mean >= 0.25 (0.296)`, a line for each gate of a judged matrix; none where there are none."""
    return [f"{mark(gate)}: {gate_text(gate)}" for gate in document.get("gates", ())]


def mark(gate: Mapping[str, Any]) -> str:
    """Return whether a gate holds, in two words; one that is unknown does not, one on a baseline may be unclear."""
    if is_unclear(gate):
        return UNCLEAR
    return HOLDS if gate["holds"] else FAILED


def gate_text(gate: Mapping[str, Any]) -> str:
    """A gate with its figures, and why where there is more to say."""
    values = gate["values"]
    if len(values) == 1:
        figures = [_figure(value) for value in values.values()]
    else:
        figures = [f"{name} = {_figure(value)}" for name, value in values.items()]
    shown = f" ({', '.join(figures)})" if any(value is not None for value in values.values()) else ""
    is_unknown = gate["holds"] is None and not is_unclear(gate)
    because = f"unknown, because {gate['because']}" if is_unknown else gate["because"]
    return printable(f"{gate['gate']}{shown}{f': {because}' if because else ''}")


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"
