"""Values as HTML: escaped, on one line, and with an end, so that no text of a user's breaks out of its place."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from wtb.core.texts import printable
from wtb.display.matrix import figures

MINUS = "\N{MINUS SIGN}"
LONGEST = 60  # characters of a name in a chart; all of it is in its title


def text(value: object, longest: int = 300) -> Markup:
    """Escape a value, make it printable and cut it.

    Args:
        value: What is shown; markup is left as it is, and None is nothing.
        longest: Characters that are shown at most.

    Returns:
        HTML.
    """
    if isinstance(value, Markup):
        return value
    shown = "" if value is None else printable(value)
    return escape(shown if len(shown) <= longest else f"{shown[: longest - 1]}…")


def name(value: object, longest: int = LONGEST) -> Markup:
    """A user's name, apart from the direction of the writing around it; in full when pointed at."""
    shown = printable(value)
    title = Markup(' title="{}"').format(text(shown, 240)) if len(shown) > longest else ""
    return Markup("<bdi{}>{}</bdi>").format(title, text(shown, longest))


def lines(value: str, longest: int | None = None) -> Markup:
    """A user's text with its lines, each of at most `longest` characters."""
    shown = (printable(line.replace("\t", "    ")) for line in value.split("\n"))
    return Markup("\n").join(line if longest is None else text(line, longest) for line in shown)


def signed(value: float | None, digits: int) -> str:
    """A difference with a sign as wide as its digits."""
    return figures.signed(value, digits).replace("-", MINUS)


def span(ci: Sequence[float], digits: int) -> str:
    """`0.12 to 0.34`, of an interval."""
    return f"{figures.number(ci[0], digits)} to {figures.number(ci[1], digits)}"


def signed_span(ci: Sequence[float], digits: int) -> str:
    """`−0.12 to +0.34`, of the interval of a difference."""
    return f"{signed(ci[0], digits)} to {signed(ci[1], digits)}"
