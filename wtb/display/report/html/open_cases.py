"""Cases opened: input, expected value, and two combinations side by side with what differs between them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from html import escape
from typing import Any

from wtb.core import texts as messages
from wtb.core.texts import printable
from wtb.display.report.html import layout
from wtb.display.report.html.markup import block, name, note, section, text

Document = Mapping[str, Any]

SIDES = "AB"
MOST_WORDS = 2_000  # of a text that is compared word by word; of a longer one whole lines are
_WORD = re.compile(r"\s*\S+|\s+")
_WHY = {
    "differ": "combinations differ much",
    "hard": "hard for all",
    "failed": "one of them failed",
    "all": "",
}


def anchors(document: Document) -> dict[str, str]:
    """Where each case is opened on the page: case -> anchor."""
    found: dict[str, str] = {}
    for number, one in enumerate(_found(document)["cases"]):
        found.setdefault(one["case"], f"case-{number}")
    return found


def _found(document: Document) -> Document:
    nothing: Document = {"cases": [], "left_out": 0, "cut": 0}
    return document.get("opened") or nothing


def opened(document: Document) -> str:
    """A box for each case, closed until it is clicked."""
    found, matrix = _found(document), document["matrix"]
    if not found["cases"]:
        return ""
    legend = "Each opens to what went in and what came out of two combinations. Words that differ are marked."
    cases = [_case(matrix, one, f"case-{number}") for number, one in enumerate(found["cases"])]
    return section("opened", "Side by side", note(legend), *cases, _left_out(matrix, found))


def _left_out(matrix: Mapping[str, Any], found: Document) -> str:
    said = []
    if found["cut"]:
        said.append(f"{messages.plural(found['cut'], 'character')} of long values")
    if found["left_out"]:
        said.append(messages.plural(found["left_out"], "case"))
    if not said:
        return ""
    command = f"wtb report {matrix['sweep']['id']} --full --output report.html"
    return note(f"Left out to keep the page small: {' and '.join(said)}. All: <code>{text(command)}</code>")


def _case(matrix: dict[str, Any], one: Document, anchor: str) -> str:
    sides = one["sides"]
    metric = matrix["primary"]
    scores = [messages.score(side["scores"][metric]) if metric in side["scores"] else side["status"] for side in sides]
    facts = [" | ".join(scores), _WHY[one["why"]], ", ".join(one["tags"])]
    said = "".join(f' <span class="faint">{text(fact, 120)}</span>' for fact in facts if fact)
    given = "".join(f"<dt>{name(key, 40)}</dt><dd>{_value(value)}</dd>" for key, value in one["input"].items())
    if one["expected"] is not None:
        given += f"<dt><b>expected</b></dt><dd>{_value(one['expected'])}</dd>"
    inside = [
        f'<dl class="given" id="{anchor}">{given}</dl>',
        block("div", _rows(matrix, sides), f"sides of{len(sides)}") if sides else note("No cell of it has begun."),
    ]
    return block("details", [f"<summary><b>{name(one['case'], 80)}</b>{said}</summary>", *inside], "case")


def _rows(matrix: dict[str, Any], sides: Sequence[Document]) -> list[str]:
    """The rows of the comparison: headings reach over all sides, and so does what is the same in both."""
    rows = [_cell(number, _head(matrix, side), "side head") for number, side in enumerate(sides)]
    for key in dict.fromkeys(key for side in sides for key in side["output"]):
        rows += [_heading(name(key, 60)), *_values([side["output"].get(key) for side in sides])]
    if any(side["error"] for side in sides):
        rows += [_heading("error"), *_values([side["error"] for side in sides])]
    rows += [_heading("steps"), *(_cell(number, _steps(sides, number)) for number in range(len(sides)))]
    if any(side["calls"] for side in sides):
        rows += [_heading("calls"), *(_cell(number, _calls(side)) for number, side in enumerate(sides))]
    if any(side["files"] is None or side["files"]["changes"] for side in sides):
        rows += [_heading("files"), *(_cell(number, _files(sides, number)) for number in range(len(sides)))]
    return rows


def _heading(said: str) -> str:
    return f"<h4>{said}</h4>"


def _cell(number: int, inner: str, classes: str = "side") -> str:
    return f'<div class="{classes}" data-side="{SIDES[number]}">{inner}</div>'


def _head(matrix: dict[str, Any], side: Document) -> str:
    scores = " ".join(
        f"<span>{name(metric.rsplit(':')[-1], 40)} <b>{text(_score(value), 40)}</b></span>"
        for metric, value in side["scores"].items()
    )
    totals = side["totals"] or {}
    spent = [messages.took(totals["elapsed_s"])] if totals else []
    spent += [messages.money(totals["usd"])] if totals.get("usd") else []
    tokens = totals.get("tokens_in", 0) + totals.get("tokens_out", 0)
    spent += [messages.plural(tokens, "token")] if tokens else []
    facts = f'<span class="faint">{text(", ".join([side["status"], *spent]))}</span>'
    command = f"<code>{text('wtb show ' + side['execution'])}</code>"
    return f"<b>{layout.label(matrix, side['combination'])}</b><br>{scores} {facts}<br>{command}"


def _score(value: Any) -> str:
    return "failed" if isinstance(value, str) else messages.score(value)


def _values(found: Sequence[Document | None]) -> list[str]:
    """The values of a key: once where all have the same, else each with what differs from the other marked."""
    if len(found) == 2 and found[0] is not None and found[0] == found[1]:
        return [f'<div class="same"><small class="faint">the same in both</small>{_value(found[0])}</div>']
    texts = [None if one is None else one["text"] for one in found]
    if len(texts) == 2 and texts[0] is not None and texts[1] is not None:
        marked: list[str] = list(marked_texts(texts[0], texts[1]))
    else:
        marked = ["" if one is None else multiline(one) for one in texts]
    return [
        _cell(number, '<span class="faint">nothing</span>' if one is None else _boxed(inner, one["cut"]))
        for number, (one, inner) in enumerate(zip(found, marked, strict=True))
    ]


def _value(value: Document) -> str:
    return _boxed(multiline(value["text"]), value["cut"])


def _boxed(inner: str, cut: int) -> str:
    more = f'<small class="faint">… {messages.plural(cut, "more character")}</small>' if cut else ""
    return f'<div class="value" dir="auto">{inner or "&nbsp;"}</div>{more}'


def multiline(value: str) -> str:
    """Text of the user's, escaped, with its lines."""
    return "\n".join(escape(printable(line.replace("\t", "    "))) for line in value.split("\n"))


