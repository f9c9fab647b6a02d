"""Changes of a sweep's code, or of a server's tools, since it was submitted.

Files that nodes write do not count as code: see `WrittenFiles`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection

from wtb.authoring.graph import reachable, successors
from wtb.core.errors import ConflictError, InputError, StoreError
from wtb.core.tree.stored_code import is_file, why
from wtb.planning.binding import Bound
from wtb.planning.environment import changed_tools, present_tools
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.runs import leases
from wtb.store.tables.sweeps import SweepRow

log = logging.getLogger("wtb")

LATE_S = 2.0  # for what another runner has heard to be recorded
LOOK_S = 0.1
MOST, LONGEST = 1000, 500  # files that a sweep records as written, and characters of their names


class WrittenFiles:
    """Files among the code of a sweep that nodes write: they are output, so their changes are no changes of code.

    A report in one runner is recorded for all others. Used by all threads.

    Args:
        database: The database in which it is recorded.
        sweep: The sweep.
        notice: Called with a sentence about each new file.
        is_shared: Whether nodes of other sweeps, which write other files, run in this process, too.
    """

    def __init__(
        self,
        database: Database,
        sweep: SweepRow,
        notice: Callable[[str], None] = lambda words: None,
        *,
        is_shared: bool = False,
    ) -> None:
        self._database = database
        self._sweep = sweep
        self._notice = notice
        code = sweep.recorded_code.code
        self._parts = set() if code is None else {name for name, _ in code["parts"]}
        self._recorded = set() if code is None else set(code.get("written", ()))
        self._is_shared = is_shared
        self._covered: set[str] = set()  # by what nodes of other sweeps wrote
        self._lock = threading.Lock()

    def note(self, file: str, node: str) -> str | None:
        """Record that a node writes a file.

        Args:
            file: The name of its part.
            node: The node; `OUTSIDE` if code wrote it when it was imported, or between node runs.

        Returns:
            A sentence about it; None if it was known, or cannot be recorded now.
        """
        if file in self._recorded or not self._may_be_written(file):
            return None
        with self._lock:
            if file in self._recorded:
                return None
            try:
                leases.record_written(self._database, self._sweep.id, {file: node})
            except StoreError as error:  # the next node run reports it, too
                log.warning("sweep %s: %s cannot be recorded as written: %s", self._sweep.id, file, error)
                return None
            self._recorded.add(file)
        words = f"not code: {file.partition(' ')[2]}, which {f'node {node}' if node else 'the code'} writes"
        self._notice(words)
        return words

    def _may_be_written(self, file: str) -> bool:
        """Return whether to accept the report of a node process; a new file is no part of the code yet."""
        is_new = not self._is_shared and len(file) <= LONGEST and len(self._recorded) < MOST
        return is_file(file) and (is_new or file in self._parts)

    def cover(self, files: Collection[str]) -> bool:
        """Return whether nodes have written all these files. Waits for reports that other runners are recording."""
        until = time.monotonic() + LATE_S
        while not self._are_known(files):
            try:
                self._covered |= leases.written_files(self._database, self._sweep)
            except StoreError as error:
                log.warning("sweep %s: files that nodes wrote cannot be read: %s", self._sweep.id, error)
            if self._are_known(files) or time.monotonic() >= until:
                break
            time.sleep(LOOK_S)
        return self._are_known(files)

    def _are_known(self, files: Collection[str]) -> bool:
        return self._recorded.union(self._covered).issuperset(files)


def changed_ahead(database: Database, sweep: SweepRow, bound: Bound) -> list[tuple[str, str]]:
    """Return (node, variant) of nodes that have yet to run and whose code differs from the recorded code."""
    after = successors(bound.workflow)
    ahead: set[str] = set()
    for _, position in queries.heads(database, sweep.id):
        ahead |= reachable(after, bound.workflow.entries if position is None else position["next"])
    present, recorded = bound.present_code, leases.recorded_code(database, sweep)
    return [
        (node, variant)
        for node, variant in present.variants()
        if node in ahead and not recorded.has_same(present, node, variant)
    ]


def _missing_nodes(database: Database, sweep: SweepRow, bound: Bound) -> list[str]:
    """Return next nodes of executions that are not in the workflow: they were renamed or removed."""
    ahead = [position["next"] for _, position in queries.heads(database, sweep.id) if position is not None]
    return list(dict.fromkeys(node for nodes in ahead for node in nodes if node not in bound.workflow.nodes))


def accept_code(database: Database, sweep: SweepRow, bound: Bound, *, allow: bool) -> list[tuple[str, str]]:
    """Record the present code.

    Raises ConflictError if it changed and `allow` is false, or if the next node of an execution is gone.
    """
    if missing := _missing_nodes(database, sweep, bound):
        raise ConflictError(
            f"sweep {sweep.id}: its executions are to continue with {', '.join(map(repr, missing))}, which the "
            f"workflow no longer has; bring the old code back, or `wtb fork` them from an earlier checkpoint"
        )
    changed = changed_ahead(database, sweep, bound)
    if changed and not allow:
        names = ", ".join(f"{node}={variant}" for node, variant in changed)
        causes = why(leases.recorded_code(database, sweep).code, bound.code, changed)
        raise ConflictError(
            f"sweep {sweep.id}: the code of {names} has changed since it was submitted {causes}, "
            f"so its cells would not be comparable; submit it anew with `wtb run`, or allow the change of code",
            argument="allow_code_change",
        )
    if changed:
        leases.record_code(database, sweep.id, bound.fingerprints, bound.code)
    return changed


def accept_tools(database: Database, sweep: SweepRow, bound: Bound, *, allow: bool) -> list[str]:
    """Record the present tools of servers. Returns those that changed, such as `files.read`.

    Raises ConflictError if they changed and `allow` is false, and InputError if a server does not respond.
    """
    try:
        present = present_tools(bound.workflow)
    except InputError:
        # Changes are allowed, so there is nothing to find out. Nodes that call the server report that it is away.
        if allow:
            return []
        raise
    changed = changed_tools(sweep.spec, present)
    if changed and not allow:
        raise ConflictError(
            f"sweep {sweep.id}: servers have changed {', '.join(changed)} since it was submitted, so its cells would "
            f"not be comparable; submit it anew with `wtb run`, or allow the change of code",
            argument="allow_code_change",
        )
    if changed:
        leases.record_tools(database, sweep.id, present)
    return changed
