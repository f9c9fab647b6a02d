"""Rows of what workers publish."""

from __future__ import annotations

from wtb.core.documents.workflows.publications import PublicationKind
from wtb.store.rows.record import Record


class PublicationRow(Record):
    """What workers publish of a workflow or an evaluator.

    Attributes:
        description: As JSON; None where no worker could import it.
        error: Why a worker cannot import it.
    """

    kind: PublicationKind
    name: str
    path: str
    digest: str | None
    description: str | None
    published_at: float | None
    published_by: str | None
    error: str | None
    failed_at: float | None
    failed_by: str | None
