"""Whether the code of a sweep, or a tool of a server, changed since it was submitted, where that matters."""

from __future__ import annotations

from wtb.authoring.graph import reachable, successors
from wtb.core.errors import ConflictError, InputError
from wtb.core.tree.stored_code import why
from wtb.planning.binding import Bound
from wtb.planning.environment import changed_tools, present_tools
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.rows.sweeps import SweepRow
from wtb.store.runs import leases


def changed_ahead(database: Database, sweep: SweepRow, bound: Bound) -> list[tuple[str, str]]:
    """(node, variant) whose code differs from what the sweep records, of nodes that have yet to run."""
    after = successors(bound.workflow)
    ahead: set[str] = set()
    for _, position in queries.heads(database, sweep.id):
        ahead |= reachable(after, bound.workflow.entries if position is None else position["next"])
    present = bound.present_code
    return [
        (node, variant)
        for node, variant in present.variants()
        if node in ahead and not sweep.recorded_code.has_same(present, node, variant)
    ]


def _gone(database: Database, sweep: SweepRow, bound: Bound) -> list[str]:
    """The nodes that come next somewhere and are not in the workflow: they were renamed or removed."""
    ahead = [position["next"] for _, position in queries.heads(database, sweep.id) if position is not None]
    return list(dict.fromkeys(node for nodes in ahead for node in nodes if node not in bound.workflow.nodes))


def accept_code(database: Database, sweep: SweepRow, bound: Bound, *, allow: bool) -> list[tuple[str, str]]:
    """Record the code that is there now.

    Raises ConflictError where it changed and `allow` does not say so, and where the node that comes next is gone.
    """
    if gone := _gone(database, sweep, bound):
        raise ConflictError(
            f"sweep {sweep.id}: its executions are to continue with {', '.join(map(repr, gone))}, which the "
            f"workflow no longer has; bring the old code back, or `wtb fork` them from an earlier checkpoint"
        )
    changed = changed_ahead(database, sweep, bound)
    if changed and not allow:
        names = ", ".join(f"{node}={variant}" for node, variant in changed)
        causes = why(sweep.spec.get("code"), bound.code, changed)
        raise ConflictError(
            f"sweep {sweep.id}: the code of {names} has changed since it was submitted {causes}, "
            f"so its cells would not be comparable; submit it anew with `wtb run`, or allow the change of code",
            argument="allow_code_change",
        )
    if changed:
        leases.record_code(database, sweep.id, bound.fingerprints, bound.code)
    return changed


def accept_tools(database: Database, sweep: SweepRow, bound: Bound, *, allow: bool) -> list[str]:
    """Record the tools of servers that are there now. Returns those that changed, as `files.read`.

    Raises ConflictError where they changed and `allow` does not say so, and InputError where a server cannot be asked.
    """
    try:
        present = present_tools(bound.workflow)
    except InputError:
        if allow:  # nodes that call it say so, too
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
