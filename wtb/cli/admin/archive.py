"""Commands that carry executions elsewhere: export, import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wtb.cli.console import Db, Format, FormatOption, SessionOption, as_json, open_database, put, say
from wtb.core.errors import InputError
from wtb.core.texts import bytes_of, plural, printable
from wtb.core.units import parse_size
from wtb.operations.archive import export_execution, import_execution
from wtb.operations.archive.importer import MOST
from wtb.operations.control.pause_cancel import user
from wtb.store.files.locations import workspaces_of
from wtb.store.limits.sessions import session_name


def register(app: typer.Typer) -> None:
    app.command("export", epilog="Examples: wtb export EXECUTION  |  wtb export EXECUTION -o question.wtb")(export)
    app.command("import", epilog="Examples: wtb import question.wtb  |  wtb import question.wtb --session ana")(import_)


def export(
    execution: Annotated[
        str, typer.Argument(metavar="EXECUTION", help="Its id, the beginning of it, or what `wtb start` printed.")
    ],
    file: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to \\[default: EXECUTION.wtb].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    db: Db = None,
    format: FormatOption = Format.table,
) -> None:
    """Write an execution to a file, with all that belongs to it.

    This is its history, state, calls and files. `wtb import` reads it into another database, where it can be looked at
    and gone on with.

    See also: `wtb files --export` writes files alone; `wtb report`, the results of a sweep.
    """
    from wtb.display.views.sweeps import find_one

    database = open_database(db)
    row = find_one(database, execution)
    target = file or Path(f"{row['id']}.wtb")
    if target.is_dir():
        raise InputError(f"--output {target}: is a directory; give the name of a file in it")
    if target.exists() and not force:
        raise InputError(f"--output {target}: is there already; give --force to replace it, or another name")
    said = export_execution(database, row, workspaces_of(database).files, target)
    if said["others"]:
        chosen = printable(_choices(said["choices"]))
        say(f"it stands for {said['others'] + 1} cells; the archive is of the one with {chosen}")
    if format is Format.json:
        put(as_json(said))
    else:
        put(str(target))
        say(f"execution {row['id']}: {_counted(said)}, {bytes_of(said['bytes'])}")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `wtb export` wrote.")],
    session: SessionOption = None,
    name: Annotated[str | None, typer.Option("--name", help="What to call it \\[default: as it was].")] = None,
    max_size: Annotated[
        str | None, typer.Option("--max-size", metavar="SIZE", help="Most that it may unpack to \\[default: 4GB].")
    ] = None,
    db: Db = None,
    format: FormatOption = Format.table,
) -> None:
    """Read an execution from a file that `wtb export` wrote.

    It becomes a single execution of its own. One that was not at its end is paused: `wtb resume` goes on with it, where
    its workflow's code is there.
    """
    try:
        most = MOST if max_size is None else parse_size(max_size)
    except ValueError as error:
        raise InputError(f"--max-size: {error}") from None
    if name is not None and not 0 < len(name) <= 200:
        raise InputError("--name: expected 1 to 200 characters")
    if file.is_dir():
        raise InputError(f"{file} is a folder; expected a file that `wtb export` wrote")
    if not file.is_file():
        raise InputError(f"there is no file {file}")
    database = open_database(db, create=True)
    files = workspaces_of(database).files
    said = import_execution(database, file, files, session=session_name(session), by=user(), name=name, most=most)
    if format is Format.json:
        put(as_json(said))
        return
    put(said["id"])
    say(f"{printable(said['name'])} ({said['id']}): case {printable(said['case'])}, {_counted(said)}")
    more = f"wtb resume {said['id']}" if said["status"] == "paused" else f"wtb show {said['execution']}"
    say(f"it is {said['status']}; {'go on with' if said['status'] == 'paused' else 'look at it with'}: {more}")


def _counted(said: dict[str, Any]) -> str:
    parts = [plural(said[f"{what}s"], what) for what in ("checkpoint", "value", "file")]
    return ", ".join(parts)


def _choices(choices: dict[str, str]) -> str:
    return ", ".join(f"{node}={variant}" for node, variant in choices.items())
