"""Budgets: the amounts that a project or session may spend, and what is spent of them."""

from __future__ import annotations

from collections.abc import Mapping

from wtb.core.arguments import Amounts, checked
from wtb.core.documents.plan import BudgetDocument
from wtb.core.errors import InputError, meant_or_known
from wtb.core.frozen import frozen
from wtb.execution.runtime.budgets import budget_documents
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.payers import check_unbound
from wtb.operations.projects import check_name
from wtb.store.access import sessions
from wtb.store.access.budgets import KINDS, set_project, set_token
from wtb.store.read import queries


@frozen
class Budgets:
    """Budgets of a project, session or token that were set.

    Attributes:
        project: Whose they are, if they are a project's.
        session: Whose they are, if they are a session's.
        token: Whose they are, if they are those of a token.
        limits: The most that may be spent, by kind: usd, tokens or node_runs. None is no limit.
    """

    project: str | None
    session: str | None
    token: str | None
    limits: Mapping[str, float | None]


@checked
@audited
def set_budgets(
    context: Context,
    limits: Amounts,
    *,
    project: str | None = None,
    session: str | None = None,
    token: str | None = None,
) -> Budgets:
    """Give a project, session or token budgets. Runs under way see it within a second.

    Args:
        context: Where.
        limits: The most that may be spent, by kind: usd, tokens or, not of a session, node_runs. None lifts one, those
            left out stay.
        project: Whose budgets.
        session: Whose budgets, in place of a project's.
        token: Whose budgets, for what is submitted with it.

    Returns:
        What was set.

    Raises:
        InputError: Unless there is one project, session or token that can have such budgets, of more than is spent.
        AccessDenied: If whoever gives it acts by a token with a budget.
    """
    check_unbound(context, "changes no budgets")
    for kind in limits:
        if kind not in KINDS:
            raise InputError(f"there are no budgets of {kind!r}{meant_or_known(kind, KINDS)}")
    sessions.Quota.of(limits)  # the quota of a session takes the same amounts
    if sum(target is not None for target in (project, session, token)) != 1:
        raise InputError("several owners of a budget are given; expected one of a project, a session and a token")
    if project is not None:
        check_name(project)
        set_project(context.database, project, limits)
    if token is not None:
        set_token(context.database, token, limits)
    if session is not None:
        # A session limits concurrent node runs instead; a budget of both would have two answers.
        if "node_runs" in limits:
            raise InputError(
                "a session has no budget of node runs; `wtb admin session change NAME --concurrency N` limits how many "
                "it may do at a time"
            )
        sessions.change(context.database, sessions.find_session(context.database, session).id, limits)
    return Budgets(project, session, token, limits)


@checked
@audited
def clear_budgets(
    context: Context, *, project: str | None = None, session: str | None = None, token: str | None = None
) -> Budgets:
    """Remove all budgets of a project, session or token. What was spent stays known.

    Args:
        context: Where.
        project: Whose budgets.
        session: Whose budgets, in place of a project's.
        token: Whose budgets.

    Returns:
        What was lifted: each kind without a limit.

    Raises:
        InputError: Unless one project, session or token is named, and there is one.
    """
    kinds = KINDS if session is None else [kind for kind in KINDS if kind != "node_runs"]
    return set_budgets(context, dict.fromkeys(kinds), project=project, session=session, token=token)


@checked
def list_budgets(context: Context, sweep: str | None = None) -> list[BudgetDocument]:
    """List budgets with their spending, and the amounts that running attempts have reserved.

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
