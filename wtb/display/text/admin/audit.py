"""The audit log in a terminal. Pure."""

from __future__ import annotations

import json

from wtb.core import texts
from wtb.core.documents.access.audit import AuditDocument, AuditedCall, AuditVerification
from wtb.display.tables import grid

_HEADERS = ["number", "when", "who", "did", "how it ended"]


def listed(document: AuditDocument, width: int, color: bool = False) -> str:
    """The list of what was changed; below each from where, and with what."""
    rows = [
        [str(one["number"]), texts.moment(one["at"]), one["by"], one["operation"], one["outcome"]]
        for one in document["audit"]
    ]
    notes = [_details(one) for one in document["audit"]]
    return grid(_HEADERS, rows, width, right=["number"], notes=notes, color=color)


def verification(document: AuditVerification, width: int, color: bool = False) -> str:
    """What a check of the log found, a fact on each line."""
    head = document["head"]
    lines = [f"{texts.plural(document['rows'], 'row')}, the last of them {head['head']}"]
    if document["pruned"] is not None:
        lines.append(f"rows 1 to {document['pruned']['upto']} were pruned, as the log says")
    lines += [f"head {number}: as it was published" for number in document["checked_heads"]] if document["ok"] else []
    lines += [f"head {number}: its row was pruned" for number in document["pruned_heads"]]
    lines += document["problems"]
    lines.append("no row was changed, removed or moved" if document["ok"] else "the log is not as it was written")
    return "\n".join(map(texts.printable, lines)) + "\n"


def _details(one: AuditedCall) -> str:
    place = f" from {one['address']}" if one["address"] else ""
    token = f" by token {one['token']}" if one["token"] else ""
    given = {**one["arguments"], **one["result"]}
    words = ", ".join(f"{name} {json.dumps(value, ensure_ascii=False)}" for name, value in given.items())
    parts = [f"{one['via']}{place}{token}", words, one["error"] or ""]
    return "; ".join(part for part in parts if part)