def marked_texts(a: str, b: str) -> tuple[str, str]:
    """Two texts as HTML, with what only one has in `del` or `ins`: by words, or by lines where they are long."""
    one, other = (_WORD.findall(text) for text in (a, b))
    if max(len(one), len(other)) > MOST_WORDS:
        one, other = (text.splitlines(keepends=True) for text in (a, b))
    matcher = SequenceMatcher(None, one, other, autojunk=max(len(one), len(other)) > 500)
    parts = (one, other)
    out: tuple[list[str], list[str]] = ([], [])
    for tag, *ends in matcher.get_opcodes():
        for side, (part, mark) in enumerate(zip(parts, ("del", "ins"), strict=True)):
            piece = "".join(part[ends[2 * side] : ends[2 * side + 1]])
            if not piece:
                continue
            if tag == "equal":
                out[side].append(multiline(piece))
                continue
            lead = piece[: len(piece) - len(piece.lstrip())]  # blanks before a word that differs are not marked
            out[side].append(f"{multiline(lead)}<{mark}>{multiline(piece[len(lead) :])}</{mark}>")
    return "".join(out[0]), "".join(out[1])


def _steps(sides: Sequence[Document], number: int) -> str:
    """The steps of one side; those that the other has not, in the same place, are marked."""
    others = [_said(step) for side in sides if side is not sides[number] for step in side["steps"]]
    items = []
    for at, step in enumerate(sides[number]["steps"]):
        said = _said(step)
        tag = "b" if len(sides) > 1 and (at >= len(others) or others[at] != said) else "span"
        spent = [messages.took(step["duration_s"])] if step["duration_s"] is not None else []
        spent += [messages.money(step["usd"])] if step["usd"] else []
        spent += [f"attempt {step['attempts']}"] if step["attempts"] > 1 else []
        facts = f' <small class="faint">{text(", ".join(spent))}</small>' if spent else ""
        wrong = f'<br><small class="bad">{text(step["error"], 400)}</small>' if step["error"] else ""
        items.append(f"<li><{tag}>{text(said, 120)}</{tag}>{facts}{wrong}</li>")
    more = sides[number]["more"]["steps"]
    items += [f'<li class="faint">{more:,} more</li>'] if more else []
    return block("ol", items) if items else '<span class="faint">none</span>'


def _said(step: Document) -> str:
    status = "" if step["status"] == "succeeded" else f" ({step['status']})"
    return f"{step['node']}={step['variant']}{status}"


def _calls(side: Document) -> str:
    made = []
    for call in side["calls"]:
        tokens = f"{call['tokens_in'] or 0:,} + {call['tokens_out'] or 0:,} tokens" if call["tokens_in"] else ""
        took = messages.took(call["duration_s"]) if call["duration_s"] is not None else ""
        cost = messages.money(call["usd"]) if call["usd"] else ""
        facts = ", ".join(filter(None, [tokens, took, cost]))
        what = call["model"] or call["tool"] or "call"
        head = f"{text(call['node'], 60)}: {text(what, 60)} <small class='faint'>{text(facts)}</small>"
        said = "".join(
            f'<small class="faint">{label}</small>{_value(call[key])}'
            for key, label in (("prompt", "asked"), ("response", "answered"))
            if call[key] is not None
        )
        made.append(f"<details><summary>{head}</summary>{said}</details>" if said else f"<p>{head}</p>")
    more = side["more"]["calls"]
    made += [f'<p class="faint">{more:,} more</p>'] if more else []
    return "".join(made) or '<span class="faint">none</span>'


def _files(sides: Sequence[Document], number: int) -> str:
    """What one side changed of the files; what the other has with the same content is not marked."""
    found = sides[number]["files"]
    if found is None:
        return '<span class="faint">not here any more, or on another machine</span>'
    theirs = {
        (one["path"], one["sha256"])
        for side in sides
        if side is not sides[number] and side["files"] is not None
        for one in side["files"]["changes"]
    }
    items = []
    for one in found["changes"]:
        tag = "span" if len(sides) < 2 or (one["path"], one["sha256"]) in theirs else "b"
        size = "" if one["bytes"] is None else f", {messages.bytes_of(one['bytes'])}"
        facts = f'<small class="faint">{one["kind"]}{size}</small>'
        items.append(f"<li><{tag}>{name(one['path'], 80)}</{tag}> {facts}</li>")
    items += [f'<li class="faint">{found["more"]:,} more</li>'] if found["more"] else []
    return block("ul", items) if items else '<span class="faint">none</span>'
