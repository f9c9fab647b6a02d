"""Garbage collection: `collect` removes what a retention policy allows, or lists what that would be.

Nothing that somebody can still reach is removed: the lines of heads that count (see the store's `superseded`), the
values and files that they name, pinned sweeps and checkpoints. Everything is done in small transactions in an
order that leaves nothing half-removed behind; a collection that was killed is simply run again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from wtb.config.retention_policy import LEAST_GRACE_S, Policy
from wtb.core.serialization.plain_json import iso
from wtb.execution.runtime.cleanup import clean
from wtb.operations.housekeeping import orphan_files
from wtb.store.database import Database
from wtb.store.files.locations import home_of
from wtb.store.files.store import FileStore
from wtb.store.housekeeping import deletion, references, superseded, unreferenced
from wtb.store.housekeeping.retention import expired_sweeps, settled_sweeps
from wtb.store.threads.rows import remove_writes_without_session

PASS = 200_000  # values that are looked at in one go
_COUNTED = ("sweeps", "checkpoints", "node_runs")
_SIZED = ("outputs", "values", "files")

Say = Callable[[str], None]


@dataclass
class Collected:
    """What was removed, or would be: by kind how many, and bytes (None if unknown)."""

    dry: bool
    policy: Policy
    at: float
    removed: dict[str, list[int | None]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.removed |= {kind: [0, None] for kind in _COUNTED} | {kind: [0, 0] for kind in _SIZED}

    def add(self, kind: str, count: int, size: int | None = None) -> None:
        row = self.removed.setdefault(kind, [0, None])
        row[0] = (row[0] or 0) + count
        if size is not None:
            row[1] = (row[1] or 0) + size

    def before(self, seconds: float) -> float:
        return self.at - seconds

    def document(self) -> dict[str, Any]:
        return {
            "dry_run": self.dry,
            "at": iso(self.at),
            "policy": asdict(self.policy),
            "removed": {kind: {"count": count, "bytes": size} for kind, (count, size) in self.removed.items()},
            "notes": self.notes,
        }


def collect(
    database: Database,
    files: FileStore,
    policy: Policy,
    *,
    dry: bool = False,
    say: Say = lambda text: None,
    at: float | None = None,
) -> Collected:
    """Remove what a retention policy allows.

    Args:
        database: The database to clean.
        files: The store of its files.
        policy: How long things are kept.
        dry: Only list what would be removed, and write nothing.
        say: Called with messages about the progress.
        at: The time that ages are counted from, in seconds since the epoch; now by default.

    Returns:
        What was removed, or would be.
    """
    found = Collected(dry, policy, time.time() if at is None else at)
    if dry:
        _imagine(database, files, found, say)
    else:
        _remove_sweeps(database, found, say)
        _remove_superseded(database, found, say)
        _remove_outputs(database, found, say)
        _remove_values(database, found, say)
        _remove_files(database, files, found, say)
    cleaned = clean(database, home_of(database) / "sessions", dry=dry)
    found.add("directories", cleaned.directories)
    found.add("processes", cleaned.processes)
    found.notes += [f"the directory {folder} could not be removed" for folder in cleaned.left]
    return found


def _expired(found: Collected) -> tuple[float | None, int]:
    policy = found.policy
    return None if policy.sweeps is None else found.before(policy.sweeps), policy.keep


def _remove_sweeps(database: Database, found: Collected, say: Say) -> None:
    with database.read(long=True) as connection:
        expired = expired_sweeps(connection, *_expired(found))
    for sweep_id in expired:
        if deletion.begin_removal(database, sweep_id):
            deletion.remove_sweep(database, sweep_id)
            found.add("sweeps", 1)
            say(f"{found.removed['sweeps'][0]:,} of {len(expired):,} sweeps removed")


def _remove_superseded(database: Database, found: Collected, say: Say) -> None:
    if found.policy.superseded is None:
        return
    before = found.before(found.policy.superseded)
    with database.read(long=True) as connection:
        settled = settled_sweeps(connection, before)
    for sweep_id in settled:
        if not superseded.has_superseded(database, sweep_id, before):  # most have none: no lock for those
            continue
        while (removed := superseded.remove_superseded(database, sweep_id, before)).checkpoints:
            found.add("checkpoints", removed.checkpoints)
            found.add("node_runs", removed.node_runs)
            say(f"{found.removed['checkpoints'][0]:,} checkpoints removed")


def _remove_outputs(database: Database, found: Collected, say: Say) -> None:
    if found.policy.outputs is None:
        return
    while part := unreferenced.old_outputs(database, found.before(found.policy.outputs)):
        unreferenced.remove_outputs(database, part)
        found.add("outputs", len(part), sum(size for _, _, size in part))
        say(f"outputs of {found.removed['outputs'][0]:,} attempts removed")


def _remove_values(database: Database, found: Collected, say: Say) -> None:
    remove_writes_without_session(database)
    while True:
        candidates = unreferenced.unreferenced(database, PASS)
        before = found.removed["values"][0]
        for start in range(0, len(candidates.digests), unreferenced.PART):
            try:
                count, size = unreferenced.remove_values(database, candidates, start)
            except unreferenced.Busy as busy:
                found.notes.append(str(busy))
                return
            found.add("values", count, size)
            say(f"{found.removed['values'][0]:,} values removed")
        if len(candidates.digests) < PASS or found.removed["values"][0] == before:
            return


def _remove_files(database: Database, files: FileStore, found: Collected, say: Say) -> None:
    before = found.before(found.policy.files) + files.clock_ahead()
    with database.read(long=True) as connection:
        seen = orphan_files.survey(connection, files)
    if not seen.unreadable:
        orphan_files.settle_notes(database, files, seen, before, say)
    if refusal := orphan_files.refusal(database, files, seen):
        found.notes.append(refusal)
        return
    for count, size in orphan_files.remove_orphans(database, files, seen, before):
        found.add("files", count, size)
        say(f"{found.removed['files'][0]:,} stored files removed")
    files.remove_leftovers(max(LEAST_GRACE_S, found.policy.files))


def _imagine(database: Database, files: FileStore, found: Collected, say: Say) -> None:
    """The same steps on the database as it would be after each of them."""
    policy = found.policy
    with references.imagining(database) as connection:
        expired = expired_sweeps(connection, *_expired(found))
        for sweep_id in expired:
            references.imagine_sweep_gone(connection, sweep_id)
        found.add("sweeps", len(expired))
        if policy.superseded is not None:
            before = found.before(policy.superseded)
            for sweep_id in sorted(set(settled_sweeps(connection, before)) - set(expired)):
                removed = superseded.imagine_superseded_gone(connection, sweep_id, before)
                found.add("checkpoints", removed.checkpoints)
                found.add("node_runs", removed.node_runs)
                say(f"{found.removed['checkpoints'][0]:,} superseded checkpoints found")
        if policy.outputs is not None:
            found.add("outputs", *unreferenced.count_outputs(connection, found.before(policy.outputs)))
        found.add("values", *unreferenced.count_unreferenced(connection))
        seen = orphan_files.survey(connection, files, imagined=True)
    if refusal := orphan_files.refusal(database, files, seen):
        found.notes.append(refusal)
    else:
        orphans = seen.orphans(found.before(policy.files))
        found.add("files", len(orphans), sum(orphans.values()))
