"""The command that erases a case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import confirm, open_backend, say
from wtb.cli.output import put_as
from wtb.core.texts import plural
from wtb.operations.housekeeping import erase as erasing

if TYPE_CHECKING:
    from wtb.core.documents.storage.erasure import ErasedDocument
    from wtb.operations.housekeeping.erase import Erased


def erase(
    case: Annotated[str, typer.Argument(metavar="CASE", help="The id of the case.")],
    sweep: Annotated[
        str | None, typer.Option("--sweep", metavar="SWEEP", help="Only in this sweep \\[default: in all].")
    ] = None,
    project: Annotated[
        str | None, typer.Option("--project", metavar="NAME", help="Only in sweeps of a project.")
    ] = None,
    reason: options.Reason = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
) -> None:
    """Erase a case everywhere, with all that ran for it.

    Gone are its input, states, files, output, calls, events and scores. That it was erased, and by whom, stays; so do
    values and files that another case, sweep or session has as well. Sweeps that may still run are paused or cancelled
    first. Backups and exported archives are not changed.

    See also: `wtb delete` removes a whole sweep; `redact` in a sweep file keeps out what must not be stored.

    Examples: wtb erase ticket-4711  |  wtb erase ticket-4711 --sweep nightly --reason "asked to" --yes
    """
    backend = open_backend(db)
    preview = backend.call(erasing.preview_erase, case, sweep=sweep, project=project)
    what = f"case {case} from {plural(len(preview.found), 'sweep')}: {_counted(preview)}"
    if not yes and not confirm(f"Erase {what} for good?"):
        say("nothing was erased")
        raise typer.Exit(1)
    erased = backend.call(erasing.erase, case, sweep=sweep, project=project, reason=reason)
    more = f"{plural(erased.values, 'value')} and {plural(erased.files, 'file')} that nothing else has"
    put_as(_document(erased), f"erased {what}, {more}", format)
    for note in erased.notes:
        say(note)


def _counted(erased: Erased) -> str:
    return ", ".join(plural(count, kind.removesuffix("s").replace("_", " ")) for kind, count in erased.counts.items())


def _document(erased: Erased) -> ErasedDocument:
    return {
        "case": erased.case,
        "sweeps": [{"sweep": one.sweep_id, "name": one.sweep, "project": one.project} for one in erased.found],
        "counts": dict(erased.counts),
        "values": erased.values,
        "files": erased.files,
        "notes": list(erased.notes),
    }
