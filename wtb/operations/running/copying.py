"""Copies of a sweep under another name, beside the original; and of files from one store to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as sa
from msgspec import structs

from wtb.core.errors import ConflictError, InputError, StoreError
from wtb.core.frozen import frozen
from wtb.core.ids import short_id
from wtb.operations.context import Context, throttled
from wtb.store.bulk import parts
from wtb.store.database import Database
from wtb.store.files.locations import copying_files
from wtb.store.files.store import FileStore
from wtb.store.housekeeping import sweep_copy
from wtb.store.housekeeping.deletion import discard_submission
from wtb.store.housekeeping.sweep_copy import Home, NewIds
from wtb.store.tables.schema import sweeps
from wtb.store.tables.sweeps import SweepRow


@frozen
class RenamedCopy:
    """A copy whose rows are written, but not visible yet.

    Attributes:
        sweep: Its row, as it will be.
        rows: How many rows were copied, by table.
        publish: Makes it visible, in a transaction that writes.
    """

    sweep: SweepRow
    rows: dict[str, int]
    publish: Callable[[sa.Connection], None]


def check_copied(sweep: SweepRow, name: str) -> None:
    """Check that a sweep can be copied under a name. Raises InputError or ConflictError."""
    if sweep.kind == "single":
        raise InputError(f"{sweep.id} is a single execution; expected a sweep", argument="ref")
    if name == sweep.name:
        raise InputError(f"the sweep already has the name {name!r}; expected another one", argument="new_name")
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
    # Money that was spent belongs to the original, or project totals would count it twice.
    copy = structs.replace(sweep, id=new_id, name=name, spec=spec, pinned=False, collected_usd=0.0)
    copy = structs.replace(copy, runner_id=None, running_since=None)
    row = {column.name: getattr(copy, column.name) for column in sweeps.columns}
    home = Home(sweep.session_id, sweep.project)
    details = {"from": f"{sweep.name} ({sweep.id})", "by": context.by}
    with discarded_unless_whole(database, new_id), copying_files(context.workspaces.files):
        sweep_copy.begin_renamed(database, row)
        # One state of the database, or rows that were written in between would refer to rows that were not copied.
        with sweep_copy.one_state(database) as (connection, write):
            _check_unchanged(connection, sweep)
            rows = sweep_copy.copy_rows(database, connection, write, sweep.id, home, throttled(context.report), new_ids)
        yield RenamedCopy(copy, rows, lambda connection: sweep_copy.publish_renamed(connection, row, sweep.id, details))


def _check_unchanged(connection: sa.Connection, sweep: SweepRow) -> None:
    row = sweep_copy.find_row(connection, sweep.id)
    if row is None:
        raise ConflictError(f"sweep {sweep.id} was deleted meanwhile")
    # The row was read before the copy began; a sweep that was resumed meanwhile would be copied half-way.
    if (row["status"], row["spec"], row["cells"]) != (sweep.status, sweep.spec, sweep.cells):
        raise ConflictError(f"sweep {sweep.id} was changed by another process just now; try again")


_TOGETHER = 200  # files that are waited for on the disk at once


class CopiedFiles:
    """Files that are copied from one store to another, each verified by its hash.

    Attributes:
        count: How many were copied.
        bytes: Their total size.
        missing: Digests of those that are missing or damaged.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self.count = 0
        self.bytes = 0
        self.missing: set[str] = set()

    def copy_snapshots(self, source: FileStore, target: FileStore, named: list[str]) -> None:
        """Copy the manifests of snapshots with the contents that they list."""
        contents: set[str] = set()
        for digest in named:
            with self._noting(digest):
                contents |= {file.digest for file in source.manifest(digest).values()}
        # Contents first: a manifest that is there has them, as in every store.
        self._copy(source, target, sorted(contents - set(named)))
        self._copy(source, target, [digest for digest in named if digest not in self.missing])

    def _copy(self, source: FileStore, target: FileStore, digests: list[str]) -> None:
        for part in parts(digests, _TOGETHER):
            with target.adding() as adding:
                for digest in part:
                    with self._noting(digest):
                        _, size = adding.add_blocks(source.read(digest), 0)
                        self.count += 1
                        self.bytes += size
                adding.publish()
            self._report(f"files: {self.count:,} copied")

    @contextmanager
    def _noting(self, digest: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            self.missing.add(digest)
