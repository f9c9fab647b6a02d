"""Users, teams, roles, tokens and the audit log in a terminal. Pure."""

from __future__ import annotations

import json

from wtb.core import texts
from wtb.core.documents import access as documents
from wtb.core.texts import printable
from wtb.display.tables import grid

_PROJECT_HEADERS = ["name", "sessions", "sweeps", "kept", "made", "by"]


def projects_table(document: documents.ProjectsDocument, width: int, color: bool = False) -> str:
    """Return the table of projects."""
    rows = [_row(project) for project in document["projects"]]
    return grid(_PROJECT_HEADERS, rows, width, right={"sessions", "sweeps"}, color=color)


def project_table(document: documents.ProjectDocument, width: int, color: bool = False) -> str:
    """Return the table of one project."""
    return projects_table({"projects": [document]}, width, color)


def _row(project: documents.ProjectDocument) -> list[str]:
    return [
        texts.printable(project["name"]),
        f"{project['sessions']:,}",
        f"{project['sweeps']:,}",
        _retention_in_words(project.get("retention", {})),
        texts.moment(project["created_at"]),
        project["created_by"],
    ]


def _retention_in_words(retention: documents.ProjectRetention) -> str:
    """Say how long its finished sweeps are kept."""
    ages = []
    if "sweeps" in retention:
        ages.append("for ever" if retention["sweeps"] is None else f"{retention['sweeps'] / 86400:g} d")
    if "keep" in retention:
        ages.append(f"the newest {retention['keep']:,}")
    return ", ".join(ages) or "by the system's policy"


def listed_users(document: documents.UsersDocument, width: int, color: bool = False) -> str:
    """Return the table of users."""
    rows = [
        [printable(user["name"]), _names(user["teams"]), texts.moment(user["created_at"]), user["created_by"]]
        for user in document["users"]
    ]
    return grid(["name", "teams", "made", "by"], rows, width, color=color)


def listed_teams(document: documents.TeamsDocument, width: int, color: bool = False) -> str:
    """Return the table of teams."""
    rows = [
        [printable(team["name"]), _names(team["members"]), texts.moment(team["created_at"]), team["created_by"]]
        for team in document["teams"]
    ]
    return grid(["name", "members", "made", "by"], rows, width, color=color)


def access_table(document: documents.AccessListDocument, width: int, color: bool = False) -> str:
    """Draw a table of who has which role."""
    rows = [
        [
            "all" if grant["project"] is None else printable(grant["project"]),
            printable(f"user {grant['user']}" if grant["user"] is not None else f"team {grant['team']}"),
            grant["role"],
            texts.moment(grant["created_at"]),
            grant["created_by"],
        ]
        for grant in document["access"]
    ]
    return grid(["project", "who", "role", "since", "by"], rows, width, color=color)


def _names(names: list[str]) -> str:
    return ", ".join(map(printable, names))


_TOKEN_HEADERS = ["name", "may", "project", "state", "made", "by", "used"]


def tokens_table(document: documents.TokensDocument, width: int, color: bool = False) -> str:
    """Return the table of tokens: their owners, their permissions, and whether they are still valid."""
    rows = [
        [
            token["name"],
            ", ".join(token["scopes"]),
            texts.printable(token.get("project") or "all"),
            token["state"],
            texts.moment(token["created_at"]),
            token["created_by"],
            texts.moment(token["used_at"]) if token["used_at"] else "never",
        ]
        for token in document["tokens"]
    ]
    until = (token["revoked_at"] or token["expires_at"] for token in document["tokens"])
    words = {"active": "until", "expired": "since", "revoked": "since"}
    notes = [
        f"{token['state']} {words[token['state']]} {texts.moment(end)}" if end else ""
        for token, end in zip(document["tokens"], until, strict=True)
    ]
    return grid(_TOKEN_HEADERS, rows, width, notes=notes, color=color)


def scopes(token: documents.TokenDocument) -> str:
    """Say what the holder of a token may do, and until when."""
    end = f", until {texts.moment(token['expires_at'])}" if token["expires_at"] else ""
    project = token.get("project")
    where = f" in project {texts.printable(project)}" if project else ""
    return f"may {', '.join(token['scopes'])}{where}{end}"


_AUDIT_HEADERS = ["number", "when", "who", "did", "how it ended"]


def audit_table(document: documents.AuditDocument, width: int, color: bool = False) -> str:
    """Return the table of changes, each with its origin and its arguments."""
    rows = [
        [str(call["number"]), texts.moment(call["at"]), call["by"], call["operation"], call["outcome"]]
        for call in document["audit"]
    ]
    notes = [_details(call) for call in document["audit"]]
    return grid(_AUDIT_HEADERS, rows, width, right=["number"], notes=notes, color=color)


def verification(document: documents.AuditVerification, width: int, color: bool = False) -> str:
    """Show the findings of a check of the log, one on each line."""
    head = document["head"]
    lines = [f"{texts.plural(document['rows'], 'row')}, the last of them {head['head']}"]
    if document["pruned"] is not None:
        lines.append(f"rows 1 to {document['pruned']['upto']} were pruned, as the log records")
    lines += [f"head {number}: as it was published" for number in document["checked_heads"]] if document["ok"] else []
    lines += [f"head {number}: its row was pruned" for number in document["pruned_heads"]]
    lines += document["problems"]
    lines.append("no row was changed, removed or moved" if document["ok"] else "the log is not as it was written")
    return "\n".join(map(texts.printable, lines)) + "\n"


def _details(call: documents.AuditedCall) -> str:
    place = f" from {call['address']}" if call["address"] else ""
    token = f" by token {call['token']}" if call["token"] else ""
    details = {**call["arguments"], **call["result"]}
    words = ", ".join(f"{name} {json.dumps(detail, ensure_ascii=False)}" for name, detail in details.items())
    parts = [f"{call['via']}{place}{token}", words, call["error"] or ""]
    return "; ".join(part for part in parts if part)
