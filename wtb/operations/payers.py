"""Who pays: a token with a budget has nothing run that would count against another budget, or against none."""

from __future__ import annotations

from wtb.core.errors import AccessDenied
from wtb.operations.context import Context
from wtb.store.limits.budgets import has_budget
from wtb.store.tables.sweeps import SweepRow
from wtb.store.transactions import Scope


def check_payer(context: Context, sweep: SweepRow) -> None:
    """Check that what somebody has run in a sweep counts against the budget of their token, if it has one.

    What a sweep spends is charged to the token by which it was submitted, so with another sweep a budget would be
    none.

    Raises:
        AccessDenied: If it would not.
    """
    if context.identity.token != sweep.token and (token := _bound(context)) is not None:
        raise AccessDenied(
            f"token {token!r} has a budget, and sweep {sweep.name} ({sweep.id}) was not submitted with it: what more "
            f"it runs would count against another one. Submit a sweep of your own, or use a token without a budget"
        )


def check_unbound(context: Context, what: str) -> None:
    """Check that nobody gets round the budget of their token by something that spends, or lets spend, without it.

    Args:
        context: Who acts, and where.
        what: What they are about to do, as words after "it".

    Raises:
        AccessDenied: If their token has a budget.
    """
    if (token := _bound(context)) is not None:
        raise AccessDenied(
            f"token {token!r} has a budget, so it {what}: what comes of that would count against another one, or none. "
            f"Use a token without a budget"
        )


def _bound(context: Context) -> str | None:
    """Return the token of who acts, if it has a budget: one that is for all projects is seen in none by itself."""
    token = context.identity.token
    if token is None or not has_budget(context.database.within(Scope()), token):
        return None
    return token
