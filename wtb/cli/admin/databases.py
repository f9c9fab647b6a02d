"""Commands about the version of a database: db upgrade, db restore, db version."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import confirm_first, missing_database, put, say
from wtb.cli.output import present
from wtb.core.errors import InputError
from wtb.store import database as databases
from wtb.store.files import locations
from wtb.store.housekeeping import version_copies
from wtb.store.tables import schema


def db_upgrade(
    db: options.Db = None,
    no_backup: Annotated[
        bool, typer.Option("--no-backup", help="Make no backup first; the upgrade cannot be undone.")
    ] = False,
) -> None:
    """Upgrade a database to the version of this WTB, or create its tables.

    The database is first copied to `backups/` beside its files. `wtb admin db restore` goes back to such a copy.

    Example: wtb admin db upgrade --db postgresql://user@host/name
    """
    # Not `console.open_database`, whose `prepare` rejects a database of another version.
    database = databases.open_database(db)
    before = database.revision() if database.exists() else None
    if before is None:
        database.prepare()
        put(f"{database.shown_url}: made, version {schema.REVISION}")
    elif before == schema.REVISION:
        put(f"{database.shown_url}: version {schema.REVISION}, nothing to do")
    else:
        backup = None if no_backup else version_copies.keep_version(database, locations.home_of(database) / "backups")
        before, after = database.upgrade()
        put(f"{database.shown_url}: upgraded from version {before} to {after}")
        if backup is not None:
            say(f"to go back: wtb admin db restore {shlex.quote(str(backup))}")


def db_restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="The copy that `wtb admin db upgrade` made.")],
    db: options.Db = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Restore a database from before an upgrade, for the WTB version of that time.

    Everything recorded since then is lost. Stop workers, the scheduler and servers first. Stored files stay as they
    are.

    See also: `wtb admin restore` loads what `wtb admin backup` made into an empty database.

    Example: wtb admin db restore .wtb/backups/1042-20261129-101500.db
    """
    if not backup.is_file():
        raise InputError(f"{backup}: there is no such file; expected what `wtb admin db upgrade` kept")
    database = databases.open_database(db)
    if not database.exists():
        raise missing_database(database)
    question = f"replace database {database.shown_url} by {backup}? Everything recorded since then is lost."
    confirm_first(yes, question)
    revision = version_copies.restore_version(database, backup)
    put(f"{database.shown_url}: restored, version {revision}")
    if revision != schema.REVISION:
        say(f"this WTB expects version {schema.REVISION}: use the WTB of before, or run `wtb admin db upgrade` again")


def db_version(db: options.Db = None, form: options.Form = options.TABLE) -> None:
    """Show the version of a database, and the version that this WTB expects. Exits with 1 if they differ.

    Example: wtb admin db version
    """
    database = databases.open_database(db)
    if not database.exists():
        raise missing_database(database)
    version = database.revision()
    document = {"database": database.shown_url, "version": version, "expected": schema.REVISION}
    advice = databases.advice_on_version(version) if version else "run `wtb admin db upgrade`"
    hint = "" if version == schema.REVISION else f"; this WTB expects {schema.REVISION}: {advice}"
    present(document, lambda versions, width, color: f"{versions['version'] or 'no tables'}{hint}", form)
    if version != schema.REVISION:
        raise typer.Exit(1)


DB = {"upgrade": db_upgrade, "restore": db_restore, "version": db_version}
