"""The command on the files of workspaces: files."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, read_choices, say
from wtb.cli.output import present
from wtb.core.errors import InputError, WTBError
from wtb.core.texts import bytes_of, plural
from wtb.display.text import history as files_text
from wtb.operations.inspection import files as operations

Ref = Annotated[
    str,
    typer.Argument(metavar="EXECUTION|CHECKPOINT|SWEEP", help="Id, or its beginning; or a sweep, to name a cell of."),
]


def files(
    ref: Ref,
    path: Annotated[str | None, typer.Argument(help="Write the content of this file, as it is.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="CHECKPOINT|NODE", help="Files after a node's last visit.")
    ] = None,
    diff: Annotated[
        str | None, typer.Option("--diff", metavar="OTHER", help="Show changes up to another execution or checkpoint.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="DIR", help="Write them to a new or empty directory; with PATH, only it."),
    ] = None,
    case: Annotated[str | None, typer.Option("--case", help="Of a sweep: the cell of the case with this id.")] = None,
    choices: Annotated[
        list[str] | None,
        typer.Option("--combination", metavar="NODE=VARIANT", help="Of a sweep: the cell that chooses it."),
    ] = None,
    repeat: Annotated[int | None, typer.Option("--repeat", help="Of a sweep: this repeat, from 0.")] = None,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """List, read, export or compare the files that nodes left.

    They are those in an execution's workspace.

    See also: `wtb admin export` writes the whole execution to a file; `wtb diff` compares states.

    Examples: wtb files EXECUTION  |  wtb files EXECUTION out/report.md  |  wtb files nightly --case q1 --combination
    retrieve=bm25 --export q1
    """
    _check_options(path, diff, export, form)
    backend = open_backend(db)
    cell_choices = read_choices(choices)
    is_cell = case is not None or bool(cell_choices) or repeat is not None
    cell = operations.Cell(case, cell_choices, repeat) if is_cell else None
    if diff is not None:
        changes = backend.call(operations.compare_files, ref, diff, at=at, cell=cell)
        present(changes, files_text.changes, form)
    elif export is not None:
        written = backend.call(operations.export_files, ref, export, path=path, at=at, cell=cell)
        say(f"{plural(written.files, 'file')} ({bytes_of(written.bytes)}) written to {export}")
    elif path is not None:
        _put_blocks(backend.call(operations.read_file, ref, path, at=at, cell=cell), form.output)
    else:
        present(backend.call(operations.list_files, ref, at=at, cell=cell), files_text.listed, form)


def _check_options(path: str | None, diff: str | None, export: Path | None, form: options.Form) -> None:
    if diff is not None and (path is not None or export is not None):
        raise InputError("--diff compares all files; give it without PATH and --export")
    if export is not None and form.output is not None:
        raise InputError("--export and --output are both given; expected one of them")
    if form.is_json and (path is not None or export is not None):
        raise InputError("--format json is for lists; PATH and --export write files as they are")


def _put_blocks(blocks: Iterable[bytes], output: Path | None) -> None:
    if output is None:
        # sys.stdout buffers text, which would otherwise come after these bytes.
        sys.stdout.flush()
        sys.stdout.buffer.writelines(blocks)
        sys.stdout.buffer.flush()
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("wb") as out:
            out.writelines(blocks)
    except OSError as error:
        raise WTBError(f"--output {output}: cannot be written ({error.strerror})") from error
    say(f"written to {output}")
