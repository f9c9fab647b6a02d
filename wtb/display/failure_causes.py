"""The causes of failed cells in a few lines, each with its count and the command that shows an example."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtb.core.texts import plural, printable

if TYPE_CHECKING:
    from wtb.core.documents.shared_types import FailureCause, FailureCauses


MAX_CAUSES = 3
_LONGEST = 160  # characters of a cause
SAME_ERRORS = "Trying again gives the same errors: correct their cause first."


def lines(document: FailureCauses, sweep_id: str, *, apart: bool = False) -> list[str]:
    """Return the causes of failures of a sweep, none where no cell failed. apart: commands on lines of their own."""
    # With `wtb status --cases` every cause is shown, because its cases were requested.
    listed_causes = (
        document["causes"]
        if apart and any("cases" in failure for failure in document["causes"])
        else document["causes"][:MAX_CAUSES]
    )
    causes = [
        (
            f"{plural(failure['cells'], 'cell')} failed: {cause(failure)}{_cases_of(failure)}",
            failure["example"]["command"],
        )
        for failure in listed_causes
    ]
    if more := len(document["causes"]) - len(listed_causes) + document["more"]:
        causes.append((f"{plural(more, 'more cause')}", f"wtb report {printable(sweep_id)}"))
    text = [
        line for what, command in causes for line in ([what, f"  {command}"] if apart else [f"{what}; see {command}"])
    ]
    # Causes that are not listed may be worth a retry.
    if listed_causes and not any(failure["retry"] for failure in document["causes"]) and not document["more"]:
        text.append(SAME_ERRORS)
    return text


def _cases_of(failure: FailureCause) -> str:
    """`; cases q1, q7 (2 cells) and 3 more cells`, if they are listed."""
    listed = failure.get("cases")
    if not listed:
        return ""
    counts = (f" ({plural(case['cells'], 'cell')})" if case["cells"] > 1 else "" for case in listed)
    names = ", ".join(printable(case["case"]) + count for case, count in zip(listed, counts, strict=True))
    more = failure["cells"] - sum(case["cells"] for case in listed)
    return f"; cases {names}" + (f" and {plural(more, 'more cell')}" if more else "")


def cause(failure: FailureCause, longest: int = _LONGEST) -> str:
    """`answer: ValueError: no answer`, of at most `longest` characters."""
    what = ": ".join(filter(None, [failure["type"], failure["message"]])) or "no error was recorded"
    text = printable(f"{failure['node']}: {what}" if failure["node"] else what)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
