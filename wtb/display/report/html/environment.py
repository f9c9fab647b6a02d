"""The templates of all pages: what they print is escaped, printable and cut, unless it is markup already."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from wtb.core import texts
from wtb.display import failure_causes
from wtb.display.matrix import figures, gates, sentences, summary
from wtb.display.report.html import layout
from wtb.display.report.html.markup import lines, name, signed, signed_span, span, text


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
    made = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        finalize=text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "text": text,
        "name": name,
        "lines": lines,
        "number": figures.number,
        "signed": signed,
        "span": span,
        "signed_span": signed_span,
        "p": figures.probability,
        "plural": texts.plural,
        "took": texts.took,
        "money": texts.money,
    }
    made.globals |= {
        "summary": summary,
        "sentences": sentences,
        "layout": layout,
        "texts": texts,
        "gates": gates,
        "failure_causes": failure_causes,
    }
    return made
