"""Cases opened: input, expected value, and two combinations side by side with what differs between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from wtb.core import texts
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


def anchors(document: EvidenceDocument) -> dict[str, str]:
    """Where each case is opened on the page: case -> anchor."""
    cases = document["opened"]["cases"] if "opened" in document else []
    return {one["case"]: f"case-{number}" for number, one in reversed(list(enumerate(cases)))}


def opened(document: EvidenceDocument) -> dict[str, Any] | None:
    """A box for each case, closed until it is clicked."""
    found = document.get("opened")
    if not found or not found["cases"]:
        return None
    left_out = [f"{texts.plural(found['cut'], 'character')} of long values"] if found["cut"] else []
    left_out += [texts.plural(found["left_out"], "case")] if found["left_out"] else []
    primary = document["matrix"]["primary"]
    return {"cases": [_case(one, primary) for one in found["cases"]], "left_out": left_out}


def _case(one: OpenedCase, metric: str | None) -> dict[str, Any]:
    sides = one["sides"]
    scores = [texts.score(side["scores"][metric]) if metric in side["scores"] else side["status"] for side in sides]
    keys = dict.fromkeys(key for side in sides for key in side["output"])
    errors = [side["error"] for side in sides]
    has_files = any(side["files"] is None or side["files"]["changes"] for side in sides)
    return {
        **one,
        "facts": list(filter(None, [" | ".join(scores), _WHY[one["why"]], ", ".join(one["tags"])])),
        "sides": [_side(sides, number) for number in range(len(sides))],
        "outputs": [(key, _values([side["output"].get(key) for side in sides])) for key in keys],
        "errors": _values(errors) if any(errors) else None,
        "parts": ["steps", *(["calls"] * any(side["calls"] for side in sides)), *(["files"] * has_files)],
    }


def _values(values: Sequence[CutText | None]) -> dict[str, Any]:
    """The values of a key: once where all have the same, else each with what differs from the other marked."""
    first, second = values[0], values[-1]
    if len(values) < 2 or first is None or second is None:
        return {"same": None, "sides": [one and {**one, "shown": lines(one["text"])} for one in values]}
    if first == second:
        return {"same": first}
    marked = marked_texts(first["text"], second["text"])
    return {
        "same": None,
        "sides": [{**one, "shown": shown} for one, shown in zip((first, second), marked, strict=True)],
    }


def _side(sides: Sequence[OpenedSide], number: int) -> dict[str, Any]:
    side = sides[number]
    others = [one for one in sides if one is not side]
    scores = {metric.rsplit(":")[-1]: _score(value) for metric, value in side["scores"].items()}
    return {
        **side,
        "shown_scores": scores,
        "spent": ", ".join([side["status"], *_spent(side["totals"])]),
        "shown_steps": _steps(side, others),
        "shown_calls": [{**call, "facts": _call_facts(call)} for call in side["calls"]],
        "shown_files": _files(side, others),
    }


def _score(value: Any) -> str:
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


def _steps(side: OpenedSide, others: Sequence[OpenedSide]) -> list[dict[str, Any]]:
    """The steps of one side; those that the other has not, in the same place, are marked."""
    theirs = [_step(step) for other in others for step in other["steps"]]
    return [
        {
            "shown": _step(step),
            "is_marked": bool(others) and theirs[at : at + 1] != [_step(step)],
            "facts": _step_facts(step),
            "error": step["error"],
        }
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


def _files(side: OpenedSide, others: Sequence[OpenedSide]) -> list[dict[str, Any]]:
    """What one side changed of the files; what the other has with the same content is not marked."""
    theirs = {
        (one["path"], one["sha256"])
        for other in others
        if other["files"] is not None
        for one in other["files"]["changes"]
    }
    return [
        {
            "shown": name(one["path"], 80),
            "is_marked": bool(others) and (one["path"], one["sha256"]) not in theirs,
            "facts": one["kind"] if one["bytes"] is None else f"{one['kind']}, {texts.bytes_of(one['bytes'])}",
            "error": None,
        }
        for one in (side["files"] or {"changes": ()})["changes"]
    ]
