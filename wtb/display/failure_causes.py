"""Why cells failed, in a few lines: each cause with its count, and the command that shows one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtb.core.texts import plural, printable

if TYPE_CHECKING:
    from wtb.core.documents.common import FailureCause, FailureCauses


SHOWN = 3
_LONGEST = 160  # characters of a cause
AGAIN = "Trying again gives the same errors: correct their cause first."


def lines(found: FailureCauses, sweep_id: str, *, apart: bool = False) -> list[str]:
    """Return the causes of failures of a sweep, none where no cell failed. apart: commands on lines of their own."""
    shown = found["causes"] if apart and any("cases" in one for one in found["causes"]) else found["causes"][:SHOWN]
    causes = [
        (f"{plural(one['cells'], 'cell')} failed: {cause(one)}{_cases_of(one)}", one["example"]["command"])
        for one in shown
    ]
    if more := len(found["causes"]) - len(shown) + found["more"]:
        causes.append((f"{plural(more, 'more cause')}", f"wtb report {printable(sweep_id)}"))
    text = [
        line for what, command in causes for line in ([what, f"  {command}"] if apart else [f"{what}; see {command}"])
    ]
    if shown and not any(one["retry"] for one in found["causes"]) and not found["more"]:
        text.append(AGAIN)
    return text


def _cases_of(one: FailureCause) -> str:
    """`; cases q1, q7 (2 cells) and 3 more cells`, if they are listed."""
    listed = one.get("cases")
    if not listed:
        return ""
    counts = (f" ({plural(case['cells'], 'cell')})" if case["cells"] > 1 else "" for case in listed)
    names = ", ".join(printable(case["case"]) + count for case, count in zip(listed, counts, strict=True))
    more = one["cells"] - sum(case["cells"] for case in listed)
    return f"; cases {names}" + (f" and {plural(more, 'more cell')}" if more else "")


def cause(one: FailureCause, longest: int = _LONGEST) -> str:
    """`answer: ValueError: no answer`, of at most `longest` characters."""
    what = ": ".join(filter(None, [one["type"], one["message"]])) or "no error was recorded"
    text = printable(f"{one['node']}: {what}" if one["node"] else what)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
