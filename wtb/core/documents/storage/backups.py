"""Documents of backups."""

from __future__ import annotations

from typing_extensions import TypedDict


class MissingDocument(TypedDict):
    """Digests that rows name and that were missing or damaged when a backup was made."""

    values: list[str]
    files: list[str]


class BackupDocument(TypedDict):
    """A backup that was made. rows: by table. bytes: of its database and files."""

    folder: str
    made_at: str
    database: str
    revision: str
    rows: dict[str, int]
    files: int
    bytes: int
    missing: MissingDocument


class RestoredDocument(TypedDict):
    """A backup that was restored into a database, and how many sweeps are not at their end."""

    folder: str
    made_at: str
    database: str
    rows: dict[str, int]
    files: int
    open_sweeps: int
    missing: MissingDocument
