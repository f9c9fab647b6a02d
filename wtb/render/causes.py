"""Why cells failed, in a few lines: each cause with its count, and the command that shows one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.render.summary import printable

SHOWN = 3
_LONGEST = 160  # characters of a cause
AGAIN = "Trying again gives the same errors: correct their cause first."

Document = Mapping[str, Any]


def lines(document: Document) -> list[str]:
    """Of a matrix or a status; nothing where no cell failed."""
    found = document.get("failures", {"causes": [], "more": 0})
    shown = found["causes"][:SHOWN]
    said = [
        f"{one['cells']:,} {_plural(one['cells'])} failed: {cause(one)}; see {one['example']['command']}"
        for one in shown
    ]
    if more := len(found["causes"]) - len(shown) + found["more"]:
        said.append(
            f"{more:,} more {'cause' if more == 1 else 'causes'}: wtb report {printable(document['sweep']['id'])}"
        )
    if shown and not any(one["retry"] for one in found["causes"]) and not found["more"]:
        said.append(AGAIN)
    return said


def cause(one: Document) -> str:
    """`answer: ValueError: no answer`."""
    what = ": ".join(filter(None, [one["type"], one["message"]])) or "no error was recorded"
    text = printable(f"{one['node']}: {what}" if one["node"] else what)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _plural(count: int) -> str:
    return "cell" if count == 1 else "cells"
