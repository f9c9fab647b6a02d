"""The tables of files that are sent before the sweeps that take their cases from them."""

from __future__ import annotations

import sqlalchemy as sa

from wtb.store.tables.column_types import Count, Digest, Id, Seconds, metadata, now, ref
from wtb.store.tables.row import Row, column, project_column


class UploadRow(Row):
    """A file that is sent before the sweep that takes its cases from it.

    Attributes:
        digest: SHA-256 that its content has to have.
        bytes: Of the parts that have come.
        by: Who sent it.
        completed_at: When all of it had come.
    """

    __tablename__ = "uploads"
    id: str = column(Id, primary_key=True)
    project: str = project_column()
    digest: str = column(Digest, comment="SHA-256 that its content has to have")
    bytes: int = column(Count, server_default="0", comment="of the parts that have come")
    by: str = column(sa.String(255))
    created_at: float = column(Seconds, server_default=now())
    completed_at: float | None = column(Seconds, comment="when all of it had come, and was what its digest says")
    __table_args__ = (
        sa.Index("ix_uploads_digest", "digest"),
        sa.Index("ix_uploads_project", "project"),
        {"comment": "files that are sent before the sweeps that take their cases from them"},
    )


uploads = UploadRow.__table__

upload_parts = sa.Table(
    "upload_parts",
    metadata,
    sa.Column("upload_id", Id, ref("uploads.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, comment="from 0"),
    sa.Column("content", sa.LargeBinary, nullable=False),
)
