"""Commands that carry a whole database elsewhere: backup, restore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_context, say
from wtb.cli.output import put_as
from wtb.core.texts import bytes_of, plural
from wtb.operations.backup import backup as making
from wtb.operations.backup import manifest
from wtb.operations.backup import restore as restoring


def backup(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to: a new folder, or an empty one.")],
    db: options.Db = None,
    format: options.Show = options.Format.table,
) -> None:
    """Copy the database with its files to a folder, while sweeps run.

    It is of one moment, and whole or not there at all. The exit code is 1 where something that the database names was
    missing already.

    See also: `wtb restore` loads it; `wtb export` writes a single execution.

    Examples: wtb backup backups/monday  |  wtb backup /mnt/backups/$(date +%F) --format json
    """
    document = making.backup(open_context(db), folder)
    put_as(document, document["folder"], format)
    rows = sum(document["rows"].values())
    say(f"{plural(rows, 'row')} and {plural(document['files'], 'file')}, {bytes_of(document['bytes'])}")
    if any(document["missing"].values()):
        raise typer.Exit(1)


def restore(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What `wtb backup` made.")],
    db: options.Db = None,
    format: options.Show = options.Format.table,
) -> None:
    """Load a backup into an empty database.

    All that it names is verified first. The database may be of the other kind: a backup of SQLite can be restored into
    PostgreSQL. What ran by itself is paused, and `wtb resume` continues it; what workers ran goes on with those of this
    database.

    Examples: wtb restore backups/monday --db sqlite:///restored/wtb.db
    """
    manifest.read_manifest(folder)  # what is refused leaves no database behind
    restored = restoring.restore(open_context(db, create=True), folder)
    put_as(restored, restored["database"], format)
    rows = sum(restored["rows"].values())
    say(f"{plural(rows, 'row')} and {plural(restored['files'], 'file')} of {restored['made_at']}")
    if restored["open_sweeps"]:
        say(f"{plural(restored['open_sweeps'], 'sweep')} not at the end (`wtb list`): `wtb resume` continues one")
