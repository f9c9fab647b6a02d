"""Copy a sweep under another name, beside the original."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa
from msgspec import structs

from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError, InputError, StoreError
from wtb.core.ids import short_id
from wtb.operations.context import Context, throttled
from wtb.store.database import Database
from wtb.store.files.locks import copying_files
from wtb.store.housekeeping.deletion import discard_submission
from wtb.store.tables.schema import sweeps
from wtb.store.tables.sweeps import SweepRow
from wtb.store.transfer import sweep_copy
from wtb.store.transfer.renaming import NewIds
from wtb.store.transfer.sweep_copy import Home


@frozen
class RenamedCopy:
    """A copy whose rows are written, and which nobody sees yet.

    Attributes:
        sweep: Its row, as it will be.
        rows: How many rows were copied, by table.
        publish: Has it be there, in a transaction that writes.
    """

    sweep: SweepRow
    rows: dict[str, int]
    publish: Callable[[sa.Connection], None]


def check_copied(sweep: SweepRow, name: str) -> None:
    """Check that a sweep can be copied under a name. Raises InputError or ConflictError."""
    if sweep.kind == "single":
        raise InputError(f"{sweep.id} is a single execution; expected a sweep", argument="ref")
    if name == sweep.name:
        raise InputError(f"the sweep is called {name!r} itself; expected another name", argument="new_name")
    if sweep.status not in sweep_copy.ENDED:
        raise ConflictError(
            f"sweep {sweep.name} ({sweep.id}) is {sweep.status}; pause it with `wtb pause {sweep.id}`, or copy it when "
            f"it has ended"
        )


@contextmanager
def discarded_unless_whole(database: Database, sweep_id: str) -> Iterator[None]:
    """Remove what was written of a copy if the block fails."""
    try:
        yield
    except BaseException:
        with suppress(StoreError):  # what is out of reach now, the scheduler or a garbage collection removes
            discard_submission(database, sweep_id)
        raise


@contextmanager
def renamed_copy(context: Context, sweep: SweepRow, name: str) -> Iterator[RenamedCopy]:
    """Copy a sweep within its database, with its history and scores, under ids of its own.

    Files and values are stored by content, so both sweeps share them. What the sweep has spent stays with it. Unless
    the copy is published inside the block, nothing of it is left.

    Args:
        context: Where it is, and who copies it.
        sweep: Its row, checked by `check_copied`.
        name: The name of the copy.

    Yields:
        The copy.

    Raises:
        ConflictError: If the sweep was changed meanwhile.
        StoreError: If a value is missing or damaged.
    """
    database, new_id = context.database, short_id()
    new_ids = NewIds(sweep.id, new_id)
    spec = sweep.spec.copy()
    spec["sweep"], spec["copied_from"] = name, sweep.id
    copy = structs.replace(sweep, id=new_id, name=name, spec=spec, pinned=False, collected_usd=0.0)
    copy = structs.replace(copy, runner_id=None, running_since=None)
    row = {column.name: getattr(copy, column.name) for column in sweeps.columns}
    home = Home(sweep.session_id, sweep.project)
    data = {"from": f"{sweep.name} ({sweep.id})", "by": context.by}
    with discarded_unless_whole(database, new_id), copying_files(context.workspaces.files):
        sweep_copy.begin_renamed(database, row)
        with sweep_copy.one_state(database) as (connection, write):
            _check_unchanged(connection, sweep)
            rows = sweep_copy.copy_rows(database, connection, write, sweep.id, home, throttled(context.report), new_ids)
        yield RenamedCopy(copy, rows, lambda connection: sweep_copy.publish_renamed(connection, row, sweep.id, data))


def _check_unchanged(connection: sa.Connection, sweep: SweepRow) -> None:
    row = sweep_copy.find_row(connection, sweep.id)
    if row is None:
        raise ConflictError(f"sweep {sweep.id} was deleted meanwhile")
    if (row["status"], row["spec"], row["cells"]) != (sweep.status, sweep.spec, sweep.cells):
        raise ConflictError(f"sweep {sweep.id} was changed by somebody else just now: try again")
