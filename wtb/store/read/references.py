"""What people name: a sweep or an execution, by its id, the beginning of it, or its name."""

from __future__ import annotations

from typing import Literal, NamedTuple

from wtb.core.arguments.checking import checked
from wtb.core.errors import InputError, NotFound
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.sweeps import SweepRow

TargetKind = Literal["sweep", "execution"]


class SweepTarget(NamedTuple):
    """A sweep that somebody named.

    Attributes:
        row: Its row.
    """

    row: SweepRow
    kind: Literal["sweep"] = "sweep"

    @property
    def id(self) -> str:
        """Its id."""
        return self.row.id

    def __str__(self) -> str:
        """What messages call it."""
        return f"sweep {self.row.name} ({self.id})"


class ExecutionTarget(NamedTuple):
    """An execution that somebody named.

    Attributes:
        row: Its row.
    """

    row: ExecutionRow
    kind: Literal["execution"] = "execution"

    @property
    def id(self) -> str:
        """Its id."""
        return self.row.id

    def __str__(self) -> str:
        """What messages call it."""
        return f"execution {self.id}"


Target = SweepTarget | ExecutionTarget


@checked
def find(database: Database, ref: str) -> Target:
    """Find what a reference names.

    Args:
        database: Where to look.
        ref: An id, the beginning of one, or the name of a sweep.

    Returns:
        The sweep or the execution.

    Raises:
        InputError: It is neither, or several.
    """
    try:
        return SweepTarget(queries.find_sweep(database, ref))
    except InputError as no_sweep:
        try:
            return ExecutionTarget(queries.find_execution(database, ref))
        except InputError as no_execution:
            several = [text for text in no_execution.problems if "several" in text]
            raise (InputError(*several) if several else no_sweep) from None


@checked
def find_target(database: Database, ref: str) -> Target:
    """Find a sweep or an execution to act on, as `find` does; a single execution is the execution, not its sweep."""
    found = find(database, ref)
    if found.kind == "sweep" and found.row.kind == "single":
        return ExecutionTarget(queries.single_execution(database, found.id))
    return found


@checked
def find_one(database: Database, ref: str) -> ExecutionRow:
    """Find an execution by its id, the beginning of it, or a name that means a single one.

    Of a single execution that was retried, and of a sweep that has one cell, it is the one that has the cell now.

    Raises:
        InputError: There is none, or it is a sweep of several cells.
    """
    try:
        target = find_target(database, ref)
    except InputError as error:
        if any("several" in text for text in error.problems):
            raise
        text = f"there is no execution {ref!r}; `wtb show SWEEP --cells` lists those of a sweep"
        raise NotFound(text, kind="execution") from None
    if target.kind == "sweep" and target.row.cells == 1:
        return queries.single_execution(database, target.id)
    if target.kind == "sweep":
        raise InputError(
            f"{ref!r} is the {target}, which has many executions; name one of them "
            f"(`wtb show {target.id} --cells` lists them)"
        )
    return target.row
