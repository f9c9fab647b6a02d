"""Commands that carry executions elsewhere: export, import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wtb.cli import options
from wtb.cli.console import as_json, open_database, put, say
from wtb.core.errors import InputError
from wtb.core.texts import bytes_of, plural, printable
from wtb.core.units import parse_size
from wtb.display.views import sweeps
from wtb.operations.archive import exporter, importer
from wtb.operations.control import pause_cancel
from wtb.store.files import locations
from wtb.store.limits import sessions


def export(
    execution: Annotated[
        str, typer.Argument(metavar="EXECUTION", help="Its id, the beginning of it, or what `wtb start` printed.")
    ],
    file: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to \\[default: EXECUTION.wtb].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
) -> None:
    """Write an execution to a file, with all that belongs to it.

    This is its history, state, calls and files. `wtb import` reads it into another database, where it can be looked at
    and gone on with.

    See also: `wtb files --export` writes files alone; `wtb report`, the results of a sweep.

    Examples: wtb export EXECUTION  |  wtb export EXECUTION -o question.wtb
    """
    database = open_database(db)
    row = sweeps.find_one(database, execution)
    target = file or Path(f"{row['id']}.wtb")
    if target.is_dir():
        raise InputError(f"--output {target}: is a directory; give the name of a file in it")
    if target.exists() and not force:
        raise InputError(f"--output {target}: is there already; give --force to replace it, or another name")
    exported = exporter.export_execution(database, row, locations.workspaces_of(database).files, target)
    if exported["others"]:
        chosen = printable(_choices(exported["choices"]))
        say(f"it stands for {exported['others'] + 1} cells; the archive is of the one with {chosen}")
    if format is options.Format.json:
        put(as_json(exported))
    else:
        put(str(target))
        say(f"execution {row['id']}: {_counted(exported)}, {bytes_of(exported['bytes'])}")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `wtb export` wrote.")],
    session: options.Session = None,
    name: Annotated[str | None, typer.Option("--name", help="What to call it \\[default: as it was].")] = None,
    max_size: Annotated[
        str | None, typer.Option("--max-size", metavar="SIZE", help="Most that it may unpack to \\[default: 4GB].")
    ] = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
) -> None:
    """Read an execution from a file that `wtb export` wrote.

    It becomes a single execution of its own. One that was not at its end is paused: `wtb resume` goes on with it, where
    its workflow's code is there.

    Examples: wtb import question.wtb  |  wtb import question.wtb --session ana
    """
    try:
        max_bytes = importer.MOST if max_size is None else parse_size(max_size)
    except ValueError as error:
        raise InputError(f"--max-size: {error}") from None
    if name is not None and not 0 < len(name) <= 200:
        raise InputError("--name: expected 1 to 200 characters")
    if file.is_dir():
        raise InputError(f"{file} is a folder; expected a file that `wtb export` wrote")
    if not file.is_file():
        raise InputError(f"there is no file {file}")
    database = open_database(db, create=True)
    files = locations.workspaces_of(database).files
    imported = importer.import_execution(
        database, file, files, session=sessions.session_name(session), by=pause_cancel.user(), name=name, most=max_bytes
    )
    if format is options.Format.json:
        put(as_json(imported))
        return
    put(imported["id"])
    say(f"{printable(imported['name'])} ({imported['id']}): case {printable(imported['case'])}, {_counted(imported)}")
    more = f"wtb resume {imported['id']}" if imported["status"] == "paused" else f"wtb show {imported['execution']}"
    say(f"it is {imported['status']}; {'go on with' if imported['status'] == 'paused' else 'look at it with'}: {more}")


def _counted(document: dict[str, Any]) -> str:
    parts = [plural(document[f"{what}s"], what) for what in ("checkpoint", "value", "file")]
    return ", ".join(parts)


def _choices(choices: dict[str, str]) -> str:
    return ", ".join(f"{node}={variant}" for node, variant in choices.items())
