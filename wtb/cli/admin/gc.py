"""Commands around what is kept: gc, pin, unpin, delete."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import confirm, open_backend, open_context, put, say
from wtb.cli.output import present
from wtb.config.keeping import retention_policy
from wtb.core.documents.administration import CollectionDocument
from wtb.core.serialization.plain_json import iso
from wtb.display.text.admin import machine
from wtb.operations.housekeeping import delete as deletion
from wtb.operations.housekeeping import garbage_collection, pins

if TYPE_CHECKING:
    from wtb.operations.housekeeping.pins import Pin

Pinned = Annotated[
    str,
    typer.Argument(metavar="SWEEP|CHECKPOINT", help="Id, beginning of an id, a sweep's name, or an execution."),
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
        str | None, typer.Option("--files", metavar="AGE", help="Keep stored files that nothing names so long \\[1h].")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Remove what nothing reaches, and what is old.

    Pinned sweeps and checkpoints stay. Ages are such as 12h, 7d or never; their place in wtb.toml is \\[retention], or
    \\[tool.wtb.retention] in pyproject.toml. Sweeps in use are not disturbed; a collection that was interrupted is
    simply run again.

    See also: `wtb pin` keeps something; `wtb delete` removes one sweep.

    Examples: wtb gc --dry-run  |  wtb gc --sweeps 30d --keep 5
    """
    policy = retention_policy.read_policy(outputs=outputs, superseded=superseded, sweeps=sweeps, keep=keep, files=files)
    found = garbage_collection.collect(open_context(db), policy, dry_run=dry_run)
    fields = asdict(found)
    document: CollectionDocument = {
        "dry_run": found.dry_run,
        "at": iso(found.at),
        "policy": fields["policy"],
        "removed": fields["removed"],
        "notes": fields["notes"],
    }
    present(document, machine.collected, format, output)


def pin(
    ref: Pinned,
    name: Annotated[str | None, typer.Option("--name", help="A name for the checkpoint.")] = None,
    db: options.Db = None,
) -> None:
    """Keep a sweep or checkpoint, whatever `wtb gc` removes.

    A checkpoint is kept with the line that leads to it; of an execution it is the one at its head.

    See also: `wtb baseline set` names a sweep that later ones are compared with, and keeps it too.

    Examples: wtb pin nightly  |  wtb pin CHECKPOINT --name before-the-change
    """
    put(_text("pinned", open_backend(db).call(pins.pin, ref, name=name)))


def unpin(ref: Pinned, db: options.Db = None) -> None:
    """Let `wtb gc` remove a pinned sweep or checkpoint again.

    It is removed once the retention policy allows it.

    Example: wtb unpin nightly
    """
    put(_text("unpinned", open_backend(db).call(pins.unpin, ref)))


def _text(done: str, pin: Pin) -> str:
    if pin.kind == "sweep":
        return f"{done} sweep {pin.name} ({pin.id})"
    return f"{done} checkpoint {pin.id}" + (f" as {pin.name}" if pin.name else "")


def delete(
    ref: options.Sweep,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    db: options.Db = None,
) -> None:
    """Delete one sweep with all that belongs to it, for good.

    These are its cells, executions, checkpoints, scores and events.

    See also: `wtb gc` removes what is old, by a policy; `wtb cancel` ends a sweep and keeps its results.

    Example: wtb delete nightly --yes
    """
    backend = open_backend(db)
    preview = backend.call(deletion.preview_delete, ref)
    what = f"sweep {preview.name} ({preview.sweep}, {preview.status}) with {preview.counts['cells']:,} cells"
    if not yes and not confirm(f"Delete {what} for good?"):
        say("nothing was deleted")
        raise typer.Exit(1)
    deleted = backend.call(deletion.delete, preview.sweep)
    removed = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in deleted.counts.items() if count)
    put(f"deleted sweep {deleted.name} ({deleted.sweep}): {removed}")
    if deleted.rows_left:
        say("it has many rows: what is left of them goes with the scheduler's rounds, or with `wtb gc`")
