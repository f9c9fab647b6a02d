"""HTML and what is drawn in it: text that cannot break out, scales with round numbers, marks placed by per cent.

Everything is placed in per cent of its box, so that a chart is as wide as a phone or a page, and its
text keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape, unescape

from wtb.core.texts import printable
from wtb.display.matrix import summary

MINUS = "\N{MINUS SIGN}"
LONG = 21  # characters of an axis' labels, of more than which every other one is left out where room is short
LONGEST = 60  # characters of a name in a chart; all of it is in its title


def text(value: object, most: int = 300) -> str:
    """Text of the user's, escaped, on one line, and with an end."""
    shown = printable(value)
    return escape(shown if len(shown) <= most else f"{shown[: most - 1]}…")


def name(value: object, most: int = LONGEST) -> str:
    """A name of the user's, apart from the direction of the writing around it; in full when pointed at."""
    shown = printable(value)
    title = f' title="{text(shown, 240)}"' if len(shown) > most else ""
    return f"<bdi{title}>{text(shown, most)}</bdi>"


def signed(value: float | None, digits: int) -> str:
    """A difference with a sign as wide as its digits."""
    return summary.signed(value, digits).replace("-", MINUS)


def block(tag: str, inner: str | Iterable[str], classes: str = "", more: str = "") -> str:
    """An element of markup that is HTML already."""
    inside = inner if isinstance(inner, str) else "".join(inner)
    named = f' class="{classes}"' if classes else ""
    return f"<{tag}{named}{more and ' ' + more}>{inside}</{tag}>"


def section(anchor: str, title: str, *parts: str) -> str:
    """A part of the page; nothing where it has no content."""
    inside = [part for part in parts if part]
    return block("section", [block("h2", escape(title)), *inside], more=f'id="{anchor}"') if inside else ""


def note(said: str) -> str:
    """What a chart means, or why there is none: HTML."""
    return block("p", said, "note")


def cannot_tell(because: str) -> str:
    shown = because if because.startswith("cannot tell") else f"Cannot tell: {because}"
    return block("p", f"{text(shown[0].upper() + shown[1:])}{'' if shown.endswith('.') else '.'}", "note unknown")


@dataclass(frozen=True)
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
        """The same from the top, where the scale grows upwards."""
        return round(100 - self.at(value), 2)

    def label(self, value: float) -> str:
        if max(abs(self.low), abs(self.high)) >= 1e9 or self.decimals > 6:
            return self._scientific(value)
        return f"{value:,.{self.decimals}f}".replace("-", MINUS) if round(value, self.decimals) else "0"

    def _scientific(self, value: float) -> str:
        """As many digits as tell the ticks apart."""
        step = (self.high - self.low) / (len(self.ticks) - 1)
        if abs(value) < step / 2:
            return "0"
        digits = math.floor(math.log10(abs(value) / step) + 1e-9) + 1
        mantissa, exponent = summary.scientific(value, min(digits, 12)).split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{exponent}".replace("-", MINUS)

    @property
    def longest(self) -> int:
        """Characters of the longest label."""
        return max((len(self.label(tick)) for tick in self.ticks), default=0)


def scale(values: Iterable[float], steps: int = 4) -> Scale:
    """The smallest round scale that holds all values, of about so many steps."""
    found = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(found), max(found)
    largest = max(abs(low), abs(high))
    if high - low <= max(1e-9 * largest, 1e-100):  # all the same: a little room on either side
        room = largest / 2 if largest > 1e-100 else 0.5
        low, high = low - room, high + room
    rough = (high - low) / steps
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (1, 2, 2.5, 5, 10) if power * nice >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(number * step for number in range(first, last + 1))
    decimals = max(0, -math.floor(math.log10(step) + 1e-9) + (step / power == 2.5))
    return Scale(ticks[0], ticks[-1], ticks, decimals)


def axis(on: Scale, unit: str = "") -> str:
    """The numbers of a scale, each over its place."""
    marks = (f'<span style="left:{on.at(tick)}%">{unit}{on.label(tick)}</span>' for tick in on.ticks)
    is_long = sum(len(on.label(tick)) for tick in on.ticks) > LONG
    return block("div", marks, "axis long" if is_long else "axis", 'aria-hidden="true"')


