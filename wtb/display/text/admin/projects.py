"""Projects in a terminal. Pure."""

from __future__ import annotations

from wtb.core import texts
from wtb.core.documents.administration import ProjectDocument, ProjectRetention, ProjectsDocument
from wtb.display.tables import grid

_HEADERS = ["name", "sessions", "sweeps", "kept", "made", "by"]


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
        _kept(one.get("retention", {})),
        texts.moment(one["created_at"]),
        one["created_by"],
    ]


def _kept(retention: ProjectRetention) -> str:
    """How long its finished sweeps are kept."""
    ages = []
    if "sweeps" in retention:
        ages.append("for ever" if retention["sweeps"] is None else f"{retention['sweeps'] / 86400:g} d")
    if "keep" in retention:
        ages.append(f"the newest {retention['keep']:,}")
    return ", ".join(ages) or "as the policy says"
