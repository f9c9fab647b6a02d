"""Sweeps and runs in a list, as documents. Listing needs nothing else that shows a single sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtb.core.documents.common import cell_counts
from wtb.core.failures import Failure
from wtb.core.serialization.plain_json import iso
from wtb.store.rows.sweeps import ListedSweep

if TYPE_CHECKING:
    from wtb.core.documents.sweeps import RunDocument, SweepDocument


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
