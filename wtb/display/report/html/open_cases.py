"""Cases opened: input, expected value, and two combinations side by side with what differs between them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from markupsafe import Markup

from wtb.core import texts
from wtb.core.classes.frozen import frozen
from wtb.core.documents.executions import TotalsDocument
from wtb.core.documents.report import CutText, OpenedCall, OpenedCase, OpenedSide, OpenedStep
from wtb.display.report.html.markup import lines, name

if TYPE_CHECKING:
    from wtb.core.documents.report import EvidenceDocument


MOST_WORDS = 2_000  # of a text that is compared word by word; of a longer one whole lines are
_WORD = re.compile(r"\s*\S+|\s+")
_WHY = {
    "differ": "combinations differ much",
    "hard": "hard for all",
    "failed": "one of them failed",
    "all": "",
}


@frozen
class MarkedText:
    """A value of one side as HTML, and how many characters of it were cut off."""

    shown: Markup
    cut: int


@frozen
class Values:
    """What the sides have under a key: `same` where all have the same, else each its own, or None."""

    same: CutText | None
    sides: Sequence[MarkedText | None] = ()


@frozen
class ListedItem:
    """A step or a file. is_marked: whether the other side has not the same."""

    shown: str
    is_marked: bool
    facts: str
    error: str | None


@frozen
class ShownCall:
    """A call of a model or a tool, with what it cost in words."""

    call: OpenedCall
    facts: str


@frozen
class ShownSide:
    """An execution of a case, with its scores, costs, steps, calls and files as they are shown."""

    found: OpenedSide
    scores: Mapping[str, str]
    spent: str
    steps: Sequence[ListedItem]
    calls: Sequence[ShownCall]
    files: Sequence[ListedItem]


@frozen
class ShownCase:
    """A case and its sides.

    Attributes:
        outputs: Keys with the values that the sides ended in.
        errors: What they failed with, if any did.
        parts: Which lists the sides have.
    """

    found: OpenedCase
    facts: Sequence[str]
    sides: Sequence[ShownSide]
    outputs: Sequence[tuple[str, Values]]
    errors: Values | None
    parts: Sequence[str]


@frozen
class Opened:
    """Cases that can be opened, and what was left out, in words."""

    cases: Sequence[ShownCase]
    left_out: Sequence[str]


def anchors(document: EvidenceDocument) -> dict[str, str]:
    """Where each case is opened on the page: case -> anchor."""
    cases = document["opened"]["cases"] if "opened" in document else []
    return {one["case"]: f"case-{number}" for number, one in reversed(list(enumerate(cases)))}


def opened(document: EvidenceDocument) -> Opened | None:
    """A box for each case, closed until it is clicked."""
    found = document.get("opened")
    if not found or not found["cases"]:
        return None
    left_out = [f"{texts.plural(found['cut'], 'character')} of long values"] if found["cut"] else []
    left_out += [texts.plural(found["left_out"], "case")] if found["left_out"] else []
    primary = document["matrix"]["primary"]
    return Opened([_case(one, primary) for one in found["cases"]], left_out)


def _case(one: OpenedCase, metric: str | None) -> ShownCase:
    sides = one["sides"]
    scores = [texts.score(side["scores"][metric]) if metric in side["scores"] else side["status"] for side in sides]
    keys = dict.fromkeys(key for side in sides for key in side["output"])
    errors = [side["error"] for side in sides]
    has_files = any(side["files"] is None or side["files"]["changes"] for side in sides)
    return ShownCase(
        one,
        facts=list(filter(None, [" | ".join(scores), _WHY[one["why"]], ", ".join(one["tags"])])),
        sides=[_side(sides, number) for number in range(len(sides))],
        outputs=[(key, _values([side["output"].get(key) for side in sides])) for key in keys],
        errors=_values(errors) if any(errors) else None,
        parts=["steps", *(["calls"] * any(side["calls"] for side in sides)), *(["files"] * has_files)],
    )


def _values(values: Sequence[CutText | None]) -> Values:
    """The values of a key: once where all have the same, else each with what differs from the other marked."""
    first, second = values[0], values[-1]
    if len(values) < 2 or first is None or second is None:
        return Values(None, [one and MarkedText(lines(one["text"]), one["cut"]) for one in values])
    if first == second:
        return Values(first)
    left, right = marked_texts(first["text"], second["text"])
    return Values(None, [MarkedText(left, first["cut"]), MarkedText(right, second["cut"])])


def _side(sides: Sequence[OpenedSide], number: int) -> ShownSide:
    side = sides[number]
    others = [one for one in sides if one is not side]
    return ShownSide(
        side,
        scores={metric.rsplit(":")[-1]: _score(value) for metric, value in side["scores"].items()},
        spent=", ".join([side["status"], *_spent(side["totals"])]),
        steps=_steps(side, others),
        calls=[ShownCall(call, _call_facts(call)) for call in side["calls"]],
        files=_files(side, others),
    )


def _score(value: float | str | None) -> str:
    return "failed" if isinstance(value, str) else texts.score(value)


def _spent(totals: TotalsDocument | None) -> list[str]:
    if not totals:
        return []
    tokens = totals.get("tokens_in", 0) + totals.get("tokens_out", 0)
    spent = [texts.took(totals["elapsed_s"])]
    spent += [texts.money(totals["usd"])] if totals.get("usd") else []
    return spent + ([texts.plural(tokens, "token")] if tokens else [])


def marked_texts(a: str, b: str) -> tuple[Markup, Markup]:
    """Two texts as HTML, with what only one has in `del` or `ins`: by words, or by lines where they are long."""
    one, other = (_WORD.findall(text) for text in (a, b))
    if max(len(one), len(other)) > MOST_WORDS:
        one, other = (text.splitlines(keepends=True) for text in (a, b))
    matcher = SequenceMatcher(None, one, other, autojunk=max(len(one), len(other)) > 500)
    left, right = Markup(), Markup()
    for tag, a1, a2, b1, b2 in matcher.get_opcodes():
        left += _piece("".join(one[a1:a2]), None if tag == "equal" else "del")
        right += _piece("".join(other[b1:b2]), None if tag == "equal" else "ins")
    return left, right


def _piece(piece: str, mark: str | None) -> Markup:
    """A part of a text as HTML; blanks before a word that differs are not marked."""
    if mark is None or not piece:
        return lines(piece)
    blanks = piece[: len(piece) - len(piece.lstrip())]
    return Markup("{}<{}>{}</{}>").format(lines(blanks), mark, lines(piece[len(blanks) :]), mark)


def _steps(side: OpenedSide, others: Sequence[OpenedSide]) -> list[ListedItem]:
    """The steps of one side; those that the other has not, in the same place, are marked."""
    theirs = [_step(step) for other in others for step in other["steps"]]
    return [
        ListedItem(
            shown=_step(step),
            is_marked=bool(others) and theirs[at : at + 1] != [_step(step)],
            facts=_step_facts(step),
            error=step["error"],
        )
        for at, step in enumerate(side["steps"])
    ]


def _step(step: OpenedStep) -> str:
    status = "" if step["status"] == "succeeded" else f" ({step['status']})"
    return f"{step['node']}={step['variant']}{status}"


def _step_facts(step: OpenedStep) -> str:
    facts = [texts.took(step["duration_s"])] if step["duration_s"] is not None else []
    facts += [texts.money(step["usd"])] if step["usd"] else []
    return ", ".join(facts + ([f"attempt {step['attempts']}"] if step["attempts"] > 1 else []))


def _call_facts(call: OpenedCall) -> str:
    facts = [f"{call['tokens_in']:,} + {call['tokens_out'] or 0:,} tokens"] if call["tokens_in"] else []
    facts += [texts.took(call["duration_s"])] if call["duration_s"] is not None else []
    return ", ".join(facts + ([texts.money(call["usd"])] if call["usd"] else []))


def _files(side: OpenedSide, others: Sequence[OpenedSide]) -> list[ListedItem]:
    """What one side changed of the files; what the other has with the same content is not marked."""
    theirs = {
        (one["path"], one["sha256"])
        for other in others
        if other["files"] is not None
        for one in other["files"]["changes"]
    }
    return [
        ListedItem(
            shown=name(one["path"], 80),
            is_marked=bool(others) and (one["path"], one["sha256"]) not in theirs,
            facts=one["kind"] if one["bytes"] is None else f"{one['kind']}, {texts.bytes_of(one['bytes'])}",
            error=None,
        )
        for one in (side["files"] or {"changes": ()})["changes"]
    ]
