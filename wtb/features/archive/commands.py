"""Commands that carry executions and sweeps elsewhere: export, import, copy."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, open_context, put, put_json, say
from wtb.core.errors import InputError
from wtb.core.texts import bytes_of, plural, printable
from wtb.core.units import parse_size
from wtb.features.archive import exporter, importer, sweep_copies
from wtb.operations import context as contexts
from wtb.store import database_url as urls

if TYPE_CHECKING:
    from wtb.core.documents.administration import ArchiveCounts
    from wtb.operations.context import Backend


def export(
    ref: Annotated[
        str, typer.Argument(metavar="EXECUTION", help="Its id, the beginning of it, or the id from `wtb start`.")
    ],
    file: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Output file \\[default: EXECUTION.wtb].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
) -> None:
    """Write an execution with all its records to a file.

    This is its history, state, calls and files. `wtb admin import` reads it into another database, where you can
    look at it and continue it.

    See also: `wtb files --export` writes files alone; `wtb report`, the results of a sweep.

    Examples: wtb admin export EXECUTION  |  wtb admin export EXECUTION -o question.wtb
    """
    backend = open_backend(db)
    if not isinstance(backend, contexts.Context):
        _save(backend, ref, file or Path(f"{ref}.wtb"), force, format)
        return
    exported = exporter.export_execution(backend, ref, file, force=force)
    if exported["others"]:
        combination = printable(", ".join(f"{node}={variant}" for node, variant in exported["choices"].items()))
        say(f"it stands for {exported['others'] + 1} cells; the archive is of the one with {combination}")
    if format is options.Format.json:
        put_json(exported)
    else:
        put(exported["file"])
        say(f"execution {exported['execution']}: {_counted(exported)}, {bytes_of(exported['bytes'])}")


def _save(server: Backend, ref: str, file: Path, force: bool, format: options.Format) -> None:
    """Keep here what a server sends."""
    if format is options.Format.json:
        raise InputError("--format json counts rows of the database; a server sends only the archive")
    size = exporter.save_archive(server.call(exporter.read_archive, ref), file, force=force)
    put(str(file))
    say(f"execution {ref}: {bytes_of(size)}")


def copy(
    ref: Annotated[str, typer.Argument(metavar="SWEEP", help="Its id, the beginning of it, or its name.")],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="URL", help="The other database \\[default: that of this folder, without --db]."),
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="NAME", help="Its session there \\[default: default].")
    ] = None,
    new_name: Annotated[
        str | None, typer.Option("--new-name", metavar="NAME", help="Copy it within its database under this name.")
    ] = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
) -> None:
    """Copy a sweep to another database.

    Its files, history and scores go with it. It must have ended or be paused. Its ids stay, and copying it again does
    nothing. Access tokens, budgets and notifications stay behind. With --db alone, the sweep is copied to the database
    that other commands use here. With --new-name it is copied within its database, under ids of its own.

    Examples: wtb admin copy nightly --to sqlite:///archive.db  |  wtb admin copy nightly --new-name nightly-2
    """
    if to is None and new_name is None:
        to = urls.database_url(None)
    copied = sweep_copies.copy_sweep(open_context(db), ref, to, session=session, new_name=new_name)
    if format is options.Format.json:
        put_json(copied)
        return
    put(copied["id"])
    name, place = printable(copied["name"]), copied["to"]
    if not copied["is_new"]:
        say(f"{name} ({copied['id']}) is in {place} already, and equal")
        return
    counts = copied["rows"]
    parts = plural(counts["cells"], "cell"), plural(counts["node_runs"], "node run"), plural(copied["files"], "file")
    say(f"{name} ({copied['id']}), {copied['status']}: {', '.join(parts)} copied")
    say(f"look at it with: wtb matrix {copied['id']} --db {shlex.quote(place)}")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file that `wtb admin export` wrote.")],
    session: options.Session = None,
    name: Annotated[str | None, typer.Option("--name", help="Its name here \\[default: as it was].")] = None,
    max_bytes: Annotated[
        str | None, typer.Option("--max-size", metavar="SIZE", help="Maximum size when unpacked \\[default: 4GB].")
    ] = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
) -> None:
    """Read an execution from a file that `wtb admin export` wrote.

    It becomes a single execution of its own. One that was not at its end is paused: `wtb resume` continues it, if its
    workflow's code is there.

    Examples: wtb admin import question.wtb  |  wtb admin import question.wtb --session ana
    """
    try:
        limit = importer.MAX_BYTES if max_bytes is None else parse_size(max_bytes)
    except ValueError as error:
        raise InputError(f"--max-size: {error}") from None
    # Before a database is made, which a wrong path should not leave behind.
    importer.check_file(file)
    context = open_context(db, create=True)
    imported = importer.import_execution(context, file, session=session, name=name, max_bytes=limit)
    if format is options.Format.json:
        put_json(imported)
        return
    put(imported["id"])
    say(f"{printable(imported['name'])} ({imported['id']}): case {printable(imported['case'])}, {_counted(imported)}")
    more = f"wtb resume {imported['id']}" if imported["status"] == "paused" else f"wtb show {imported['execution']}"
    advice = "continue" if imported["status"] == "paused" else "look at it"
    say(f"it is {imported['status']}; {advice} with: {more}")


def _counted(moved: ArchiveCounts) -> str:
    counts = {"checkpoint": moved["checkpoints"], "value": moved["values"], "file": moved["files"]}
    return ", ".join(plural(count, what) for what, count in counts.items())
