"""Figures, their targets, and the table that says which are met."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal


@dataclass(frozen=True)
class Figure:
    """One measured number. target: None where it is for information; `at` says on which side of it is good."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at: Literal["most", "least"] = "most"

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.value <= self.target if self.at == "most" else self.value >= self.target

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


def of_rounds(
    name: str, rounds: Iterable[float], unit: str, target: float | None = None, at: Literal["most", "least"] = "most"
) -> Figure:
    """The median of what several rounds gave."""
    return Figure(name, median(rounds), unit, target, at)


def table(figures: Iterable[Figure]) -> str:
    """name, figure, target, met: aligned for a terminal."""
    lines = [("name", "figure", "target", "met")]
    for figure in figures:
        sign = "<=" if figure.at == "most" else ">="
        target = "" if figure.target is None else f"{sign} {_number(figure.target)}"
        met = {True: "yes", False: "NOT MET", None: ""}[figure.met]
        lines.append((figure.name, f"{_number(figure.value)} {figure.unit}".strip(), target, met))
    widths = [max(len(line[place]) for line in lines) for place in range(4)]
    return "\n".join("  ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
