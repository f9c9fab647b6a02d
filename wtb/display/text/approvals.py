"""Questions to people in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wtb.core import texts
from wtb.core.arguments.approval import mode_text
from wtb.core.documents.common import ApprovalMode
from wtb.core.documents.questions import QuestionDocument, QuestionGroup, QuestionsDocument
from wtb.core.questions import how_to_answer, ways
from wtb.core.texts import printable
from wtb.display.nested import nested
from wtb.display.tables import facts, grid, wrapped

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
    several = any(one["questions"] > 1 for one in groups)
    headers = ["id", "asked", "sweep", "case", "node", *(["questions"] if several else []), "expires"]
    rows = [
        [
            one["id"],
            texts.moment(one["asked_at"]),
            (one["workflow"] or "") if one["sweep"]["kind"] == "single" else one["sweep"]["name"],
            "–" if one["sweep"]["kind"] == "single" else _case(one),
            one["node"] or "–",
            *([f"{one['questions']:,}"] if several else []),
            texts.moment(one["expires_at"]),
        ]
        for one in groups
    ]
    notes = ["\n".join([_question(one, width), *_all_of(one)]) for one in groups]
    return grid(headers, rows, width, right={"questions"}, whole={"id", "asked"}, notes=notes, color=color)


def _question(one: QuestionDocument | QuestionGroup, width: int) -> str:
    return texts.short(one["question"], 3 * width)[1:-1] + by_mode(one.get("mode"))


def _case(one: QuestionGroup) -> str:
    return f"{one['cases']:,} cases" if one["cases"] > 1 else one["case"] or "–"


def _all_of(one: QuestionGroup) -> list[str]:
    """How to answer all questions of a group."""
    if one["questions"] < 2:
        return []
    way = how_to_answer(one["id"], one["kind"], one["options"]).partition(f"{one['id']} ")[2]
    return [printable(f"all {one['questions']:,}: wtb answer-all --question {one['id']} {way}")]


def listed(document: QuestionsDocument, width: int, color: bool = False) -> str:
    """Questions, each with who asks and since when; the question itself is below its line."""
    approvals = document["approvals"]
    closed = any(one["status"] != "open" for one in approvals)
    headers = ["id", "asked", "sweep", "case", "node", "status" if closed else "expires"]
    rows = [
        [
            one["id"],
            texts.moment(one["asked_at"]),
            (one["workflow"] or "") if one["sweep"]["kind"] == "single" else one["sweep"]["name"],
            "–" if one["sweep"]["kind"] == "single" else one["case"] or "–",
            one["node"] or "–",
            one["status"] if closed else texts.moment(one["expires_at"]),
        ]
        for one in approvals
    ]
    notes = [_question(one, width) + _answer(one) + _with(one) for one in approvals]
    return grid(headers, rows, width, whole={"id", "asked", "status"}, notes=notes, color=color)


def one(document: QuestionDocument, width: int, color: bool = False) -> str:
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


def _whole(value: Any, width: int) -> str:
    """What there is to look at, or what was given, below its heading."""
    if value is None:
        return ""
    lines = wrapped(value.rstrip("\n"), width - 2) if isinstance(value, str) else nested(value, width - 2)
    more = [f"... {len(lines) - _LINES:,} more lines: --format json shows all"] if len(lines) > _LINES else []
    return "\n" + "".join(f"  {line}\n" for line in [*lines[:_LINES], *more])


def _how(document: QuestionDocument) -> str:
    """The commands that answer a question."""
    if document["status"] != "open":
        return ""
    kind, options = document["kind"], document["options"]
    answers = [
        f"modify{' --choose OPTION' if options else ''} --set KEY=VALUE"
        if one == "modify"
        else one + ("" if options else _WITH.get((kind, one), ""))
        for one in ways(kind, options)
    ]
    return "\n" + "".join(f"wtb answer {document['id']} {printable(one)}\n" for one in answers)


def _answer(document: QuestionDocument) -> str:
    """What was answered, in words."""
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
    value = document["answer"] and document["answer"]["value"]
    return "" if value is None else f", with {texts.short(value, 200)}"
