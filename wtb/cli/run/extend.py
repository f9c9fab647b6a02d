"""The command that adds cases, repeats and variants to a sweep: extend."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, prints_to_stderr, put_json, read_pair, say
from wtb.cli.output import put_as
from wtb.cli.progress import progress_display
from wtb.cli.run import case_file
from wtb.cli.run.outcome import document_of, present_added
from wtb.config import yaml_reader
from wtb.display.text import added_cases
from wtb.operations import context as contexts
from wtb.operations.running import additions, extending
from wtb.planning import parameter_files

if TYPE_CHECKING:
    from wtb.planning.sweep_spec import Variant

Vary = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="NODE=VARIANT",
        help="A new variant: name, import path or mapping; or NODE.PARAMETER=LEVEL; repeatable.",
    ),
]


def extend(
    ref: options.Sweep,
    cases: Annotated[Path | None, typer.Option("--cases", metavar="FILE", help="Cases to add.")] = None,
    columns: case_file.Columns = None,
    repeats: Annotated[int | None, typer.Option("--repeats", help="Number of repeats after extending.")] = None,
    vary: Vary = None,
    combination: Annotated[
        list[str] | None,
        typer.Option(
            "--combination",
            metavar="NODE=VARIANT",
            help="Restart stopped combinations that choose it; repeat to narrow.",
        ),
    ] = None,
    new_name: Annotated[
        str | None,
        typer.Option("--new-name", metavar="NAME", help="Extend a copy of this name; the sweep stays as it is."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be added, and change nothing.")] = False,
    allow_code_change: options.AllowCodeChange = False,
    reason: options.Reason = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Add it without running it; `wtb resume` runs it.")] = False,
    db: options.Db = None,
    broker: options.Broker = None,
    form: options.Form = options.TABLE,
    quiet: options.Quiet = False,
) -> None:
    """Add cases, repeats or variants to a sweep.

    Only what is new runs.

    Existing cells stay as they are, and none of their nodes runs again. A new combination starts at the first node that
    differs from others; new cases and repeats start with their case. Existing cases are skipped. A submitted sweep runs
    on the workers, and the command returns at once. With --new-name the sweep is copied with its history
    and scores, and the copy is extended: a sweep that is a baseline needs that.

    See also: `wtb combination add` adds one exploratory row; `wtb plan` shows what a new sweep would run.

    Examples: wtb extend nightly --cases more.csv --dry-run  |  wtb extend main --repeats 3 --new-name main-3
    """
    backend = open_backend(db, broker)
    rows = None if cases is None else additions.cases_to_send(cases)
    (levels, typed, texts), keys = read_levels(vary), case_file.read_columns(columns)
    choices = None if combination is None else dict(read_pair("--combination", text) for text in combination)
    added_parts: dict[str, Any] = {"cases": rows, "columns": keys, "repeats": repeats, "new_name": new_name}
    added_parts |= {"vary": levels, "typed": typed, "texts": texts}
    if dry_run:
        planned = backend.call(extending.plan_extension, ref, **added_parts)
        put_as(asdict(planned), added_cases.planned_in_words(planned), form)
        return
    # Through a server nothing runs in this process, so there is no progress to show.
    shows = progress_display(quiet) if isinstance(backend, contexts.Context) else nullcontext()
    with prints_to_stderr(), shows as show:
        added = backend.call(
            extending.extend,
            ref,
            **added_parts,
            combination=choices,
            allow_code_change=allow_code_change,
            reason=reason,
            run=not no_run,
            progress=show,
        )
    for line in added_cases.added_in_words(added, has_run=added.ended is not None):
        say(line)
    if added.ended is not None:
        present_added(backend, added, added.ended, form)
    if form.is_json:
        put_json(document_of(added), form.output)


def read_levels(
    texts: list[str] | None,
) -> tuple[dict[str, list[Variant]] | None, dict[str, list[str]] | None, dict[str, str]]:
    """Read NODE=VARIANT or NODE.PARAMETER=LEVEL, as in a sweep file if it is a list, a mapping or in double quotes.

    Returns the variants as in a sweep file, those that are text as it was typed, and the texts of the files that stand
    in them by path and hash, by SHA-256.
    """
    levels: dict[str, list[Variant]] = {}
    typed: dict[str, list[str]] = {}
    for text in texts or ():
        node, form = read_pair("--vary", text)
        if form[0] not in '{["':
            typed.setdefault(node, []).append(form)
            continue
        written = yaml_reader.parse(f"vary: {form}".encode(), "--vary").data["vary"]
        levels.setdefault(node, []).extend(written if isinstance(written, list) else [written])
    levels, read = parameter_files.read_level_files(levels, "--vary")
    typed, read = parameter_files.read_level_files(typed, "--vary", read)
    return levels or None, typed or None, read
