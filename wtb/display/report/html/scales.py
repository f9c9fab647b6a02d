"""Scales with round numbers, on which charts place everything in per cent of their box.

So a chart is as wide as a phone or a page, and its text keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from markupsafe import Markup

from wtb.core.classes.frozen import frozen
from wtb.display.matrix import figures
from wtb.display.report.html.markup import MINUS

LONG = 21  # characters of an axis' labels, of more than which every other one is left out where room is short


@frozen
class Scale:
    """A line from `low` to `high`, whose ends and ticks are round numbers."""

    low: float
    high: float
    ticks: tuple[float, ...]
    decimals: int

    def at(self, value: float) -> float:
        """Where a value lies, in per cent."""
        return round(100 * (value - self.low) / (self.high - self.low), 2)

    def up(self, value: float) -> float:
        """Where a value lies in per cent from the top, of a scale that grows upwards."""
        return round(100 - self.at(value), 2)

    def label(self, value: float) -> str:
        """A tick's number."""
        if max(abs(self.low), abs(self.high)) >= 1e9 or self.decimals > 6:
            return self._scientific(value)
        return f"{value:,.{self.decimals}f}".replace("-", MINUS) if round(value, self.decimals) else "0"

    def _scientific(self, value: float) -> str:
        """As many digits as distinguish the ticks."""
        step = (self.high - self.low) / (len(self.ticks) - 1)
        if abs(value) < step / 2:
            return "0"
        digits = math.floor(math.log10(abs(value) / step) + 1e-9) + 1
        mantissa, exponent = figures.scientific(value, min(digits, 12)).split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{exponent}".replace("-", MINUS)

    @property
    def longest(self) -> int:
        """Characters of the longest label."""
        return max((len(self.label(tick)) for tick in self.ticks), default=0)

    @property
    def is_long(self) -> bool:
        """True if the labels do not fit side by side on a small screen."""
        return sum(len(self.label(tick)) for tick in self.ticks) > LONG

    @property
    def across(self) -> Markup:
        """The background of a plot with a line at each tick of a horizontal scale: CSS."""
        lines = (f"linear-gradient(var(--line) 0 0) {self.at(tick)}% 0/1px 100% no-repeat" for tick in self.ticks)
        return Markup(",".join(lines))

    @property
    def upwards(self) -> Markup:
        """The background of a plot with a line at each tick of a vertical scale: CSS."""
        lines = (f"linear-gradient(var(--line) 0 0) 0 {self.up(tick)}%/100% 1px no-repeat" for tick in self.ticks)
        return Markup(",".join(lines))


def scale(values: Iterable[float], steps: int = 4) -> Scale:
    """The smallest round scale that has room for all values.

    Args:
        values: What is to be drawn; what is not finite is left out.
        steps: About how many ticks there are.
    """
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    largest = max(abs(low), abs(high))
    if high - low <= max(1e-9 * largest, 1e-100):  # all the same: a little room on either side
        margin = largest / 2 if largest > 1e-100 else 0.5
        low, high = low - margin, high + margin
    rough = (high - low) / steps
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (1, 2, 2.5, 5, 10) if power * nice >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(number * step for number in range(first, last + 1))
    decimals = max(0, -math.floor(math.log10(step) + 1e-9) + (step / power == 2.5))
    return Scale(ticks[0], ticks[-1], ticks, decimals)


def room(scales: Iterable[Scale], *figures: Iterable[Markup | str]) -> Markup:
    """How wide the labels of axes and the columns of figures of a chart are, in characters: CSS.

    Args:
        scales: The scales of its axes.
        figures: The figures of each column; what is `small` in them is written smaller.
    """
    longest = max((on.longest for on in scales), default=0)
    widths = [max(map(_width, column), default=0.0) for column in figures]
    return Markup(
        ";".join([f"--label:{longest}ch", *(f"--figure{i}:{wide:.1f}ch" for i, wide in enumerate(widths, 1))])
    )


def _width(figure: Markup | str) -> float:
    plain, _, small = str(figure).partition("<small>")
    return len(Markup(plain).unescape()) + 0.85 * len(Markup(small).striptags())
