"""The templates of all pages: what they print is escaped, printable and cut, unless it is markup already."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from wtb.display import failure_causes
from wtb.display.matrix import gates, sentences
from wtb.display.report.html.markup import name, text


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
        finalize=text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {"text": text, "name": name}
    environment.globals |= {"sentences": sentences, "gates": gates, "failure_causes": failure_causes}
    return environment
