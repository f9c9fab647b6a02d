"""Commands on combinations: add one that a fork describes, and stop some."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, prints_to_stderr, read_pair, say
from wtb.cli.output import put_as
from wtb.cli.progress import progress_display
from wtb.cli.run.outcome import document_of, present_added
from wtb.config import yaml_reader
from wtb.core import factors
from wtb.core.texts import plural
from wtb.core.tree import combinations
from wtb.operations import context as contexts
from wtb.operations.control import pause_cancel
from wtb.operations.running import added_rows
from wtb.planning import parameter_files

if TYPE_CHECKING:
    from wtb.operations.context import Backend
    from wtb.operations.control.pause_cancel import StoppedCombinations
    from wtb.operations.running.added_rows import AddedRow
    from wtb.planning.sweep_spec import Variant


At = Annotated[
    str | None,
    typer.Option("--at", metavar="CHECKPOINT|NODE", help="The checkpoint to continue from; by default the head."),
]
VariantOption = Annotated[
    list[str] | None,
    typer.Option(
        "--variant", metavar="NODE=VARIANT", help="Later node's variant; {name: N, of: VARIANT, KEY: 5} or NODE.KEY=5."
    ),
]


def add(
    ref: options.Execution,
    at: At = None,
    variants: VariantOption = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Add it without running it; `wtb resume` runs it.")] = False,
    reason: options.Reason = None,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Run the changes of a fork for every case, as another row of its sweep.

    Each case starts from where the change makes a difference. The row is exploratory: the case that suggested it does
    not count for it. The execution is a fork whose variants every case gets, or one to change with --variant.

    See also: `wtb fork` tries it for one case; `wtb extend --vary` adds variants that are not exploratory.

    Examples: wtb combination add EXECUTION --at retrieve --variant answer=short  |  wtb combination add FORK
    """
    backend, (forms, texts) = open_backend(db), read_variants(variants or ())
    # Through a server nothing runs in this process, so there is no progress to show.
    shows = progress_display(False) if isinstance(backend, contexts.Context) else nullcontext()
    with prints_to_stderr(), shows as show:
        added = backend.call(
            added_rows.add_row,
            ref,
            at=at,
            variants=forms,
            texts=texts,
            reason=reason,
            run=not no_run,
            progress=show,
        )
    _present(backend, added, form)


def stop(
    ref: options.Sweep,
    combination: Annotated[
        list[str],
        typer.Argument(metavar="NODE=VARIANT...", help="Combinations by variants; of several, all must match."),
    ],
    reason: options.Reason = None,
    db: options.Db = None,
) -> None:
    """Skip the open cells of some combinations; the others continue.

    See also: `wtb extend --combination` lets a stopped combination run again; `wtb cancel` ends the whole sweep.

    Example: wtb combination stop nightly answer=terse
    """
    required = dict(read_pair("combination", text) for text in combination)
    say(
        _stopped_in_words(
            open_backend(db).call(pause_cancel.stop_combination, ref, combination=required, reason=reason), required
        )
    )


COMBINATION = {"add": add, "stop": stop}


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


def _present(backend: Backend, added: AddedRow, form: options.Form) -> None:
    """Show a row that was added: as JSON, else by the matrix, or by its number where it has not run here.

    Raises:
        typer.Exit: It ran here; the code is that of the matrix.
    """
    say(_added_text(added))
    if added.ended is not None:
        present_added(backend, added, added.ended, form)
    say(_who_runs(added))
    put_as(document_of(added), str(added.combination), form)


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


def _stopped_in_words(stopped: StoppedCombinations, required: dict[str, str]) -> str:
    name = f"sweep {stopped.name} ({stopped.sweep})"
    if not stopped.combinations:
        return f"{name}: {plural(stopped.already, 'combination')} stopped already"
    names = ", ".join(combinations.in_words(choices) for choices in stopped.combinations[:10])
    more = f" and {len(stopped.combinations) - 10:,} more" if len(stopped.combinations) > 10 else ""
    return (
        f"{name}: stopped {names}{more}, {plural(stopped.cells, 'cell')} skipped; it runs again with: "
        f"wtb extend {stopped.sweep} {combinations.chosen_in_shell(required)}"
    )
