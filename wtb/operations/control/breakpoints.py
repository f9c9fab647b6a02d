"""Breakpoints of a sweep or a single execution: where its executions pause."""

from __future__ import annotations

from collections.abc import Sequence

from wtb.authoring.breakpoints import parse_breakpoints
from wtb.core.arguments.checking import checked
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, meant_or_known
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.payers import check_payer
from wtb.store.control import executions
from wtb.store.read import queries
from wtb.store.read.references import find_target
from wtb.store.tables.sweeps import SweepRow


@frozen
class Breakpoints:
    """The breakpoints of a sweep.

    Attributes:
        sweep: Its id.
        breakpoints: Each as it is written: `[before|after] NODE [if CONDITION]`.
    """

    sweep: str
    breakpoints: tuple[str, ...]


@checked
def list_breakpoints(context: Context, ref: str) -> Breakpoints:
    """List breakpoints, where executions pause.

    Args:
        context: Where.
        ref: A sweep or an execution of it: its id, the beginning of it, or a sweep's name.

    Returns:
        The breakpoints that it has.

    Raises:
        InputError: If there is no such sweep or execution.
    """
    sweep = _sweep(context, ref)
    return Breakpoints(sweep.id, tuple(sweep.breakpoints or ()))


@checked
@audited
def set_breakpoints(
    context: Context, ref: str, *, add: Sequence[str] = (), remove: Sequence[str] = (), clear: bool = False
) -> Breakpoints:
    """Change breakpoints; who runs the sweep sees that within a second.

    Args:
        context: Where, and who changes them.
        ref: A sweep or an execution of it: its id, the beginning of it, or a sweep's name.
        add: `[before|after] NODE [if CONDITION]`.
        remove: As they are listed.
        clear: Remove all that there were.

    Returns:
        The breakpoints that it has then.

    Raises:
        InputError: For a breakpoint that is not there, or that its workflow cannot have.
        AccessDenied: If whoever removes one acts by a token with a budget, with which the sweep was not submitted.
    """
    database, sweep = context.database, _sweep(context, ref)
    graph = queries.workflow_graph(database, sweep.workflow_id)
    nodes = [node["name"] for node in graph["nodes"]]
    before = list(sweep.breakpoints or ())
    removed = [str(place) for place in parse_breakpoints(remove, nodes)]
    for text in removed:
        if text not in before:
            raise InputError(f"there is no breakpoint {text!r}{meant_or_known(text, before) if before else ''}")
    remaining = [] if clear else [text for text in before if text not in removed]
    texts = [str(place) for place in parse_breakpoints([*remaining, *add], nodes, list(graph["state"]))]
    if not set(before) <= set(texts):  # what stops there now goes on, and spends
        check_payer(context, sweep)
    if texts != before:
        if sweep.status == "cancelled":
            raise InputError(f"sweep {sweep.id} is cancelled: nothing of it runs any more")
        executions.set_breakpoints(database, sweep.id, texts, by=context.by)
    return Breakpoints(sweep.id, tuple(texts))


def _sweep(context: Context, ref: str) -> SweepRow:
    """Return the sweep that is meant, or that an execution is of."""
    target = find_target(context.database, ref)
    return queries.find_sweep(context.database, target.row.sweep_id) if target.kind == "execution" else target.row
