"""Roll an execution back to a checkpoint, undo a rollback, and fork an execution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wtb.authoring.graph import queue_of, reachable, successors
from wtb.core.errors import InputError, did_you_mean, meant_or_known
from wtb.core.tree.grouping import agreed
from wtb.operations.control.compensation import undo
from wtb.operations.control.state_edits import check_reach, checked_changes
from wtb.planning.binding import Bound
from wtb.store.control.forks import insert_fork
from wtb.store.control.pending_rollbacks import finish_first, release, unfinished
from wtb.store.control.rollback import Ending, begin, end, last_rollback
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.read.lineage import inside, line, marks, rollbacks_of

Row = Mapping[str, Any]
Document = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """A checkpoint to go back to, or to fork from.

    Attributes:
        id: Its id.
        next: The nodes that follow it.
        words: The checkpoint in words, for people.
    """

    id: str
    next: tuple[str, ...]
    words: str


def rollback(
    database: Database, execution: Row, to: str, *, bound: Bound | None, by: str, reason: str | None = None
) -> Document:
    """Move the head of an execution back below a checkpoint, or the exit of a node's last visit, and pause it there.

    The process that runs it loses it at once, and what had forked from the line that it leaves is superseded; its cells
    are to be done again. A rollback that was interrupted is continued.

    Args:
        database: The database that it is in.
        execution: Its row.
        to: A checkpoint's id, or a node.
        bound: The code, which is needed if calls of tools are to be undone.
        by: Who does it.
        reason: A reason for people.

    Returns:
        execution, head, from, to, nodes (rolled back, the last first), superseded, and what `undo` returns on tools.

    Raises:
        InputError: If the target is not on its line.
        ConflictError: If it cannot be rolled back, or if another process is doing so.
    """
    target = find_target(database, execution, to)
    shown_reason = f"rolled back to {target.words} by {by}" + (f": {reason}" if reason else "")
    return _move(
        database,
        execution,
        target,
        bound,
        Ending(by, reason, shown_reason, target.words, _queue(execution, target, bound)),
    )


def undo_rollback(
    database: Database, execution: Row, *, bound: Bound | None, by: str, reason: str | None = None
) -> Document:
    """Undo the last rollback of an execution: its head is again at the end of the line that it left, paused.

    Tools that were undone on that line are called again, in their order. What had forked from it stays superseded: it
    forks again when it goes on.

    Args:
        database: The database that it is in.
        execution: Its row.
        bound: The code, which is needed if tools are to be called.
        by: Who does it.
        reason: A reason for people.

    Returns:
        The same as `rollback`.

    Raises:
        InputError: If `wtb gc` removed the line that it left.
        ConflictError: If nothing was rolled back, or if something has run since.
    """
    under_way = unfinished(execution)
    if under_way is not None and not under_way["redoes"]:
        raise finish_first(execution, "taken forward again")
    last = last_rollback(database, execution)
    with database.read() as connection:
        found = marks(connection, [last["from_id"]])
    if last["from_id"] not in found:
        raise InputError(f"the line that execution {execution['id']} left is gone: `wtb gc` removed it")
    target = _target(found[last["from_id"]])
    shown_reason = f"its rollback was taken back by {by}" + (f": {reason}" if reason else "")
    queue = _queue(execution, target, bound)
    return _move(database, execution, target, bound, Ending(by, reason, shown_reason, target.words, queue, last["id"]))


def _move(database: Database, execution: Row, target: Target, bound: Bound | None, ending: Ending) -> Document:
    leaving = begin(database, execution["id"], target.id, ending)
    try:
        compensated = undo(database, leaving, bound)
        head = leaving.head or end(database, leaving, ending, compensated)
    finally:
        if leaving.head is None:
            release(database, leaving.execution)
    about = {"execution": execution["id"], "head": head, "from": leaving.from_id, "to": leaving.to_id}
    rest = {"words": target.words, "next": list(target.next), "was": leaving.status, "nodes": leaving.nodes}
    return {**about, **rest, "superseded": leaving.superseded, **compensated}


def _queue(execution: Row, target: Target, bound: Bound | None) -> str | None:
    return execution["queue"] if bound is None else queue_of(bound.workflow, target.next)


def find_target(database: Database, execution: Row, to: str) -> Target:
    """Find a checkpoint of an execution by its id or the beginning of it, its name, or the node that made it last.

    It is on the execution's line, taken inside one of its nodes, or on a line that a rollback left. Raises InputError
    with a list of those that exist.
    """
    if execution["head_id"] is None:
        raise InputError(f"execution {execution['id']} has not begun: there is nothing to go back to")
    with database.read() as connection:
        rollbacks = rollbacks_of(connection, [execution["id"]])
        found = marks(connection, [execution["head_id"], *(one["from_id"] for one in rollbacks)])
        if to in found:
            return _target(found[to])
        here = line(found, execution["head_id"])
        by_node = {writer[0]: mark for mark in here for writer in mark["writers"]}
        if to in by_node:
            return _target(by_node[to], to)
        taken = inside(connection, found)
    every = {**found, **{one["id"]: one for one in taken}}
    if to in every:
        return _target(every[to])
    by_name = {mark["name"]: mark for mark in taken if mark["name"] is not None}
    if to in by_name:
        return _target(by_name[to])
    starting = [mark for id, mark in every.items() if to and id.startswith(to)]
    if len(starting) == 1:
        return _target(starting[0])
    if starting:
        raise InputError(f"{to!r} is the beginning of {len(starting)} checkpoints' ids; give more of it")
    names = [*by_node, *by_name]
    listed = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
    listed = f"; it can go back to: {listed}" if names else "; no node of it has run yet"
    raise InputError(
        f"execution {execution['id']} has no checkpoint {to!r} on its line{did_you_mean(to, names)}{listed} (or a "
        f"checkpoint of `wtb history {execution['id']}`)"
    )


def _target(mark: Row, node: str | None = None) -> Target:
    if node is None and mark["writers"]:
        node = mark["writers"][-1][0]
    words = f"{node} (checkpoint {mark['id']})" if node else f"checkpoint {mark['id']}"
    if mark["name"]:
        words = f"{mark['name']!r} (checkpoint {mark['id']})"
    elif mark["parent_id"] is None:
        words = f"its input (checkpoint {mark['id']})"
    return Target(mark["id"], tuple(mark["position"]["next"]), words)


def fork(
    database: Database,
    ref: str,
    *,
    bound: Bound,
    at: str | None = None,
    set: Mapping[str, Any] | None = None,
    variants: Mapping[str, str] | None = None,
    by: str,
    reason: str | None = None,
    paused: bool = False,
) -> str:
    """Add an execution that goes on from a checkpoint beside its origin. It owns no cell, so no matrix changes.

    Args:
        database: The database that the origin is in.
        ref: The origin's id, or the beginning of it.
        bound: The sweep's code.
        at: A checkpoint's id, or a node; its head by default.
        set: Other values by key of the state.
        variants: Variant by node, for nodes that follow, in place of the origin's.
        by: Who forks it.
        reason: A reason for people.
        paused: Leave it paused; else it is pending, for the process that runs the sweep.

    Returns:
        The id of the new execution.

    Raises:
        InputError: If something does not fit, or if the origin's cells do not agree on a variant that follows.
    """
    from wtb.display.views.sweeps import find_one

    origin = find_one(database, ref)
    if at is None:
        at = origin["head_id"]
    if at is None:
        raise InputError(f"execution {origin['id']} has not begun: there is nothing to fork from")
    target = find_target(database, origin, at)
    changes = checked_changes(bound, set or {})
    check_reach(database, bound, target.id, changes)
    return insert_fork(
        database,
        origin,
        target.id,
        choices=_choices(database, origin, bound, target, variants or {}),
        changes=changes,
        queue=queue_of(bound.workflow, target.next),
        by=by,
        reason=reason,
        paused=paused,
    )


def _choices(
    database: Database, origin: Row, bound: Bound, target: Target, variants: Mapping[str, str]
) -> dict[str, str]:
    """The variants of a fork: its origin's, where all its cells agree, and those that are asked for."""
    nodes = bound.workflow.nodes
    following = reachable(successors(bound.workflow), target.next) & nodes.keys()
    problems = []
    for node, variant in variants.items():
        if node not in nodes:
            problems.append(f"--variant: the workflow has no node {node!r}{meant_or_known(node, nodes)}")
        elif variant not in nodes[node].variants:
            known = meant_or_known(variant, nodes[node].variants)
            problems.append(f"--variant: node {node!r} has no variant {variant!r}{known}")
        elif node not in following:
            names = ", ".join(name for name in nodes if name in following) or "none"
            problems.append(f"--variant: node {node!r} does not run after {target.words} (what does: {names})")
    every = queries.choices(database, origin["sweep_id"])
    chosen: Sequence[Mapping[str, str]] = [origin["choices"]] if origin["choices"] is not None else []
    chosen = chosen or [every[number] for number in origin["combinations"]]
    same = agreed(chosen)
    for node in following - same.keys() - variants.keys():
        of = sorted({one[node] for one in chosen if node in one})
        if of:
            names = ", ".join(of)
            problems.append(
                f"the cells of execution {origin['id']} choose {names} for node {node!r}: pick one of them "
                f"with --variant {node}={of[0]}"
            )
    if problems:
        raise InputError(*sorted(problems))
    return {**same, **variants}
