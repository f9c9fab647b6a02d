"""Payers: a token with a budget runs nothing that counts against another budget, or against none."""

from __future__ import annotations

from wtb.core.errors import AccessDenied
from wtb.operations.context import Context
from wtb.store.access.budgets import has_budget
from wtb.store.tables.sweeps import SweepRow
from wtb.store.transactions import Scope


def check_payer(context: Context, sweep: SweepRow) -> None:
    """Check that work in a sweep counts against the budget of the actor's token, if it has one.

    A sweep is charged to the token by which it was submitted, so a budget would have no effect on work in other sweeps.

    Raises:
        AccessDenied: It would count against another budget, or none.
    """
    if context.identity.token != sweep.token and (token := _bound(context)) is not None:
        raise AccessDenied(
            f"token {token!r} has a budget, and sweep {sweep.name} ({sweep.id}) was submitted with another one, whose "
            f"budget its further cost would count against. Submit a sweep of your own, or use a token without a budget"
        )


def check_unbound(context: Context, what: str) -> None:
    """Check that an actor does not bypass the budget of their token by an operation that spends without it.

    Args:
        context: The actor, and the database.
        what: The intended operation, as words after "it".

    Raises:
        AccessDenied: Their token has a budget.
    """
    if (token := _bound(context)) is not None:
        raise AccessDenied(
            f"token {token!r} has a budget, so it {what}, because the cost would count against another budget, or "
            f"none. Use a token without a budget"
        )


def _bound(context: Context) -> str | None:
    """Return the actor's token, if it has a budget; without a scope, because a token for all projects is in none."""
    token = context.identity.token
    if token is None or not has_budget(context.database.within(Scope()), token):
        return None
    return token
