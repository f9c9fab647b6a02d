"""The command that adds cases, repeats and variants to a sweep: extend."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, prints_to_stderr, put, read_pair, render_matrix, say
from wtb.cli.progress import progress_display
from wtb.cli.run import case_file
from wtb.cli.run.sweeps import exit_code, say_how_it_ended
from wtb.config import yaml_reader
from wtb.display import json_text
from wtb.display.text import extensions
from wtb.operations import context as contexts
from wtb.operations.growth import extending, new_cases
from wtb.operations.results import matrix as results
from wtb.operations.running import local
from wtb.planning.factors import parameter_files
from wtb.store.read import queries

if TYPE_CHECKING:
    from wtb.operations.context import Backend
    from wtb.operations.growth.extending import Extended
    from wtb.planning.sweep_spec import Variant

Vary = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="NODE=VARIANT",
        help="A further variant: a name, an import path or a mapping; or NODE.PARAMETER=LEVEL. For several, repeat it.",
    ),
]


def extend(
    ref: options.Sweep,
    cases: Annotated[Path | None, typer.Option("--cases", metavar="FILE", help="Cases to add.")] = None,
    columns: case_file.Columns = None,
    repeats: Annotated[int | None, typer.Option("--repeats", help="How many repeats there are to be.")] = None,
    vary: Vary = None,
    combination: Annotated[
        list[str] | None,
        typer.Option(
            "--combination",
            metavar="NODE=VARIANT",
            help="Let stopped combinations that choose it run again; of several options all must match.",
        ),
    ] = None,
    new_name: Annotated[
        str | None,
        typer.Option("--new-name", metavar="NAME", help="Extend a copy of this name; the sweep stays as it is."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be added, and change nothing.")] = False,
    allow_code_change: options.AllowCodeChange = False,
    reason: options.Reason = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Only add it; `wtb resume` runs it.")] = False,
    db: options.Db = None,
    broker: options.Broker = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Add cases, repeats or variants to a sweep.

    Only what is new runs.

    Cells that are there stay as they are, and none of their nodes runs again. A new combination goes on from where it
    differs from others; new cases and repeats begin with their case. Cases that are there already are skipped. What was
    submitted goes to the workers, and the command returns at once. With --new-name the sweep is copied with its history
    and scores, and the copy is extended: a sweep that is a baseline needs that.

    See also: `wtb fork --all-cases` adds one exploratory row; `wtb plan` shows what a new sweep would run.

    Examples: wtb extend nightly --cases more.csv --dry-run  |  wtb extend main --repeats 3 --new-name main-3
    """
    backend = open_backend(db, broker)
    rows = None if cases is None else new_cases.cases_to_send(cases)
    (levels, typed, texts), keys = read_levels(vary), case_file.read_columns(columns)
    chosen = None if combination is None else dict(read_pair("--combination", text) for text in combination)
    if dry_run:
        planned = backend.call(
            extending.plan_extension,
            ref,
            cases=rows,
            columns=keys,
            repeats=repeats,
            vary=levels,
            typed=typed,
            texts=texts,
            new_name=new_name,
        )
        is_json = format is options.Format.json
        put(json_text.as_json(asdict(planned)) if is_json else extensions.planned_in_words(planned), output)
        return
    shows = progress_display(quiet) if isinstance(backend, contexts.Context) else nullcontext()
    with prints_to_stderr(), shows as show:
        added = backend.call(
            extending.extend,
            ref,
            cases=rows,
            columns=keys,
            repeats=repeats,
            vary=levels,
            typed=typed,
            texts=texts,
            combination=chosen,
            new_name=new_name,
            allow_code_change=allow_code_change,
            reason=reason,
            run=not no_run,
            progress=show,
        )
    _present(backend, added, format, output)


def read_levels(
    texts: list[str] | None,
) -> tuple[dict[str, list[Variant]] | None, dict[str, list[str]] | None, dict[str, str]]:
    """Read NODE=VARIANT or NODE.PARAMETER=LEVEL, as in a sweep file if it is a list, a mapping or in double quotes.

    Returns the variants as in a sweep file, those that are text as it was typed, and the texts of the files that stand
    in them by path and hash, by SHA-256.
    """
    found: dict[str, list[Variant]] = {}
    typed: dict[str, list[str]] = {}
    for text in texts or ():
        node, form = read_pair("--vary", text)
        if form[0] not in '{["':
            typed.setdefault(node, []).append(form)
            continue
        written = yaml_reader.parse(f"vary: {form}".encode(), "--vary").data["vary"]
        found.setdefault(node, []).extend(written if isinstance(written, list) else [written])
    found, read = parameter_files.read_level_files(found, "--vary")
    typed, read = parameter_files.read_level_files(typed, "--vary", read)
    return found or None, typed or None, read


def _present(backend: Backend, added: Extended, format: options.Format, output: Path | None) -> None:
    """Show what was added: as JSON, else by the matrix, or in words where nothing has run here."""
    for line in extensions.added_in_words(added):
        say(line)
    document = {key: value for key, value in asdict(added).items() if key != "ended"}
    is_json = format is options.Format.json
    if added.ended is None:
        if is_json:
            put(json_text.as_json(document), output)
        return
    assert isinstance(backend, contexts.Context), "through a server nothing runs here"
    say_how_it_ended(local.Ran(queries.find_sweep(backend.database, added.sweep), added.ended))
    matrix = backend.call(results.matrix, added.sweep)
    put(json_text.as_json(document) if is_json else render_matrix(matrix, options.MatrixFormat.table, output), output)
    raise typer.Exit(exit_code(matrix, added.ended))
