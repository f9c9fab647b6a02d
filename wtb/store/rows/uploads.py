"""Rows of uploads."""

from __future__ import annotations

from wtb.store.rows.record import Record


class UploadRow(Record):
    """A file that is sent before the sweep that takes its cases from it.

    Attributes:
        digest: SHA-256 that its content has to have.
        bytes: Of the parts that have come.
        by: Who sent it.
        completed_at: When all of it had come.
    """

    id: str
    project: str
    digest: str
    bytes: int
    by: str
    created_at: float
    completed_at: float | None
