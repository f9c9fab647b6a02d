"""Tokens in a terminal. Pure."""

from __future__ import annotations

from wtb.core import texts
from wtb.core.documents.administration import TokenDocument, TokensDocument
from wtb.display.tables import grid

_HEADERS = ["name", "may", "project", "state", "made", "by", "used"]


def listed(document: TokensDocument, width: int, color: bool = False) -> str:
    """The list of tokens: whose they are, what they may, and whether they still may."""
    rows = [
        [
            one["name"],
            ", ".join(one["scopes"]),
            texts.printable(one.get("project") or "all"),
            one["state"],
            texts.moment(one["created_at"]),
            one["created_by"],
            texts.moment(one["used_at"]) if one["used_at"] else "never",
        ]
        for one in document["tokens"]
    ]
    until = (one["revoked_at"] or one["expires_at"] for one in document["tokens"])
    words = {"active": "until", "expired": "since", "revoked": "since"}
    notes = [
        f"{one['state']} {words[one['state']]} {texts.moment(end)}" if end else ""
        for one, end in zip(document["tokens"], until, strict=True)
    ]
    return grid(_HEADERS, rows, width, notes=notes, color=color)


def scopes(token: TokenDocument) -> str:
    """What the holder of a token may do, and until when."""
    end = f", until {texts.moment(token['expires_at'])}" if token["expires_at"] else ""
    project = token.get("project")
    where = f" in project {texts.printable(project)}" if project else ""
    return f"may {', '.join(token['scopes'])}{where}{end}"
