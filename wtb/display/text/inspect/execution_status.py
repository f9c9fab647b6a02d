"""How one execution stands, in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wtb.core import texts
from wtb.core.documents.events.texts import under
from wtb.core.documents.executions import OpenQuestion, RunningNode, StandingDocument
from wtb.core.texts import printable
from wtb.display.tables import facts
from wtb.display.text.approvals import asking_modes, by_mode


def standing(document: StandingDocument, width: int, color: bool = False) -> str:
    """Where an execution is, who holds it, what holds it up, and what can be done."""
    about = document["execution"]
    sweep, status = about["sweep"], about["status"]
    name = f"{printable(sweep['name'])} ({sweep['id']})"
    what = (
        f"execution {about['id']}"
        if sweep["kind"] != "single"
        else f"execution {printable(sweep['name'])} ({about['id']})"
    )
    title = f"{what}: {texts.colored(status, status, color)}{' (edited)' if about['edited'] else ''}"
    return f"{title}\n{facts(_facts(document, name), width)}"


def _facts(document: StandingDocument, name: str) -> list[tuple[str, str]]:
    about, owner, asked = document["execution"], document["owner"], document["asked"]
    single = about["sweep"]["kind"] == "single"
    chosen = (
        texts.describe_choices(about["choices"]) if about["choices"] is not None else _chosen(about["combinations"])
    )
    repeat = f", repeat {about['repeat']}" if about["repeat"] else ""
    who = ""
    if owner is not None:
        place = f"process {owner['pid']} on {owner['host']}: {owner['state']}"
        who = f"worker {owner['worker']}, {place}" if owner["worker"] else place
    cells = ", ".join(f"{count:,} {status.replace('_', ' ')}" for status, count in document["cells"].items())
    return [
        ("sweep", "" if single else f"{name}, {about['sweep']['status']}"),
        ("case", "" if single else f"{about['case']}{repeat}"),
        ("variants", chosen),
        ("since", texts.moment(about["since"], seconds=True) if about["since"] else ""),
        ("reason", printable(about["reason"] or "")),
        ("stalled", texts.moment(about["stalled_at"], seconds=True) if about["stalled_at"] else ""),
        ("step", "" if document["step"] is None else str(document["step"])),
        ("next", ", ".join(document["next"]) or ("the end" if document["checkpoint"] else "")),
        ("runs", "; ".join(map(_run, document["nodes"]))),
        *(("prints", printable(_last_line(run["printed"]))) for run in document["nodes"] if "printed" in run),
        ("held by", who),
        ("asked for", "" if asked is None else printable(f"{asked['to']} {asked['reason']}")),
        *(("question", printable(_question(one))) for one in document["questions"]),
        ("asks", asking_modes(document.get("approval", []))),
        *(("breakpoint", printable(text)) for text in document["breakpoints"]),
        ("cells", "" if single else cells),
        *(("possible" if place == 0 else "", printable(command)) for place, command in enumerate(document["commands"])),
    ]


def _question(question: OpenQuestion) -> str:
    return f"{question['id']}: {question['question']}{by_mode(question.get('mode'))}"


def _chosen(combinations: Sequence[Mapping[str, str]]) -> str:
    return texts.chosen_by_all(combinations) if any(combinations) else ""


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2]


def _run(run: RunningNode) -> str:
    attempt = f", attempt {run['attempt']}" if run["attempt"] > 1 else ""
    return f"{under(run)} for {texts.took(run['for_s'])}{attempt}"
