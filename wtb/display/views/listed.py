"""Sweeps and runs in a list, and fires of schedules, as documents. Listing needs nothing that shows a single sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtb.core.documents.shared_types import cell_counts
from wtb.core.failures import Failure
from wtb.core.serialization.plain_json import iso
from wtb.store.records import ListedSweep

if TYPE_CHECKING:
    from wtb.core.documents.administration import FireDocument, FireFigures
    from wtb.core.documents.report import HistoricPoint
    from wtb.core.documents.shared_types import FixedReference
    from wtb.core.documents.sweeps import RunDocument, SweepDocument
    from wtb.store.read.baselines import Fire
    from wtb.store.tables.sweeps import SweepRow


def sweep_document(row: ListedSweep) -> SweepDocument:
    """A sweep in a list: what it is, its status, its cells by status. The row is one of `list_sweeps`."""
    counts = row.counts
    return {
        "id": row.id,
        "name": row.name,
        "status": row.shown_status,
        "reason": row.reason or row.execution_reason,
        "workflow": row.workflow,
        "workflow_version": row.version,
        "project": row.project,
        "session": row.session,
        "cells": cell_counts(row.cells, counts),
        "created_at": iso(row.created_at),
        "started_at": iso(row.started_at),
        "finished_at": iso(row.finished_at),
    }


def run_document(row: ListedSweep) -> RunDocument:
    """A single execution in a list: its status, and what it failed by. The row is one of `list_sweeps`."""
    return {
        "id": row.id,
        "execution": row.execution,
        "status": row.shown_status,
        "reason": row.execution_reason or row.reason,
        "error": None if row.failure is None else str(Failure(**row.failure)),
        "workflow": row.workflow,
        "workflow_version": row.version,
        "metadata": row.metadata or {},
        "project": row.project,
        "session": row.session,
        "created_at": iso(row.created_at),
        "started_at": iso(row.started_at),
        "finished_at": iso(row.finished_at),
    }


def fire_document(fire: Fire) -> FireDocument:
    """Return a fire as a document, for people and scripts."""
    return {
        "fire_at": iso(fire.fire_at),
        "manual": fire.manual,
        "status": fire.status,
        "verdict": fire.verdict,
        "because": list(fire.why or ()),
        "sweep": fire.sweep_id,
        "baseline": fire.baseline_id,
        "notified_at": iso(fire.notified_at),
        "notification_error": fire.notify_error,
    }


def reference_document(reference: SweepRow, figures: HistoricPoint | FireFigures | None) -> FixedReference:
    """Return a fixed reference as a document, with the figures of one of its combinations."""
    at = iso(reference.finished_at or reference.created_at)
    mean, ci = (None, None) if figures is None else (figures["mean"], figures["ci"])
    return {"sweep": reference.id, "at": at, "mean": mean, "ci": ci}
