"""Sessions in a terminal: the list, and one with what it uses of its quota. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from wtb.core import texts
from wtb.core.documents.administration import Amounts, OneSessionDocument, SessionDocument, SessionsDocument
from wtb.core.ids import DEFAULT_PROJECT
from wtb.core.texts import money, printable
from wtb.display.tables import facts, grid

_NO_LIMITS: Final[Amounts] = {"disk": None, "node_runs": None, "usd": None, "tokens": None}
_HEADERS = ["name", "sweeps", "cells", "disk", "spent", "node runs"]
_MEMORY = "memory"  # a column if a session has a quota of it


def listed(document: SessionsDocument, width: int, color: bool = False) -> str:
    """The list of sessions by name: what each uses, and of how much; quotas stand below where width is short."""
    text = _table(document["sessions"], width, color, inline=True)
    headers = text.partition("\n")[0]
    return text if _HEADERS[-1] in headers else _table(document["sessions"], width, color, inline=False)


def _table(sessions: Sequence[SessionDocument], width: int, color: bool, *, inline: bool) -> str:
    rows = []
    notes = []
    with_memory = any(session["quota"].get("memory") for session in sessions)
    headers = [*_HEADERS[:4], *([_MEMORY] if with_memory else []), *_HEADERS[4:]]
    for session in sessions:
        shown = session.copy()
        if not inline:
            shown["quota"] = _NO_LIMITS
        counts = [f"{session['sweeps']:,}", f"{session['cells']:,}"]
        memory = [_memory(shown)] if with_memory else []
        rows.append([session["name"], *counts, _disk(shown), *memory, _spent(shown), _node_runs(shown)])
        limits = "" if inline or not any(session["quota"].values()) else f"quota: {quota(session['quota'])}"
        since = f"archived {texts.moment(session['archived_at'])}" if session["archived_at"] else ""
        owner = f"owner: {printable(session.get('owner') or '')}" if session.get("owner") else ""
        notes.append("; ".join(filter(None, [owner, since, limits])))
    return grid(headers, rows, width, right=headers[1:], notes=notes, color=color)


def one(document: OneSessionDocument, width: int, color: bool = False) -> str:
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


def quota(given: Amounts) -> str:
    """A quota in words: `disk 10.0 GB, memory 4.0 GB, 4 node runs at a time, $20.00`."""
    memory = given.get("memory")
    parts = [
        f"disk {texts.bytes_of(given['disk'])}" if given["disk"] is not None else "",
        f"memory {texts.bytes_of(memory)}" if memory is not None else "",
        f"{texts.plural(given['node_runs'], 'node run')} at a time" if given["node_runs"] is not None else "",
        money(given["usd"]) if given["usd"] is not None else "",
        texts.plural(given["tokens"], "token") if given["tokens"] is not None else "",
    ]
    return ", ".join(filter(None, parts)) or "no limits"


def _of(used: str, most: str | None) -> str:
    return used if most is None else f"{used} of {most}"


def _disk(session: SessionDocument) -> str:
    most = session["quota"]["disk"]
    return _of(texts.bytes_of(session["usage"]["disk"] or 0), None if most is None else texts.bytes_of(most))


def _memory(session: SessionDocument) -> str:
    """What is used of a quota of memory; without one it is not measured."""
    used, most = session["usage"].get("memory"), session["quota"].get("memory")
    return "" if used is None else _of(texts.bytes_of(used), None if most is None else texts.bytes_of(most))


def _spent(session: SessionDocument) -> str:
    most = session["quota"]["usd"]
    return _of(money(session["usage"]["usd"]), None if most is None else money(most))


def _tokens(session: SessionDocument) -> str:
    most, used = session["quota"]["tokens"], session["usage"]["tokens"]
    return _of(f"{used:,}", None if most is None else f"{most:,}") if used or most is not None else ""


def _node_runs(session: SessionDocument) -> str:
    most = session["quota"]["node_runs"]
    return _of(f"{session['usage']['node_runs']:,}", None if most is None else f"{most:,}")
