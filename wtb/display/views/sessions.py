"""Sessions as documents: what each uses, and may use."""

from __future__ import annotations

from pathlib import Path

from wtb.core.documents.administration import Amounts, OneSessionDocument, SessionDocument
from wtb.core.serialization.plain_json import iso
from wtb.store import process_identity
from wtb.store.access import usage
from wtb.store.access.sessions import Quota, find_session
from wtb.store.database import Database
from wtb.store.runs import slots
from wtb.store.tables.sweeps import SessionRow


def session_documents(database: Database, *, archived: bool = False) -> list[SessionDocument]:
    """Return sessions by name; archived: those that take no new sweeps, too."""
    rows = usage.session_rows(database, alive=process_identity.is_not_dead)
    return [_document(row, used) for row, used in rows if archived or row.archived_at is None]


def session_details(database: Database, name: str, directory: Path) -> OneSessionDocument:
    """Return one session, whose attempts work in a directory. Raises InputError for an unknown name."""
    row = find_session(database, name)
    runners = slots.live_runners(database, row.id, alive=process_identity.is_not_dead)
    return {
        "session": _document(row, usage.usage(database, row.id, alive=process_identity.is_not_dead)),
        "sweeps_by_status": usage.sweeps_by_status(database, row.id),
        "runners": [
            {"host": runner.host, "pid": runner.pid, "slots": runner.slots, "state": process_identity.state_of(runner)}
            for runner in runners
        ],
        "directory": str(directory),
    }


def amounts(quota: Quota) -> Amounts:
    """Return a quota as it is shown."""
    return {
        "disk": quota.disk,
        "node_runs": quota.node_runs,
        "usd": quota.usd,
        "tokens": quota.tokens,
        "memory": quota.memory,
    }


def _document(row: SessionRow, used: usage.Usage) -> SessionDocument:
    quota = Quota.of(row.quota)
    return {
        "name": row.name,
        "project": row.project,
        "owner": row.owner,
        "metadata": dict(row.metadata or {}),
        "created_at": iso(row.created_at),
        "active_at": iso(used.active_at),
        "archived_at": iso(row.archived_at),
        "sweeps": used.sweeps,
        "cells": used.cells,
        "usage": {
            "disk": used.disk_bytes,
            "node_runs": used.slots,
            "usd": used.usd,
            "tokens": used.tokens,
            "memory": None if quota.memory is None else used.memory or 0,
        },
        "quota": amounts(quota),
    }
