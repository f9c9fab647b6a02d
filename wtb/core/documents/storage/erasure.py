"""The document of what was erased."""

from __future__ import annotations

from typing_extensions import TypedDict


class ErasedFrom(TypedDict):
    """A sweep that a case was erased from."""

    sweep: str
    name: str
    project: str | None


class ErasedDocument(TypedDict):
    """A case that was erased. counts: by kind. values, files: how many went; what others have stays."""

    case: str
    sweeps: list[ErasedFrom]
    counts: dict[str, int]
    values: int
    files: int
    notes: list[str]
