"""Input and output of `wtb fork --all-cases`: variants to read, and the row that was added."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from wtb.cli import options
from wtb.cli.console import put, read_pair, render_matrix, say
from wtb.cli.run.sweeps import exit_code, say_how_it_ended
from wtb.config import yaml_reader
from wtb.core import factors
from wtb.core.texts import plural
from wtb.core.tree import combinations
from wtb.display.json_text import as_json
from wtb.operations import context as contexts
from wtb.operations.results import matrix as results
from wtb.operations.running import local
from wtb.planning import parameter_files
from wtb.store.read import queries

if TYPE_CHECKING:
    from wtb.operations.context import Backend
    from wtb.operations.running.added_rows import AddedRow
    from wtb.planning.sweep_spec import Variant


def read_variants(texts: Iterable[str]) -> tuple[dict[str, Variant], dict[str, str]]:
    """Read NODE=VARIANT or NODE.PARAMETER=LEVEL; a variant is a name, an import path or a mapping as in a sweep file.

    Returns the variants, in which files stand by their path and hash, and the texts of these files by SHA-256.
    """
    variants: dict[str, Variant] = {}
    for text in texts:
        node, form = read_pair("--variant", text)
        # Only a mapping is YAML. A name stays as it was typed, since YAML would read `1.0` as a number.
        document = yaml_reader.parse(f"variant: {form}".encode(), "--variant") if form[0] == "{" else None
        variants[node] = form if document is None else document.data["variant"]
    return parameter_files.read_level_files(variants, "--variant")


def present_row(backend: Backend, added: AddedRow, format: options.Format, output: Path | None) -> None:
    """Show a row that was added: as JSON, else by the matrix, or by its number where it has not run here.

    Raises:
        typer.Exit: It ran here; the code is that of the matrix.
    """
    say(_added_text(added))
    is_json = format is options.Format.json
    # `ended` describes the run in this process, and is no part of the document.
    row = {key: field for key, field in asdict(added).items() if key != "ended"}
    if added.ended is None:
        say(_who_runs(added))
        put(as_json(row) if is_json else str(added.combination), output)
        return
    assert isinstance(backend, contexts.Context), "through a server nothing runs here"
    say_how_it_ended(local.Ran(queries.find_sweep(backend.database, added.sweep), added.ended))
    matrix = backend.call(results.matrix, added.sweep)
    put(as_json(row) if is_json else render_matrix(matrix, options.MatrixFormat.table, output), output)
    raise typer.Exit(exit_code(matrix, added.ended))


def _added_text(added: AddedRow) -> str:
    labels, base = factors.labels_of(added.choices), factors.labels_of(added.base)
    changed = ", ".join(f"{key}={label}" for key, label in labels.items() if base.get(key) != label)
    failed = f"; {plural(added.failed, 'cell')} failed before that, as in the other row" if added.failed else ""
    return (
        f"sweep {added.name} ({added.sweep}): {combinations.in_words(added.choices)} is a row now, of "
        f"{plural(added.cells, 'cell')} from where {changed} makes a difference (about "
        f"{plural(added.node_runs, 'node run')}){failed}; it is exploratory, since case {added.suggested_by} "
        f"suggested it"
    )


def _who_runs(added: AddedRow) -> str:
    if not added.executions:
        return f"nothing of it is to run; try what failed again with: wtb retry {added.sweep}"
    if not added.queued:
        return f"run it with: wtb resume {added.sweep}"
    if added.status == "paused":
        return f"it waits, since the sweep is paused: wtb resume {added.sweep}"
    because = f"; {added.problem}" if added.problem else ""
    return f"it is for the workers{because}; follow it with: wtb watch {added.sweep}"
