"""Processes of a machine, findings of `wtb doctor`, removals of `wtb admin gc`, and sessions, in a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Final

from wtb.core import texts
from wtb.core.documents import administration as documents
from wtb.core.ids import DEFAULT_PROJECT
from wtb.core.texts import money, printable
from wtb.display.tables import facts, grid, paragraphs, wrapped

_WHAT = {
    "sweeps": "sweeps",
    "checkpoints": "superseded checkpoints",
    "node_runs": "their node runs",
    "outputs": "outputs of attempts",
    "values": "values",
    "files": "stored files",
    "judgements": "judgements unused for 90 days",
    "uploads": "uploads of more than a day",
    "answers": "kept answers to requests",
    "directories": "directories of dead runners",
    "processes": "processes of dead runners",
}


def collected(document: documents.CollectionDocument, width: int, color: bool = False) -> str:
    """A line for each kind of thing: how many, and how large where that is known."""
    rows = [
        [
            _WHAT.get(kind, kind),
            f"{totals['count']:,}",
            "" if totals["bytes"] is None else texts.bytes_of(totals["bytes"]),
        ]
        for kind, totals in document["removed"].items()
    ]
    title = "would be removed" if document["dry_run"] else "removed"
    parts = [grid([title, "how many", "bytes"], rows, width, right={"how many", "bytes"}, color=color)]
    parts += [paragraphs([note], width) for note in document["notes"]]
    return "\n".join(parts)


def stack(document: documents.StackDocument, width: int, color: bool = False) -> str:
    """A line for each part. No passwords: this is for shared screens."""
    if document["pid"] is None:
        return "no stack is up in this folder; `wtb up` starts one\n"
    rows = [
        [
            part["name"],
            part["status"],
            str(part["pid"] or ""),
            part["address"] or "",
            texts.moment(part["since"]) if part["since"] else "",
            texts.bytes_of(part["memory"]) if part["memory"] is not None else "",
            str(part["restarts"]),
        ]
        for part in document["parts"]
    ]
    headers = ["part", "status", "pid", "address", "since", "memory", "restarts"]
    state = "up" if document["up"] else "not all up"
    text = (
        f"stack of {document['folder']}: {state} (process {document['pid']}, since {texts.moment(document['since'])})"
    )
    title = "\n".join(wrapped(text, width)) + "\n\n"
    table = title + grid(headers, rows, width, right={"pid", "memory", "restarts"}, color=color)
    restarts = [line for part in document["parts"] for line in _restart(part, width)]
    return "\n".join([table, *restarts, ""]) if restarts else table


def _restart(part: documents.StackPart, width: int) -> list[str]:
    """Return when a part was last restarted, and the reason."""
    if not part["restarts"]:
        return []
    text = f"{part['name']} was started again at {texts.moment(part['restarted_at'])}: it {part['restart_reason']}"
    return wrapped(text, width)


def checks(document: documents.DoctorDocument, width: int, color: bool = False) -> str:
    """One line per check; below a problem, how to fix it."""
    indent = max(len(check["name"]) for check in document["checks"]) + 2
    lines = []
    for check in document["checks"]:
        status = f"{check['status']:<9}"
        text_lines = wrapped(check["found"], width, " " * (len(status) + indent))
        lines.append(
            f"{texts.colored(status, check['status'], color)}{check['name']:<{indent}}{text_lines[0].lstrip()}"
        )
        lines += text_lines[1:]
        if check["fix"]:
            lines += wrapped(f"→ {check['fix']}", width, " " * (len(status) + indent))
    problems = sum(check["status"] == "problem" for check in document["checks"])
    lines += ["", f"{texts.plural(problems, 'problem')} found" if problems else "all is well"]
    return "\n".join(lines) + "\n"


_NO_LIMITS: Final[documents.Amounts] = {"disk": None, "node_runs": None, "usd": None, "tokens": None}
_HEADERS = ["name", "sweeps", "cells", "disk", "spent", "node runs"]
_MEMORY = "memory"  # a column if a session has a quota of it


def listed(document: documents.SessionsDocument, width: int, color: bool = False) -> str:
    """The list of sessions by name: what each uses, and of how much; quotas stand below where width is short."""
    text = _table(document["sessions"], width, color, inline=True)
    # `grid` moves columns without room below their rows. If the last is gone, the quotas take too much room.
    headers = text.partition("\n")[0]
    return text if _HEADERS[-1] in headers else _table(document["sessions"], width, color, inline=False)


def _table(sessions: Sequence[documents.SessionDocument], width: int, color: bool, *, inline: bool) -> str:
    rows = []
    notes = []
    with_memory = any(session["quota"].get("memory") for session in sessions)
    headers = [*_HEADERS[:4], *([_MEMORY] if with_memory else []), *_HEADERS[4:]]
    for session in sessions:
        displayed = session.copy()
        if not inline:
            displayed["quota"] = _NO_LIMITS
        counts = [f"{session['sweeps']:,}", f"{session['cells']:,}"]
        memory = [_memory(displayed)] if with_memory else []
        rows.append([session["name"], *counts, _disk(displayed), *memory, _spent(displayed), _node_runs(displayed)])
        limits = "" if inline or not any(session["quota"].values()) else f"quota: {quota(session['quota'])}"
        since = f"archived {texts.moment(session['archived_at'])}" if session["archived_at"] else ""
        owner = f"owner: {printable(session.get('owner') or '')}" if session.get("owner") else ""
        notes.append("; ".join(filter(None, [owner, since, limits])))
    return grid(headers, rows, width, right=headers[1:], notes=notes, color=color)


def session_details(document: documents.OneSessionDocument, width: int, color: bool = False) -> str:
    """A session: its sweeps, what it uses, and who holds its slots."""
    session = document["session"]
    title = printable(session["name"]) + (" (archived: it takes no new sweeps)" if session["archived_at"] else "")
    by_status = [f"{count:,} {status}" for status, count in document["sweeps_by_status"].items()]
    holders = (
        f"process {runner['pid']} on {runner['host']} ({runner['slots']:,}, {runner['state']})"
        for runner in document["runners"]
    )
    pairs = [
        ("sweeps", f"{session['sweeps']:,}" + (f": {', '.join(by_status)}" if by_status else "")),
        (
            "project",
            "" if (project := session.get("project", DEFAULT_PROJECT)) == DEFAULT_PROJECT else printable(project),
        ),
        ("owner", printable(session.get("owner") or "")),
        ("metadata", texts.metadata(session.get("metadata", {}))),
        ("cells", f"{session['cells']:,}"),
        ("disk", _disk(session)),
        ("memory", _memory(session)),
        ("spent", _spent(session)),
        ("tokens", _tokens(session)),
        ("node runs", f"{_node_runs(session)} at a time"),
        ("held by", "; ".join(holders)),
        ("created", texts.moment(session["created_at"])),
        ("last active", texts.moment(active) if (active := session.get("active_at")) else ""),
        ("archived", texts.moment(session["archived_at"]) if session["archived_at"] else ""),
        ("directory", document["directory"]),
    ]
    look = f"wtb list --session {shlex.quote(session['name'])}"
    return title + "\n" + facts(pairs, width) + (f"more: {look}\n" if session["sweeps"] else "")


def quota(amounts: documents.Amounts) -> str:
    """A quota in words: `disk 10.0 GB, memory 4.0 GB, 4 node runs at a time, $20.00`."""
    memory = amounts.get("memory")
    parts = [
        f"disk {texts.bytes_of(amounts['disk'])}" if amounts["disk"] is not None else "",
        f"memory {texts.bytes_of(memory)}" if memory is not None else "",
        f"{texts.plural(amounts['node_runs'], 'node run')} at a time" if amounts["node_runs"] is not None else "",
        money(amounts["usd"]) if amounts["usd"] is not None else "",
        texts.plural(amounts["tokens"], "token") if amounts["tokens"] is not None else "",
    ]
    return ", ".join(filter(None, parts)) or "no limits"


def _of(used: float | None, limit: float | None, words: Callable[..., str] = "{:,}".format) -> str:
    return words(used) if limit is None else f"{words(used)} of {words(limit)}"


def _disk(session: documents.SessionDocument) -> str:
    return _of(session["usage"]["disk"] or 0, session["quota"]["disk"], texts.bytes_of)


def _memory(session: documents.SessionDocument) -> str:
    """Return the used memory and its quota. Without a quota, memory is not measured."""
    used = session["usage"].get("memory")
    return "" if used is None else _of(used, session["quota"].get("memory"), texts.bytes_of)


def _spent(session: documents.SessionDocument) -> str:
    return _of(session["usage"]["usd"], session["quota"]["usd"], money)


def _tokens(session: documents.SessionDocument) -> str:
    limit, used = session["quota"]["tokens"], session["usage"]["tokens"]
    return _of(used, limit) if used or limit is not None else ""


def _node_runs(session: documents.SessionDocument) -> str:
    return _of(session["usage"]["node_runs"], session["quota"]["node_runs"])
