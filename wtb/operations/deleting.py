"""Deletion of a sweep with everything that belongs to it, and erasure of a case in all sweeps that have it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from wtb.core.arguments import AnyText, checked
from wtb.core.errors import ConflictError
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import storable
from wtb.operations.auditing import audited
from wtb.operations.context import Context, throttled
from wtb.store import process_identity
from wtb.store.access.requests import count_copies, erase_copies
from wtb.store.files.locations import remove_unused
from wtb.store.housekeeping import deletion, erasure
from wtb.store.housekeeping.erasure import FoundCase, Named
from wtb.store.read import details, queries
from wtb.store.read.details import SweepTarget
from wtb.store.read.queries import find_sweep
from wtb.store.runs import leases

AT_ONCE_S = 2.0  # so much time is spent on rows before `delete` answers


@frozen
class Deleted:
    """The result of `delete`, or its preview.

    Attributes:
        sweep: The id of the sweep.
        name: Its name.
        status: Its status before.
        counts: How many of each kind belonged to it: cells, executions, checkpoints, node_runs, scores, events.
        rows_left: Whether rows of it are still to go, which the scheduler or a garbage collection removes.
    """

    sweep: str
    name: str
    status: str
    counts: Mapping[str, int]
    rows_left: bool = False


@checked
def preview_delete(context: Context, ref: str) -> Deleted:
    """Return what `delete` would remove, for who has to confirm it.

    Args:
        context: Where it is.
        ref: Its id, the beginning of it, or its name.

    Returns:
        The sweep, and how many of each kind belong to it.

    Raises:
        InputError: If there is no such sweep.
        ConflictError: If a process may be running it.
    """
    target = SweepTarget(queries.find_sweep(context.database, ref))
    for owner in leases.owners(context.database, target.id):
        if process_identity.may_live(owner, expired=owner.expired):
            where = f"process {owner.pid} on {owner.host}"
            raise ConflictError(f"{target}: {where} is running it; stop that process first")
    return Deleted(target.id, target.row.name, target.row.status, details.belongings(context.database, target.id))


@checked
@audited
def delete(context: Context, ref: str) -> Deleted:
    """Delete a sweep with its cells, executions, checkpoints, scores and events, for good.

    It is gone at once. Where it has so many rows that removing them takes more than two seconds, the rest goes after
    that: with the rounds of a scheduler, or with the next garbage collection.

    Args:
        context: Where it is.
        ref: Its id, the beginning of it, or its name.

    Returns:
        The numbers of what was removed.

    Raises:
        InputError: If there is no such sweep.
        ConflictError: If a process may be running it, or if it is a baseline.
    """
    deleted = preview_delete(context, ref)
    # Rows are removed within this time; a large sweep is hidden at once, and the rest is removed later.
    end = time.monotonic() + AT_ONCE_S
    all_gone = deletion.delete_sweep(context.database, deleted.sweep, lambda: time.monotonic() > end)
    return replace(deleted, rows_left=not all_gone)


REASON = 1_000  # characters
_ANSWER_REMOVED = (
    "the operation was carried out; its answer was removed, because it may have contained a case that was erased "
    "since. Look at the sweep that it was to change, or repeat the request"
)


@frozen
class Erased:
    """The result of `erase`, or its preview.

    Attributes:
        case: Its id.
        found: The sweeps that had it.
        counts: How many of each kind belonged to it: cells, executions, checkpoints, node_runs, scores; and how many
            uploads and answers of its projects may have held some of it.
        values: How many stored values went; what others name stays.
        files: How many stored files went; what others name stays.
        notes: What may be left somewhere.
    """

    case: str
    found: Sequence[FoundCase]
    counts: Mapping[str, int]
    values: int = 0
    files: int = 0
    notes: tuple[str, ...] = ()


@checked
def preview_erase(context: Context, case: str, *, sweep: str | None = None, project: str | None = None) -> Erased:
    """Return what `erase` would remove, for who has to confirm it.

    Args:
        context: Where.
        case: The id of the case.
        sweep: Only in this sweep: its id, the beginning of it, or its name.
        project: Only in the sweeps of this project.

    Returns:
        The case, where it is, and how many rows of each kind belong to it.

    Raises:
        InputError: If there is no such case.
        ConflictError: If something of it still runs.
    """
    sweep_id = None if sweep is None else find_sweep(context.database, sweep).id
    cases = erasure.find_cases(context.database, case, sweep_id=sweep_id, project=project)
    erasure.check_at_rest(cases)
    counts: dict[str, int] = {}
    for sweep_case in cases:
        for kind, count in erasure.belongings(context.database, sweep_case).items():
            counts[kind] = counts.get(kind, 0) + count
    copies = count_copies(context.database, _projects(cases))
    return Erased(case, cases, counts | {"uploads": copies.uploads, "answers": copies.answers})


@checked
@audited
def erase(
    context: Context, case: str, *, sweep: str | None = None, project: str | None = None, reason: AnyText | None = None
) -> Erased:
    """Erase a case: its input, all that ran for it, what that left, and its figures, for good.

    Replies of judges that are kept go, whatever they were asked about: they are asked again.
    Of the case its id and number stay in each sweep, with who erased it and when. Values and files that another case,
    sweep or session has as well stay there. Uploads of its projects, and answers that are kept for requests that are
    sent again, go with it: they are copies, and what is in them is not known.

    Args:
        context: Where it is, and who erases it.
        case: Its id.
        sweep: Only in this sweep: its id, the beginning of it, or its name; else in all.
        project: Only in sweeps of this project.
        reason: Why, for those who look later.

    Returns:
        The numbers of what was removed.

    Raises:
        InputError: If there is no such case, or sweep.
        ConflictError: If a sweep that has it may still run. Nothing is erased then.
        StoreError: If the database or the files are out of reach: to be run again.
    """
    preview = preview_erase(context, case, sweep=sweep, project=project)
    files, report = context.workspaces.files, throttled(context.report)
    # Files that were added after this moment may belong to another submission of the same content.
    since = time.time() + files.clock_ahead()
    named = Named()
    why = None if reason is None else storable(reason, REASON)
    # One sweep per transaction: a case may be in thousands, and a repeated call continues after an interruption.
    for number, sweep_case in enumerate(preview.found, 1):
        named = named.with_(erasure.erase_rows(context.database, sweep_case, by=storable(context.by, 255), reason=why))
        report(f"erased from {number:,} of {len(preview.found):,} sweeps")
    # Digests of what judges were asked about, of which case is not known.
    remove_unused(files, older_than_s=0, projects=_projects(preview.found))
    erase_copies(context.database, _projects(preview.found), _ANSWER_REMOVED)
    values = erasure.remove_named_values(context.database, named)
    removed = erasure.remove_named_files(context.database, files, named, since)
    # SQLite keeps deleted content in free pages of its file until they are overwritten.
    notes = []
    if (problem := erasure.overwrite_free_pages(context.database)) is not None:
        notes.append(f"free pages of {context.place} may still hold some of it, since others use it now: {problem}")
    return replace(preview, values=values, files=removed, notes=tuple(notes))


def _projects(cases: Sequence[FoundCase]) -> frozenset[str]:
    return frozenset(case.project for case in cases)
