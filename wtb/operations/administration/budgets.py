"""Budgets: what a project or session may spend, and what is spent of every budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Amounts
from wtb.core.documents.costs import BudgetDocument
from wtb.core.errors import InputError, meant_or_known
from wtb.execution.runtime.budgets import budget_documents
from wtb.operations.context import Context
from wtb.store.limits import sessions
from wtb.store.limits.budgets import KINDS, set_project
from wtb.store.read import queries


@dataclass(frozen=True)
class Budgets:
    """Budgets of a project or session that were set.

    Attributes:
        project: Whose they are; None if they are a session's.
        session: Whose they are; None if they are a project's.
        limits: The most that may be spent, by kind: usd, tokens or node_runs. None is no limit.
    """

    project: str | None
    session: str | None
    limits: Mapping[str, float | None]


@checked
def set_budgets(
    context: Context, limits: Amounts, *, project: str | None = None, session: str | None = None
) -> Budgets:
    """Give a project or session budgets. Runs under way see it within a second.

    Args:
        context: Where.
        limits: The most that may be spent, by kind: usd, tokens or, of a project, node_runs. None lifts one, those
            left out stay.
        project: Whose budgets.
        session: Whose budgets, in place of a project's.

    Returns:
        What was set.

    Raises:
        InputError: Unless there is one project or session that can have such budgets, and more than what is spent.
    """
    for kind in limits:
        if kind not in KINDS:
            raise InputError(f"there are no budgets of {kind!r}{meant_or_known(kind, KINDS)}")
    sessions.Quota.of(limits)  # the quota of a session takes the same amounts
    if project is not None and session is None:
        _check_project(project)
        set_project(context.database, project, limits)
    elif session is not None and project is None:
        if "node_runs" in limits:
            raise InputError(
                "a session has no budget of node runs; `wtb session change NAME --concurrency N` limits how many it "
                "may do at a time"
            )
        sessions.change_quota(context.database, sessions.find_session(context.database, session).id, limits)
    else:
        raise InputError("a budget is of a project or of a session: name one of them")
    return Budgets(project, session, limits)


@checked
def clear_budgets(context: Context, *, project: str | None = None, session: str | None = None) -> Budgets:
    """Lift all budgets of a project or session. What was spent stays known.

    Args:
        context: Where.
        project: Whose budgets.
        session: Whose budgets, in place of a project's.

    Returns:
        What was lifted: each kind without a limit.

    Raises:
        InputError: Unless one project or session is named, and there is one.
    """
    kinds = KINDS if session is None else [kind for kind in KINDS if kind != "node_runs"]
    return set_budgets(context, dict.fromkeys(kinds), project=project, session=session)


@checked
def list_budgets(context: Context, sweep: str | None = None) -> list[BudgetDocument]:
    """List budgets with what is spent of each, and what attempts that are under way have reserved.

    Args:
        context: Where.
        sweep: Only those that bind this one: its id, the beginning of it, or its name.

    Returns:
        The budgets.

    Raises:
        InputError: If there is no such sweep.
    """
    database = context.database
    return budget_documents(database, None if sweep is None else queries.find_sweep(database, sweep).id)


def _check_project(name: str) -> None:
    """Raises InputError for what a sweep file would refuse, too."""
    if not (0 < len(name.strip()) == len(name) <= 200 and name.isprintable()):
        raise InputError(f"project {name!r}: expected a name of 1 to 200 printable characters")
