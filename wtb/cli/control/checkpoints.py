"""The command that names a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend
from wtb.cli.output import put_as
from wtb.operations.control import naming

if TYPE_CHECKING:
    from wtb.core.documents.lineage import CheckpointNameDocument
    from wtb.operations.control.naming import CheckpointName


def checkpoint(
    ref: options.Execution,
    name: Annotated[str, typer.Option("--name", help="Its name: not that of a node, nor in use in the execution.")],
    note: Annotated[str | None, typer.Option("--note", help="A note for people, kept with the name.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="CHECKPOINT|NODE", help="Which one; by default that at the head.")
    ] = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Name a checkpoint, so that rollbacks and people find it.

    `wtb rollback --to`, `wtb fork --at` and `wtb files --at` take the name.

    See also: `wtb pin` keeps a checkpoint, whatever `wtb gc` removes; `wtb history` lists checkpoints.

    Example: wtb checkpoint EXECUTION --name before-the-change --note 'the last one with the old index'
    """
    done = open_backend(db).call(naming.name_checkpoint, ref, name, note=note, at=at)
    put_as(_document(done), _text(done), format, output)


def _document(done: CheckpointName) -> CheckpointNameDocument:
    return {
        "execution": done.execution,
        "checkpoint": done.checkpoint,
        "name": done.name,
        "note": done.note,
        "previous": done.previous,
    }


def _text(done: CheckpointName) -> str:
    before = f" (was {done.previous})" if done.previous not in (None, done.name) else ""
    return f"checkpoint {done.checkpoint} of execution {done.execution} is now {done.name}{before}"
