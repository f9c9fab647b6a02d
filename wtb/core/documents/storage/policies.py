"""Documents of policies."""

from __future__ import annotations

from typing_extensions import TypedDict


class PoliciesDocument(TypedDict):
    """The policies of a folder, which were checked; without a folder all is allowed."""

    folder: str | None
    policies: list[str]


class PolicyDecisionDocument(TypedDict):
    """What policies say about something, and which of them decided."""

    allowed: bool
    action: str
    by: str
    resource: str
    context: dict[str, str | int]
    rules: list[str]
    errors: list[str]
    why: str
