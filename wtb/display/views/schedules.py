"""Schedules and their fires as documents."""

from __future__ import annotations

from wtb.config import webhooks
from wtb.core.documents.administration import FireDocument, FireFigures, ScheduleDocument
from wtb.core.documents.common import FixedReference
from wtb.core.documents.report import HistoricPoint
from wtb.core.serialization.plain_json import iso
from wtb.store import schedules as store
from wtb.store.database import Database
from wtb.store.schedules import Fire, Schedule
from wtb.store.tables.sweeps import SweepRow


def schedule_document(database: Database, schedule: Schedule) -> ScheduleDocument:
    """Return a schedule as a document."""
    last = store.last_ended(database, schedule.id) or next(iter(store.fire_rows(database, schedule.id, limit=1)), None)
    return {
        "name": schedule.name,
        "status": schedule.status,
        "session": schedule.session,
        "file": schedule.file,
        "folder": schedule.folder,
        "cron": schedule.cron,
        "tz": schedule.tz,
        "missed": schedule.missed,
        "queued": schedule.queued,
        "baseline": schedule.baseline,
        "margin": dict(schedule.margin),
        "notify": webhooks.describe_target(schedule.notify),
        "next_at": iso(schedule.next_at),
        "created_at": iso(schedule.created_at),
        "last": fire_document(last) if last else None,
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
