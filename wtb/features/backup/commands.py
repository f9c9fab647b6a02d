"""Commands that carry a whole database elsewhere: backup, restore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_context, say
from wtb.cli.output import put_as
from wtb.core.texts import bytes_of, plural
from wtb.features.backup import operations as backup_operations


def backup(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The target: a new or empty folder.")],
    db: options.Db = None,
    format: options.Show = options.Format.table,
) -> None:
    """Copy the database with its files to a folder, while sweeps run.

    The copy is a consistent snapshot, and it is written completely or not at all. Exits with 1 if files that the
    database names are missing.

    See also: `wtb admin restore` loads it; `wtb admin export` writes a single execution.

    Examples: wtb admin backup backups/monday  |  wtb admin backup /mnt/backups/$(date +%F) --format json
    """
    document = backup_operations.backup(open_context(db), folder)
    put_as(document, document["folder"], options.Form(format))
    rows = sum(document["rows"].values())
    say(f"{plural(rows, 'row')} and {plural(document['files'], 'file')}, {bytes_of(document['bytes'])}")
    if any(document["missing"].values()):
        raise typer.Exit(1)


def restore(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that `wtb admin backup` wrote.")],
    db: options.Db = None,
    format: options.Show = options.Format.table,
) -> None:
    """Restore a backup into an empty database.

    All that it names is verified first. The database may be of the other kind: a backup of SQLite can be restored into
    PostgreSQL. Executions that ran without workers are paused, and `wtb resume` continues them. Submitted ones continue
    on the workers of this database.

    Examples: wtb admin restore backups/monday --db sqlite:///restored/wtb.db
    """
    backup_operations.read_manifest(folder)  # what is refused leaves no database behind
    restored = backup_operations.restore(open_context(db, create=True), folder)
    put_as(restored, restored["database"], options.Form(format))
    rows = sum(restored["rows"].values())
    say(f"{plural(rows, 'row')} and {plural(restored['files'], 'file')} of {restored['made_at']}")
    if restored["open_sweeps"]:
        say(f"{plural(restored['open_sweeps'], 'sweep')} not at the end (`wtb list`): `wtb resume` continues one")
