"""Commands around what is kept: gc, pin, unpin, delete."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import confirm_first, open_backend, open_context, put, say
from wtb.cli.output import present, put_as
from wtb.config import retention_policy
from wtb.core.documents.administration import CollectionDocument
from wtb.core.serialization.plain_json import iso
from wtb.core.texts import plural
from wtb.display.text import administration
from wtb.operations import deleting as deletion
from wtb.operations import deleting as erasing
from wtb.operations import garbage_collection
from wtb.operations.control import naming

if TYPE_CHECKING:
    from wtb.core.documents.administration import ErasedDocument
    from wtb.operations.control.naming import Pin
    from wtb.operations.deleting import Erased

Pinned = Annotated[
    str, typer.Argument(metavar="SWEEP|CHECKPOINT", help="Id, beginning of an id, a sweep's name, or an execution.")
]


def gc(
    outputs: Annotated[
        str | None, typer.Option("--outputs", metavar="AGE", help="Remove older stdout and stderr \\[default: 30d].")
    ] = None,
    superseded: Annotated[
        str | None,
        typer.Option("--superseded", metavar="AGE", help="Remove older checkpoints that no result needs \\[1d]."),
    ] = None,
    sweeps: Annotated[
        str | None, typer.Option("--sweeps", metavar="AGE", help="Remove sweeps that finished earlier \\[never].")
    ] = None,
    keep: Annotated[int | None, typer.Option("--keep", help="... but not the newest N of each name \\[10].")] = None,
    files: Annotated[
        str | None, typer.Option("--files", metavar="AGE", help="Keep unreferenced files for this long \\[1h].")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed, and remove nothing.")] = False,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Remove unreferenced files, and old sweeps and checkpoints.

    Pinned sweeps and checkpoints stay. Ages are such as 12h, 7d or never; their place in wtb.toml is \\[retention], or
    \\[tool.wtb.retention] in pyproject.toml. Sweeps in use are not disturbed; a collection that was interrupted is
    simply run again.

    See also: `wtb admin pin` keeps something; `wtb delete` removes one sweep.

    Examples: wtb admin gc --dry-run  |  wtb admin gc --sweeps 30d --keep 5
    """
    policy = retention_policy.read_policy(outputs=outputs, superseded=superseded, sweeps=sweeps, keep=keep, files=files)
    collection = garbage_collection.collect(open_context(db), policy, dry_run=dry_run)
    fields = asdict(collection)
    document: CollectionDocument = {
        "dry_run": collection.dry_run,
        "at": iso(collection.at),
        "policy": fields["policy"],
        "removed": fields["removed"],
        "notes": fields["notes"],
    }
    present(document, administration.collected, form)


def pin(
    ref: Pinned,
    name: Annotated[str | None, typer.Option("--name", help="A name for the checkpoint.")] = None,
    db: options.Db = None,
) -> None:
    """Pin a sweep or checkpoint, so `wtb admin gc` keeps it.

    A checkpoint is kept with the line that leads to it. For an execution, its head is pinned.

    See also: `wtb baseline set` names a sweep that later ones are compared with, and keeps it too.

    Examples: wtb admin pin nightly  |  wtb admin pin CHECKPOINT --name before-the-change
    """
    put(_text("pinned", open_backend(db).call(naming.pin, ref, name=name)))


def unpin(ref: Pinned, db: options.Db = None) -> None:
    """Let `wtb admin gc` remove a pinned sweep or checkpoint again.

    It is removed once the retention policy allows it.

    Example: wtb admin unpin nightly
    """
    put(_text("unpinned", open_backend(db).call(naming.unpin, ref)))


def _text(done: str, pin: Pin) -> str:
    if pin.kind == "sweep":
        return f"{done} sweep {pin.name} ({pin.id})"
    return f"{done} checkpoint {pin.id}" + (f" as {pin.name}" if pin.name else "")


def delete(
    ref: options.Sweep,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    db: options.Db = None,
) -> None:
    """Delete one sweep with all its records, permanently.

    These are its cells, executions, checkpoints, scores and events.

    See also: `wtb admin gc` removes old sweeps and files, by a policy; `wtb cancel` ends a sweep and keeps its results.

    Example: wtb delete nightly --yes
    """
    backend = open_backend(db)
    preview = backend.call(deletion.preview_delete, ref)
    what = f"sweep {preview.name} ({preview.sweep}, {preview.status}) with {preview.counts['cells']:,} cells"
    confirm_first(yes, f"Delete {what} permanently?", "nothing was deleted")
    # By id: the name may mean a newer sweep by the time that the question is answered.
    deleted = backend.call(deletion.delete, preview.sweep)
    removed = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in deleted.counts.items() if count)
    put(f"deleted sweep {deleted.name} ({deleted.sweep}): {removed}")
    if deleted.rows_left:
        say("it has many rows: what is left of them goes with the scheduler's rounds, or with `wtb admin gc`")


def erase(
    case: Annotated[str, typer.Argument(metavar="CASE", help="The id of the case.")],
    sweep: Annotated[
        str | None, typer.Option("--sweep", metavar="SWEEP", help="Only in this sweep \\[default: in all].")
    ] = None,
    project: Annotated[
        str | None, typer.Option("--project", metavar="NAME", help="Only in sweeps of a project.")
    ] = None,
    reason: options.Reason = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
) -> None:
    """Erase a case everywhere, with all its runs.

    Erases its input, states, files, output, calls, events and scores. A record of the erasure stays, as do values and
    files that another case, sweep or session shares. Sweeps that may still run are paused or cancelled first. Backups
    and exported archives are not changed.

    See also: `wtb delete` removes a whole sweep; `redact` in a sweep file keeps out what must not be stored.

    Examples: wtb admin erase ticket-4711  |  wtb admin erase ticket-4711 --sweep nightly --reason "asked to" --yes
    """
    backend = open_backend(db)
    preview = backend.call(erasing.preview_erase, case, sweep=sweep, project=project)
    what = f"case {case} from {plural(len(preview.found), 'sweep')}: {_counted(preview)}"
    confirm_first(yes, f"Erase {what} permanently?", "nothing was erased")
    erased = backend.call(erasing.erase, case, sweep=sweep, project=project, reason=reason)
    more = f"{plural(erased.values, 'value')} and {plural(erased.files, 'file')} that nothing else has"
    put_as(_document(erased), f"erased {what}, {more}", options.Form(format))
    for note in erased.notes:
        say(note)


def _counted(erased: Erased) -> str:
    return ", ".join(plural(count, kind.removesuffix("s").replace("_", " ")) for kind, count in erased.counts.items())


def _document(erased: Erased) -> ErasedDocument:
    return {
        "case": erased.case,
        "sweeps": [{"sweep": sweep.sweep_id, "name": sweep.sweep, "project": sweep.project} for sweep in erased.found],
        "counts": dict(erased.counts),
        "values": erased.values,
        "files": erased.files,
        "notes": list(erased.notes),
    }