def grid(on: Scale, called: str = "--grid") -> str:
    """The style of a box whose plots show a line at each tick."""
    lines = ",".join(f"linear-gradient(var(--line) 0 0) {on.at(tick)}% 0/1px 100% no-repeat" for tick in on.ticks)
    return f"{called}:{lines}"


def shape(kind: str, x: float, y: str = "50%", title: str = "") -> str:
    """A mark at a place in per cent: dot, ring, square or diamond, which differ without colour."""
    path = {
        "dot": '<circle r="4.5"/>',
        "ring": '<circle class="hollow" r="4"/>',
        "square": '<rect class="hollow" x="-4" y="-4" width="8" height="8"/>',
        "diamond": '<path d="M0-6.5 6.5 0 0 6.5-6.5 0z"/>',
    }[kind]
    told = f"<title>{escape(title)}</title>" if title else ""
    return f'<svg class="mark {kind}" x="{x}%" y="{y}">{told}{path}</svg>'


def room(scales: Iterable[Scale], *figures: Iterable[str]) -> str:
    """The style of a box of rows: how wide the labels of its axes and its columns of figures are, in characters.

    A figure is HTML; what is `small` in it is written smaller.
    """
    longest = max((on.longest for on in scales), default=0)
    widths = [max(map(_width, column), default=0.0) for column in figures]
    return ";".join([f"--label:{longest}ch", *(f"--figure{i}:{width:.1f}ch" for i, width in enumerate(widths, 1))])


def _width(figure: str) -> float:
    plain, _, small = figure.partition("<small>")
    return len(unescape(plain)) + 0.85 * len(unescape(small.removesuffix("</small>")))


def interval(on: Scale, mean: float, ci: Sequence[float] | None, kind: str, reference: float | None = None) -> str:
    """A mark on the line of its interval, and a dashed line where `reference` is."""
    drawn = []
    if reference is not None:
        at = on.at(reference)
        drawn.append(f'<line class="reference" x1="{at}%" x2="{at}%" y1="0" y2="100%"/>')
    if ci is not None:
        low, high = on.at(ci[0]), on.at(ci[1])
        drawn.append(f'<line class="ci" x1="{low}%" x2="{high}%" y1="50%" y2="50%"/>')
        drawn += [f'<line class="cap" x1="{end}%" x2="{end}%" y1="30%" y2="70%"/>' for end in (low, high)]
    drawn.append(shape(kind, on.at(mean)))
    return f'<svg class="plot" aria-hidden="true">{"".join(drawn)}</svg>'


def frame(x: Scale, y: Scale, inside: str, labels: tuple[str, str], x_ticks: str | None = None) -> str:
    """A chart with two axes around what is drawn in per cent; y grows upwards."""
    up = "".join(f'<span style="bottom:{y.at(tick)}%">{y.label(tick)}</span>' for tick in y.ticks)
    across = ",".join(f"linear-gradient(var(--line) 0 0) 0 {y.up(tick)}%/100% 1px no-repeat" for tick in y.ticks)
    return block(
        "div",
        [
            block("div", text(labels[1]), "ylabel"),
            block("div", up, "yaxis", 'aria-hidden="true"'),
            f'<div class="canvas" style="--grid:{across}">{inside}</div>',
            x_ticks if x_ticks is not None else axis(x),
            block("div", text(labels[0]), "xlabel"),
        ],
        "frame",
        f'style="--label:{y.longest}ch"',
    )


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], figures: int = 0, more: str = "") -> str:
    """A table in a box of its own that scrolls; cells are HTML. The last `figures` columns are figures."""
    first = len(headers) - figures
    cells = ["" if i < first else ' class="figure"' for i in range(len(headers))]
    head = "".join(f"<th{kind}>{header}</th>" for kind, header in zip(cells, headers, strict=True))
    body = "".join(
        block("tr", (f"<td{kind}>{cell}</td>" for kind, cell in zip(cells, row, strict=True))) for row in rows
    )
    return scrolled(block("table", f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>", more=more))


def scrolled(inner: str) -> str:
    """A box of its own for what may be wider than the page."""
    return f'<div class="wide" tabindex="0">{inner}</div>'
