"""Figures, their targets, and the table that shows which are met."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal


@dataclass(frozen=True)
class Figure:
    """One measured number. target: None if it is for information only; `at` is the good side of it."""

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
    """Return the median of several rounds as a figure."""
    return Figure(name, median(rounds), unit, target, at)


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """Return the ratio in each round."""
    return [first / second for first, second in zip(numerators, denominators, strict=True)]


def table(figures: Iterable[Figure]) -> str:
    """Return a table of name, figure, target and met, aligned for a terminal."""
    lines = [("name", "figure", "target", "met")]
    for figure in figures:
        sign = "<=" if figure.at == "most" else ">="
        target = "" if figure.target is None else f"{sign} {_number(figure.target)}"
        met = {True: "yes", False: "NOT MET", None: ""}[figure.met]
        lines.append((figure.name, f"{_number(figure.value)} {figure.unit}".strip(), target, met))
    widths = [max(len(line[place]) for line in lines) for place in range(4)]
    return "\n".join("  ".join(text.ljust(w) for text, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def _number(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"
