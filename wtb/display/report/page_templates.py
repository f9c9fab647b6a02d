"""The templates of all pages: what they print is escaped, printable and cut, unless it is markup already."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from wtb.core.texts import printable
from wtb.display import failure_causes, figures, sentences

LONGEST = 60  # characters of a name in a chart; all of it is in its title


def text(content: object, longest: int = 300) -> Markup:
    """Escape a value, make it printable and cut it.

    Args:
        content: What is shown; markup is left as it is, and None is nothing.
        longest: Characters that are shown at most.

    Returns:
        HTML.
    """
    if isinstance(content, Markup):
        return content
    printed = "" if content is None else printable(content)
    return escape(printed if len(printed) <= longest else f"{printed[: longest - 1]}…")


def name(identifier: object, longest: int = LONGEST) -> Markup:
    """A user's name, apart from the direction of the writing around it; in full when pointed at."""
    printed = printable(identifier)
    title = Markup(' title="{}"').format(text(printed, 240)) if len(printed) > longest else ""
    return Markup("<bdi{}>{}</bdi>").format(title, text(printed, longest))


def render(template: str, **context: Any) -> str:
    """Fill in a template.

    Args:
        template: The name of a file in `templates/`.
        context: The names that it uses besides the filters and modules that all have.
    """
    html: str = _environment().get_template(template).render(context)
    return html


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        # autoescape alone would leave control characters and texts of any length.
        finalize=text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Templates are files of the package, which do not change while it runs.
        auto_reload=False,
    )
    environment.filters |= {"text": text, "name": name}
    environment.globals |= {"sentences": sentences, "gates": figures, "failure_causes": failure_causes}
    return environment
