"""Values as HTML: escaped, on one line, and with an end, so that no text of a user's breaks out of its place."""

from __future__ import annotations

from markupsafe import Markup, escape

from wtb.core.texts import printable

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
