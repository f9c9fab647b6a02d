"""The command `wtb pool`."""

from __future__ import annotations

from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, put
from wtb.core.texts import plural
from wtb.operations.control import pools as operations


def pool(
    refs: Annotated[
        list[str], typer.Argument(metavar="SWEEP...", help="Two sweeps or more: ids, beginnings of ids, or names.")
    ],
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="What to call the pool.")] = None,
    db: options.Db = None,
) -> None:
    """Make one sweep of several that repeat each other.

    They ran the same rows over the same cases, and their runs are its repeats. Nothing runs: a case's score is the mean
    over all runs, so chance weighs less. The pool is shown and compared like any sweep, and cannot be changed. Its
    sweeps stay as they are, and can be deleted after the pool.

    See also: `wtb matrix` says which sweeps can be pooled.

    Example: wtb pool 1ng8taw 1ng8tbx 1ng8tcy --name three-nights
    """
    pooled = open_backend(db).call(operations.pool, refs, name=name)
    put(
        f"pool {pooled.name} ({pooled.id}): {plural(len(pooled.sweeps), 'sweep')}, {plural(pooled.repeats, 'repeat')}, "
        f"{plural(pooled.cells, 'cell')}; `wtb matrix {pooled.id}` shows it"
    )
