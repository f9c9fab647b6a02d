"""The tables of files that are sent before the sweeps that take their cases from them."""

from __future__ import annotations

import sqlalchemy as sa

from wtb.store.tables.access import project_column
from wtb.store.tables.column_types import Count, Digest, Id, Seconds, metadata, now, ref

uploads = sa.Table(
    "uploads",
    metadata,
    sa.Column("id", Id, primary_key=True),
    project_column(),
    sa.Column("digest", Digest, nullable=False, comment="SHA-256 that its content has to have"),
    sa.Column("bytes", Count, nullable=False, server_default="0", comment="of the parts that have come"),
    sa.Column("by", sa.String(255), nullable=False),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.Column("completed_at", Seconds, comment="when all of it had come, and was what its digest says"),
    sa.Index("ix_uploads_digest", "digest"),
    sa.Index("ix_uploads_project", "project"),
    comment="files that are sent before the sweeps that take their cases from them",
)

upload_parts = sa.Table(
    "upload_parts",
    metadata,
    sa.Column("upload_id", Id, ref("uploads.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, comment="from 0"),
    sa.Column("content", sa.LargeBinary, nullable=False),
)
