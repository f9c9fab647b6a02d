"""Commands around what is kept: gc, pin, unpin."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_database, put, say
from wtb.cli.output import present
from wtb.config import retention_policy
from wtb.core.errors import InputError
from wtb.display.text.admin import machine
from wtb.display.views import sweeps as views
from wtb.operations.housekeeping import garbage_collection
from wtb.store.files import locations
from wtb.store.housekeeping import retention as store
from wtb.store.read import details

if TYPE_CHECKING:
    from collections.abc import Callable

    from wtb.store.database import Database

SAY_EVERY_S = 2.0

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
    keep: Annotated[
        int | None, typer.Option("--keep", min=0, help="... but not the newest N of each name \\[10].")
    ] = None,
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
    database = open_database(db)
    found = garbage_collection.collect(
        database, locations.workspaces_of(database).files, policy, dry=dry_run, say=_now_and_then()
    )
    present(found.document(), machine.collected, format, output)


def pin(
    what: Pinned,
    name: Annotated[str | None, typer.Option("--name", help="A name for the checkpoint.")] = None,
    db: options.Db = None,
) -> None:
    """Keep a sweep or checkpoint, whatever `wtb gc` removes.

    A checkpoint is kept with the line that leads to it; of an execution it is the one at its head.

    See also: `wtb baseline set` names a sweep that later ones are compared with, and keeps it too.

    Examples: wtb pin nightly  |  wtb pin CHECKPOINT --name before-the-change
    """
    if name is not None and not (0 < len(name.strip()) <= 200 and name.isprintable()):
        raise InputError(f"--name {name!r}: expected 1 to 200 printable characters")
    put(_set(open_database(db), what, True, name))


def unpin(what: Pinned, db: options.Db = None) -> None:
    """Let `wtb gc` remove a pinned sweep or checkpoint again.

    It is removed once the retention policy allows it.

    Example: wtb unpin nightly
    """
    put(_set(open_database(db), what, False, None))


def _set(database: Database, what: str, pinned: bool, name: str | None) -> str:
    done = "pinned" if pinned else "unpinned"
    kind, found, sweep_id = _found(database, what)
    if kind == "sweep":
        if name is not None:
            raise InputError(f"{what!r} is a sweep, which has its name; --name is for checkpoints")
        store.pin_sweep(database, sweep_id, pinned)
        return f"{done} sweep {found} ({sweep_id})"
    store.pin_checkpoint(database, found, sweep_id, pinned, name)
    return f"{done} checkpoint {found}" + (f" as {name}" if name else "")


def _found(database: Database, what: str) -> tuple[str, str, str]:
    """("sweep", its name, its id), or ("checkpoint", its id, its sweep). Raises InputError where it is neither."""
    try:
        kind, row = views.find(database, what)
    except InputError as nothing:
        try:
            checkpoint, sweep_id = details.find_checkpoint(database, what)
        except InputError as no_checkpoint:
            several = [text for one in (nothing, no_checkpoint) for text in one.problems if "several" in text]
            raise InputError(*(several or nothing.problems)) from None
        return "checkpoint", checkpoint.id, sweep_id
    if kind == "sweep":
        return "sweep", row["name"], row["id"]
    if row["head_id"] is None:
        raise InputError(f"execution {row['id']} has no checkpoint yet")
    return "checkpoint", row["head_id"], row["sweep_id"]


def _now_and_then() -> Callable[[str], None]:
    """Says on stderr how far long work is, every two seconds."""
    said_at = time.monotonic()

    def tell(text: str) -> None:
        nonlocal said_at
        if time.monotonic() - said_at > SAY_EVERY_S:
            said_at = time.monotonic()
            say(text)

    return tell
