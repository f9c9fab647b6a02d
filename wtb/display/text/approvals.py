"""Questions to people in a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from wtb.core import texts
from wtb.core.documents.questions import QuestionDocument, QuestionGroup, QuestionsDocument
from wtb.core.documents.shared_types import ApprovalMode
from wtb.core.questions import how_to_answer, mode_text, ways
from wtb.core.texts import printable
from wtb.display.tables import facts, grid, wrapped

if TYPE_CHECKING:
    from pydantic import JsonValue

_LEAST = 24  # columns; what is nested so deeply that less is left is JSON
_QUOTED = re.compile(r"[\[{\"\d\s-]|(true|false|null)$|.*\s$")  # texts that look like other values, or end unseen


def nested(content: Any, width: int) -> list[str]:
    """The lines of a value, each of at most `width` columns."""
    short = _on_a_line(content)
    if short is not None and cell_len(short) <= width:
        return [short]
    if isinstance(content, str):
        return [f"│ {line}".rstrip() for line in wrapped(content, width - 2)]
    if not isinstance(content, dict | list) or width < _LEAST:
        return wrapped(json.dumps(content, ensure_ascii=False, default=str), width)
    return list(_keys(content, width) if isinstance(content, dict) else _items(content, width))


def _keys(mapping: dict[str, JsonValue], width: int) -> Iterator[str]:
    for key, inner in mapping.items():
        name = f"{printable(key)}:"
        short = _on_a_line(inner)
        if short is not None and cell_len(name) + 1 + cell_len(short) <= width:
            yield f"{name} {short}"
            continue
        yield from wrapped(name, width)
        for line in nested(inner, width - 2):
            yield f"  {line}"


def _items(sequence: list[Any], width: int) -> Iterator[str]:
    for inner in sequence:
        first, *rest = nested(inner, width - 2)
        yield f"- {first}"
        for line in rest:
            yield f"  {line}"


def _on_a_line(content: Any) -> str | None:
    """A value on one line, however long; None where that would hide the lines of a text or what a value is made of."""
    if isinstance(content, str) and "\n" not in content and content and not _QUOTED.match(content):
        return printable(content)
    if isinstance(content, dict | list):
        inner = content.values() if isinstance(content, dict) else content
        if any(isinstance(child, dict | list) and child for child in inner):
            return None
    text = json.dumps(content, ensure_ascii=False, default=str)
    return None if "\\n" in text else printable(text)


_LINES = 60  # of what there is to look at; JSON has all of it
_WITH = {
    ("ask", "approve"): " [--feedback TEXT] [--value JSON]",
    ("error", "approve"): " --feedback TEXT",
    ("action", "approve"): " --feedback-file FILE",
}


def asking_modes(modes: Sequence[ApprovalMode]) -> str:
    """Write approval modes on one line; nothing if only nodes ask."""
    return "" if list(modes) == ["manual"] else ", ".join(map(mode_text, modes))


def by_mode(mode: ApprovalMode | None) -> str:
    """Write which approval mode asks a question, to stand behind it; nothing if a node asks."""
    return "" if mode is None else f" (asked by {mode_text(mode)})"


def grouped(document: QuestionsDocument, width: int, color: bool = False) -> str:
    """Open questions, those that ask the same on one line, with the command that answers them all."""
    groups = document["groups"]
    several = any(group["questions"] > 1 for group in groups)
    headers = ["id", "asked", "sweep", "case", "node", *(["questions"] if several else []), "expires"]
    rows = [
        [
            group["id"],
            texts.moment(group["asked_at"]),
            (group["workflow"] or "") if group["sweep"]["kind"] == "single" else group["sweep"]["name"],
            "–" if group["sweep"]["kind"] == "single" else _case(group),
            group["node"] or "–",
            *([f"{group['questions']:,}"] if several else []),
            texts.moment(group["expires_at"]),
        ]
        for group in groups
    ]
    notes = ["\n".join([_question(group, width), *_all_of(group)]) for group in groups]
    return grid(headers, rows, width, right={"questions"}, whole={"id", "asked"}, notes=notes, color=color)


def _question(question: QuestionDocument | QuestionGroup, width: int) -> str:
    # Without the quotes that `short` puts around a text.
    return texts.short(question["question"], 3 * width)[1:-1] + by_mode(question.get("mode"))


def _case(group: QuestionGroup) -> str:
    return f"{group['cases']:,} cases" if group["cases"] > 1 else group["case"] or "–"


def _all_of(group: QuestionGroup) -> list[str]:
    """Return the command that answers all questions of a group; empty for a single question."""
    if group["questions"] < 2:
        return []
    # `how_to_answer` returns `wtb answer ID ...`, of which `wtb answer-all` takes the part after the id.
    way = how_to_answer(group["id"], group["kind"], group["options"]).partition(f"{group['id']} ")[2]
    return [printable(f"all {group['questions']:,}: wtb answer-all --question {group['id']} {way}")]


def listed(document: QuestionsDocument, width: int, color: bool = False) -> str:
    """Questions, each with who asks and since when; the question itself is below its line."""
    approvals = document["approvals"]
    closed = any(question["status"] != "open" for question in approvals)
    headers = ["id", "asked", "sweep", "case", "node", "status" if closed else "expires"]
    rows = [
        [
            question["id"],
            texts.moment(question["asked_at"]),
            (question["workflow"] or "") if question["sweep"]["kind"] == "single" else question["sweep"]["name"],
            "–" if question["sweep"]["kind"] == "single" else question["case"] or "–",
            question["node"] or "–",
            question["status"] if closed else texts.moment(question["expires_at"]),
        ]
        for question in approvals
    ]
    notes = [_question(question, width) + _answer(question) + _with(question) for question in approvals]
    return grid(headers, rows, width, whole={"id", "asked", "status"}, notes=notes, color=color)


def question_details(document: QuestionDocument, width: int, color: bool = False) -> str:
    """One question: what there is to look at, and how to answer it."""
    sweep = document["sweep"]
    single = sweep["kind"] == "single"
    pairs = [
        ("question", document["id"]),
        ("status", document["status"]),
        ("workflow", document["workflow"]),
        ("" if single else "sweep", f"{sweep['name']} ({sweep['id']})"),
        ("" if single else "case", document["case"] or "–"),
        ("node", document["node"] or ""),
        ("asked by", f"approval mode {mode_text(mode)}" if (mode := document.get("mode")) else ""),
        ("waits", texts.plural(document["executions"], "execution") if document["status"] == "open" else ""),
        ("asked", texts.moment(document["asked_at"])),
        ("expires", texts.moment(document["expires_at"]) if document["expires_at"] else ""),
        ("default", document["default"] or ""),
        ("answer", _answer(document).removeprefix(" → ")),
    ]
    lines = facts([(name, printable(text)) for name, text in pairs if name], width)
    for paragraph in document["question"].splitlines():
        lines += "\n".join(["", *wrapped(printable(paragraph), width)])
    lines += "\n" + _whole(document["context"], width)
    if document["answer"] and document["answer"]["value"] is not None:
        lines += "\nanswered with\n" + _whole(document["answer"]["value"], width)
    return lines + _how(document)


def _whole(content: Any, width: int) -> str:
    """Show what there is to look at, or what was given, below its heading."""
    if content is None:
        return ""
    lines = wrapped(content.rstrip("\n"), width - 2) if isinstance(content, str) else nested(content, width - 2)
    more = [f"... {len(lines) - _LINES:,} more lines: --format json shows all"] if len(lines) > _LINES else []
    return "\n" + "".join(f"  {line}\n" for line in [*lines[:_LINES], *more])


def _how(document: QuestionDocument) -> str:
    """The commands that answer a question."""
    if document["status"] != "open":
        return ""
    kind, options = document["kind"], document["options"]
    answers = [
        f"modify{' --choose OPTION' if options else ''} --set KEY=VALUE"
        if way == "modify"
        else way + ("" if options else _WITH.get((kind, way), ""))
        for way in ways(kind, options)
    ]
    return "\n" + "".join(f"wtb answer {document['id']} {printable(answer)}\n" for answer in answers)


def _answer(document: QuestionDocument) -> str:
    """Return an answer in words; empty without one."""
    answer = document["answer"]
    if answer is None:
        return ""
    actions = {"approve": "approved", "reject": "rejected", "modify": "modified", "expired": "nobody answered"}
    action = actions[answer["action"]]
    if answer["choice"]:
        action = f"{answer['choice']!r}" if answer["action"] == "approve" else f"{action}, {answer['choice']!r}"
    by = f" by {answer['by']}" if answer["by"] else ", as nobody answered" if answer["action"] == "approve" else ""
    keys = f" ({', '.join(answer['set'])})" if answer["set"] else ""
    feedback = f": {texts.short(answer['feedback'], 200)[1:-1]}" if answer["feedback"] else ""
    return f" → {action}{keys}{by}{feedback}"


def _with(document: QuestionDocument) -> str:
    """The value that came with an answer, on a line."""
    answer_value = document["answer"] and document["answer"]["value"]
    return "" if answer_value is None else f", with {texts.short(answer_value, 200)}"
