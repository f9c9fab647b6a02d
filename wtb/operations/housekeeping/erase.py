"""Erasing a case, wherever it is: in all sweeps that have it, with the values and files that only it had."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import AnyText
from wtb.core.classes.frozen import frozen
from wtb.core.serialization.plain_json import storable
from wtb.operations.auditing import audited
from wtb.operations.context import Context, throttled
from wtb.store.access.expiry import count_copies, erase_copies
from wtb.store.files.judgements import remove_unused
from wtb.store.housekeeping import erasure
from wtb.store.housekeeping.erasure import FoundCase, Named
from wtb.store.read.queries import find_sweep

REASON = 1_000  # characters
_ANSWER_REMOVED = (
    "what this did is done; its answer was removed, since it may have told of a case that was erased since: look at "
    "what it was to change, or ask anew"
)


@frozen
class Erased:
    """What `erase` removed, or would remove.

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
    context: Context,
    case: str,
    *,
    sweep: str | None = None,
    project: str | None = None,
    reason: AnyText | None = None,
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
        What was removed.

    Raises:
        InputError: If there is no such case, or sweep.
        ConflictError: If a sweep that has it may still run. Nothing is erased then.
        StoreError: If the database or the files are out of reach: to be run again.
    """
    preview = preview_erase(context, case, sweep=sweep, project=project)
    files, report = context.workspaces.files, throttled(context.report)
    since = time.time() + files.clock_ahead()
    named = Named()
    why = None if reason is None else storable(reason, REASON)
    for number, sweep_case in enumerate(preview.found, 1):
        named = named.with_(erasure.erase_rows(context.database, sweep_case, by=storable(context.by, 255), reason=why))
        report(f"erased from {number:,} of {len(preview.found):,} sweeps")
    # Digests of what judges were asked about, of which case is not known.
    remove_unused(files, older_than_s=0, projects=_projects(preview.found))
    erase_copies(context.database, _projects(preview.found), _ANSWER_REMOVED)
    values = erasure.remove_named_values(context.database, named)
    removed = erasure.remove_named_files(context.database, files, named, since)
    notes = []
    if (problem := erasure.overwrite_free_pages(context.database)) is not None:
        notes.append(f"free pages of {context.place} may still hold some of it, since others use it now: {problem}")
    return replace(preview, values=values, files=removed, notes=tuple(notes))


def _projects(cases: Sequence[FoundCase]) -> frozenset[str]:
    return frozenset(case.project for case in cases)
