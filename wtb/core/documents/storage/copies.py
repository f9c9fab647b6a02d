"""Documents of sweeps that were copied to another database."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from wtb.core.documents.common import SweepStatus


class CopiedSweepDocument(TypedDict):
    """A sweep that is in another database now.

    Attributes:
        to: That database.
        is_new: Whether this copied it; an equal one was there already if not.
        rows: How many were copied, by table.
        files: How many were copied.
        bytes: Of the files.
    """

    version: Literal[1]
    id: str
    name: str
    status: SweepStatus
    to: str
    is_new: bool
    rows: dict[str, int]
    files: int
    bytes: int
