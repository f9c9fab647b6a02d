"""Garbage collection: `collect` removes what a retention policy allows, or lists what that would be.

Nothing that somebody can still reach is removed: the lines of heads that count (see the store's `superseded`), the
values and files that they name, pinned sweeps and checkpoints. Everything is done in small transactions in an
order that leaves nothing half-removed behind; a collection that was killed is simply run again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import sqlalchemy as sa

from wtb.config.retention_policy import LEAST_GRACE_S, Policy, read_policy
from wtb.core.arguments import checked
from wtb.core.documents.access import ProjectRetention
from wtb.core.frozen import frozen
from wtb.execution.runtime.upkeep import clean
from wtb.operations import orphan_files
from wtb.operations.auditing import audited
from wtb.operations.context import Context, throttled
from wtb.store.access.projects import retentions
from wtb.store.access.requests import Copies, count_expired, remove_expired
from wtb.store.database import Database
from wtb.store.files.locations import find_unused, home_of, remove_unused, removing_files
from wtb.store.files.store import FileStore
from wtb.store.housekeeping import deletion, stored_values, superseded
from wtb.store.housekeeping.retention import expired_sweeps, removable, settled_sweeps
from wtb.store.tables.schema import sweeps
from wtb.store.thread_rows import remove_writes_without_session
from wtb.store.transactions import Scope, clock

PASS = 500_000  # values that are looked at in one go
_COUNTED = ("sweeps", "checkpoints", "node_runs")
_SIZED = ("outputs", "values", "files", "judgements")

Report = Callable[[str], None]


@frozen
class Removed:
    """The removals of one kind, or their preview.

    Attributes:
        count: How many.
        bytes: Their size; None if that is unknown.
    """

    count: int
    bytes: int | None


@frozen
class Collected:
    """The result of a collection, or its preview.

    Attributes:
        dry_run: Whether nothing was removed.
        at: When, in seconds since the epoch: ages are counted from then.
        policy: How long things are kept.
        removed: By kind, such as `sweeps` or `files`.
        notes: Why something stays that the policy does not keep.
    """

    dry_run: bool
    at: float
    policy: Policy
    removed: Mapping[str, Removed]
    notes: tuple[str, ...]


@checked
@audited
def collect(context: Context, policy: Policy | None = None, *, dry_run: bool = False) -> Collected:
    """Remove what nothing reaches, and what is older than a policy allows. Progress is reported every two seconds.

    Args:
        context: Where, with the store of its files.
        policy: How long things are kept; None for the project's settings.
        dry_run: Only list what would be removed, and write nothing.

    Returns:
        What was removed, or would be.

    Raises:
        InputError: If the project's settings are wrong.
    """
    report = throttled(context.report)
    return apply_policy(
        context.database, context.workspaces.files, policy or read_policy(), dry_run=dry_run, report=report
    )


def free_unreferenced(context: Context) -> Collected:
    """Remove stored values and files that nothing refers to any more, in any project, regardless of age."""
    nothing_old = Policy(outputs=None, superseded=None, sweeps=None)
    return apply_policy(context.database.within(Scope()), context.workspaces.files, nothing_old, of_projects=False)


def apply_policy(
    database: Database,
    files: FileStore,
    policy: Policy,
    *,
    dry_run: bool = False,
    of_projects: bool = True,
    report: Report = lambda text: None,
    at: float | None = None,
) -> Collected:
    """Remove what a retention policy allows.

    Args:
        database: The database to clean.
        files: The store of its files.
        policy: How long things are kept.
        dry_run: Only list what would be removed, and write nothing.
        of_projects: Whether what projects say of their sweeps holds in place of the policy.
        report: Called with messages about the progress.
        at: The time that ages are counted from, in seconds since the epoch; by default now, by the database's clock.

    Returns:
        What was removed, or would be.
    """
    collection = _Collection(database, files, policy, of_projects, report, at)
    if dry_run:
        collection.imagine()
    else:
        collection.remove()
    cleaned = clean(database, home_of(database) / "sessions", dry=dry_run)
    collection.add("directories", cleaned.directories)
    collection.add("processes", cleaned.processes)
    collection.notes += [f"the directory {folder} could not be removed" for folder in cleaned.unremoved]
    return Collected(dry_run, collection.at, policy, collection.removed, tuple(collection.notes))


class _Collection:
    """A collection with its removals so far."""

    def __init__(
        self, database: Database, files: FileStore, policy: Policy, of_projects: bool, report: Report, at: float | None
    ) -> None:
        with database.read() as connection:
            database_time = clock(connection)
        # A clock of this machine that is ahead must not make everything old, nor files that were stored just now.
        files_behind = min(0.0, time.time() + files.clock_ahead() - database_time)
        self._database = database
        self._files = files
        self._policy = policy
        self._of_projects = of_projects
        self._report = report
        self.at = database_time if at is None else at
        self._files_before = self.at + files_behind - policy.files
        self.removed = {kind: Removed(0, None) for kind in _COUNTED} | {kind: Removed(0, 0) for kind in _SIZED}
        self._add_copies(Copies(0, 0, 0))
        self.notes: list[str] = []

    def add(self, kind: str, count: int, size: int | None = None) -> None:
        """Count removals of a kind."""
        before = self.removed.get(kind, Removed(0, None))
        self.removed[kind] = Removed(before.count + count, before.bytes if size is None else (before.bytes or 0) + size)

    def remove(self) -> None:
        """Remove what the policy allows, and copies that are kept for a day only."""
        self._add_copies(remove_expired(self._database))
        # Sweeps go before checkpoints, checkpoints before values, values before files: each step frees what the next
        # one finds unreferenced.
        self.add("sweeps", deletion.remove_hidden(self._database))
        self._remove_sweeps()
        self._remove_superseded()
        self._remove_outputs()
        self._remove_values()
        self._remove_files()

    def _add_copies(self, copies: Copies) -> None:
        self.add("uploads", copies.uploads, copies.bytes)
        self.add("answers", copies.answers)

    def _before(self, age: float) -> float:
        return self.at - age

    def _expired_sweeps(self, connection: sa.Connection) -> list[str]:
        """Return sweeps that are older than their project's retention, else the policy, allows."""
        own = retentions(connection) if self._of_projects else {}
        other_projects, ids = [sweeps.c.project.not_in(list(own))], []
        for project, retention in [*own.items(), (None, ProjectRetention())]:
            age = retention.get("sweeps", self._policy.sweeps)
            if age is not None:
                of_it = other_projects if project is None else [sweeps.c.project == project]
                keep = retention.get("keep", self._policy.keep)
                ids += expired_sweeps(connection, self._before(age), keep, *of_it)
        return ids

    def _remove_sweeps(self) -> None:
        with self._database.read(long=True) as connection:
            expired = self._expired_sweeps(connection)
        for sweep_id in expired:
            # The conditions are checked again in the deletion itself, because a sweep may be pinned or resumed in
            # between.
            if deletion.begin_deletion(self._database, sweep_id, *removable()):
                deletion.remove_rows(self._database, sweep_id)
                self.add("sweeps", 1)
                self._report(f"{self.removed['sweeps'].count:,} of {len(expired):,} sweeps removed")

    def _remove_superseded(self) -> None:
        if self._policy.superseded is None:
            return
        before = self._before(self._policy.superseded)
        with self._database.read(long=True) as connection:
            sweep_ids = settled_sweeps(connection, before)
        for sweep_id in sweep_ids:
            if not superseded.has_superseded(self._database, sweep_id, before):  # most have none: no lock for those
                continue
            while (removed := superseded.remove_superseded(self._database, sweep_id, before)).checkpoints:
                self.add("checkpoints", removed.checkpoints)
                self.add("node_runs", removed.node_runs)
                self._report(f"{self.removed['checkpoints'].count:,} checkpoints removed")

    def _remove_outputs(self) -> None:
        if self._policy.outputs is None:
            return
        while part := stored_values.old_outputs(self._database, self._before(self._policy.outputs)):
            stored_values.remove_outputs(self._database, part)
            self.add("outputs", len(part), sum(size for _, _, size in part))
            self._report(f"outputs of {self.removed['outputs'].count:,} attempts removed")

    def _remove_values(self) -> None:
        remove_writes_without_session(self._database)
        while True:
            candidates = stored_values.unreferenced(self._database, PASS)
            before = self.removed["values"].count
            for part in candidates.parts():
                try:
                    count, size = stored_values.remove_values(self._database, part)
                except stored_values.Busy as busy:
                    self.notes.append(str(busy))
                    return
                self.add("values", count, size)
                self._report(f"{self.removed['values'].count:,} values removed")
            # A pass that removed nothing would find the same candidates again.
            if len(candidates.digests) < PASS or self.removed["values"].count == before:
                return

    def _remove_files(self) -> None:
        before = self._files_before
        with self._database.read(long=True) as connection:
            seen = orphan_files.survey(connection, self._files)
        # Unreadable manifests leave it unknown what is referenced, so nothing is forgotten.
        if not seen.unreadable:
            orphan_files.settle_notes(self._database, seen, before, self._report)
        if refusal := orphan_files.refusal(self._database, self._files, seen):
            self.notes.append(refusal)
            return
        # A backup copies files by name; a removal in the middle would leave it incomplete.
        with removing_files(self._files) as may_remove:
            if not may_remove:
                self.notes.append(f"no stored files were removed: a backup copies them from {self._files.root}")
                return
            orphan_files.move_to_projects(seen, self._report)
            for count, size in orphan_files.remove_orphans(self._database, self._files, seen, before):
                self.add("files", count, size)
                self._report(f"{self.removed['files'].count:,} stored files removed")
        unused = remove_unused(self._files)
        self.add("judgements", unused.count, unused.bytes)
        for part in self._files.parts():
            part.remove_leftovers(max(LEAST_GRACE_S, self._policy.files))

    def imagine(self) -> None:
        """Count what `remove` would remove, on the database as it would be after each step."""
        policy = self._policy
        # A transaction that is rolled back: each count depends on the removals before it.
        with stored_values.imagining(self._database) as connection:
            expired = [*deletion.hidden_sweeps(connection), *self._expired_sweeps(connection)]
            for sweep_id in expired:
                stored_values.imagine_sweep_gone(connection, sweep_id)
            self.add("sweeps", len(expired))
            if policy.superseded is not None:
                before = self._before(policy.superseded)
                for sweep_id in sorted(set(settled_sweeps(connection, before)) - set(expired)):
                    removed = superseded.imagine_superseded_gone(connection, sweep_id, before)
                    self.add("checkpoints", removed.checkpoints)
                    self.add("node_runs", removed.node_runs)
                    self._report(f"{self.removed['checkpoints'].count:,} superseded checkpoints found")
            if policy.outputs is not None:
                self.add("outputs", *stored_values.count_outputs(connection, self._before(policy.outputs)))
            self._add_copies(count_expired(connection))
            self.add("values", *stored_values.count_unreferenced(connection))
            seen = orphan_files.survey(connection, self._files, imagined=True)
        if refusal := orphan_files.refusal(self._database, self._files, seen):
            self.notes.append(refusal)
        else:
            orphans = seen.orphans(self._files_before)
            self.add("files", len(orphans), sum(orphans))
            unused = find_unused(self._files)
            self.add("judgements", unused.count, unused.bytes)
