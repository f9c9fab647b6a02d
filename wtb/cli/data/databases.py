"""Commands about the version of a database: db upgrade, db restore, db version."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import confirm, missing_database, put, say
from wtb.cli.output import present
from wtb.core.errors import InputError
from wtb.store import database as databases
from wtb.store import database_url as urls
from wtb.store.files import locations
from wtb.store.housekeeping import version_copies
from wtb.store.tables import schema


def db_upgrade(
    db: options.Db = None,
    no_backup: Annotated[bool, typer.Option("--no-backup", help="Take no backup first: there is no way back.")] = False,
) -> None:
    """Bring a database to the version that this WTB expects; make its tables where there are none.

    The database is first copied to `backups/` beside its files. `wtb db restore` goes back to such a copy.

    Example: wtb db upgrade --db postgresql://user@host/name
    """
    database = databases.Database(urls.database_url(db))
    before = database.revision() if database.exists() else None
    if before is None:
        database.prepare()
        put(f"{database.shown_url}: made, version {schema.REVISION}")
    elif before == schema.REVISION:
        put(f"{database.shown_url}: version {schema.REVISION}, nothing to do")
    else:
        kept = None if no_backup else version_copies.keep_version(database, locations.home_of(database) / "backups")
        before, after = database.upgrade()
        put(f"{database.shown_url}: upgraded from version {before} to {after}")
        if kept is not None:
            say(f"to go back: wtb db restore {shlex.quote(str(kept))}")


def db_restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="What `wtb db upgrade` kept.")],
    db: options.Db = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Go back to a database as it was before an upgrade, for the WTB that used it then.

    All that was recorded since is lost. Stop workers, the scheduler and servers first. Stored files stay as they are.

    See also: `wtb restore` loads what `wtb backup` made into an empty database.

    Example: wtb db restore .wtb/backups/1042-20261129-101500.db
    """
    if not backup.is_file():
        raise InputError(f"{backup}: there is no such file; expected what `wtb db upgrade` kept")
    database = databases.Database(urls.database_url(db))
    if not database.exists():
        raise missing_database(database)
    question = f"replace database {database.shown_url} by {backup}? What was recorded since is lost."
    if not yes and not confirm(question):
        raise typer.Exit(1)
    revision = version_copies.restore_version(database, backup)
    put(f"{database.shown_url}: restored, version {revision}")
    if revision != schema.REVISION:
        say(f"this WTB expects version {schema.REVISION}: use the WTB of before, or run `wtb db upgrade` again")


def db_version(
    db: options.Db = None, format: options.Show = options.Format.table, output: options.Output = None
) -> None:
    """Show the version of a database, and the one that this WTB expects. Exits with 1 where they differ.

    Example: wtb db version
    """
    database = databases.Database(urls.database_url(db))
    if not database.exists():
        raise missing_database(database)
    version = database.revision()
    document = {"database": database.shown_url, "version": version, "expected": schema.REVISION}
    advice = databases.advice_on_version(version) if version else "run `wtb db upgrade`"
    hint = "" if version == schema.REVISION else f"; this WTB expects {schema.REVISION}: {advice}"
    present(document, lambda found, width, color: f"{found['version'] or 'no tables'}{hint}", format, output)
    if version != schema.REVISION:
        raise typer.Exit(1)


DB = {"upgrade": db_upgrade, "restore": db_restore, "version": db_version}
