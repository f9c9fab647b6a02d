"""Users, teams and roles in a terminal. Pure."""

from __future__ import annotations

from wtb.core import texts
from wtb.core.documents.administration import AccessListDocument, TeamsDocument, UsersDocument
from wtb.core.texts import printable
from wtb.display.tables import grid


def listed_users(document: UsersDocument, width: int, color: bool = False) -> str:
    """The list of users."""
    rows = [
        [printable(one["name"]), _names(one["teams"]), texts.moment(one["created_at"]), one["created_by"]]
        for one in document["users"]
    ]
    return grid(["name", "teams", "made", "by"], rows, width, color=color)


def listed_teams(document: TeamsDocument, width: int, color: bool = False) -> str:
    """The list of teams."""
    rows = [
        [printable(one["name"]), _names(one["members"]), texts.moment(one["created_at"]), one["created_by"]]
        for one in document["teams"]
    ]
    return grid(["name", "members", "made", "by"], rows, width, color=color)


def listed(document: AccessListDocument, width: int, color: bool = False) -> str:
    """Who has which role."""
    rows = [
        [
            "all" if one["project"] is None else printable(one["project"]),
            printable(f"user {one['user']}" if one["user"] is not None else f"team {one['team']}"),
            one["role"],
            texts.moment(one["created_at"]),
            one["created_by"],
        ]
        for one in document["access"]
    ]
    return grid(["project", "who", "role", "since", "by"], rows, width, color=color)


def _names(names: list[str]) -> str:
    return ", ".join(map(printable, names))
