"""Projects in a terminal. Pure."""

from __future__ import annotations

from wtb.core import texts
from wtb.core.documents.administration import ProjectDocument, ProjectsDocument
from wtb.display.tables import grid

_HEADERS = ["name", "sessions", "sweeps", "made", "by"]


def listed(document: ProjectsDocument, width: int, color: bool = False) -> str:
    """The list of projects."""
    return grid(_HEADERS, [_row(one) for one in document["projects"]], width, right={"sessions", "sweeps"}, color=color)


def one(document: ProjectDocument, width: int, color: bool = False) -> str:
    """One project."""
    return grid(_HEADERS, [_row(document)], width, right={"sessions", "sweeps"}, color=color)


def _row(one: ProjectDocument) -> list[str]:
    return [
        texts.printable(one["name"]),
        f"{one['sessions']:,}",
        f"{one['sweeps']:,}",
        texts.moment(one["created_at"]),
        one["created_by"],
    ]
