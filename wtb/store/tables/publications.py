"""The table of what workers publish of the code that they can run."""

from __future__ import annotations

import sqlalchemy as sa

from wtb.core.documents.workflows.publications import PublicationKind
from wtb.store.tables.column_types import Digest, Seconds
from wtb.store.tables.row import Row, column


class PublicationRow(Row):
    """What workers publish of a workflow or an evaluator.

    Attributes:
        description: As JSON; None where no worker could import it.
        error: Why a worker cannot import it.
    """

    __tablename__ = "publications"
    kind: PublicationKind = column(sa.String(12), primary_key=True)
    name: str = column(sa.String(500), primary_key=True, comment="registered; of an evaluator its import path")
    path: str = column(sa.String(500), comment="import path")
    digest: str | None = column(Digest, comment="SHA-256 of the description")
    description: str | None = column(sa.Text, comment="JSON, whose order counts; null where no worker could import it")
    published_at: float | None = column(Seconds)
    published_by: str | None = column(sa.String(255), comment="the worker that did")
    error: str | None = column(sa.Text, comment="why a worker cannot import it")
    failed_at: float | None = column(Seconds)
    failed_by: str | None = column(sa.String(255))
    __table_args__ = (
        sa.CheckConstraint("kind IN ('workflow', 'evaluator')", name="kind"),
        sa.CheckConstraint("description IS NOT NULL OR error IS NOT NULL", name="content"),
    )


publications = PublicationRow.__table__
