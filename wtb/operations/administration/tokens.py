"""Tokens: who may ask a server, and for what."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence

from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Amounts, Seconds
from wtb.core.documents.administration import NewTokenDocument, TokenDocument, TokenState
from wtb.core.errors import InputError, did_you_mean, meant_or_known
from wtb.core.serialization.plain_json import iso
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.payers import check_unbound
from wtb.operations.registry import Permission
from wtb.store.access import tokens as store
from wtb.store.limits.budgets import KINDS, Key, create_budgets
from wtb.store.limits.sessions import NAMES, Quota, is_name
from wtb.store.tables.access import TokenRow

PREFIX = "wtb_"  # by which programs that look for secrets in files know it
_BYTES = 20  # 160 random bits


@checked
@audited
def create_token(
    context: Context,
    name: str,
    *,
    scopes: Sequence[str] = ("read",),
    project: str | None = None,
    user: str | None = None,
    budget: Amounts | None = None,
    expires_s: Seconds | None = None,
) -> NewTokenDocument:
    """Make a token, by which its holder may ask a server. The database keeps a digest of it.

    Args:
        context: Where.
        name: What events and lists call it: 1 to 64 letters, digits, `.`, `_` or `-`. No two have one name, ever.
        scopes: What its holder may do: read, submit, steer, answer, administer. None of them implies another.
        project: All that it is good for; by default the only one of who acts, else all projects.
        user: Whose roles bound it, for as long as they have them; by default nobody's.
        budget: The most that what is submitted with it may spend, by kind: usd, tokens or node_runs.
        expires_s: Seconds from now on until it is of no more use; by default for ever.

    Returns:
        Its document, and the token, which is shown nowhere else.

    Raises:
        InputError: For a bad name, an unknown scope, project or user, no scope, or more than whoever makes it may do.
        ConflictError: If there is, or was, one of this name.
        AccessDenied: If whoever makes it acts by a token with a budget.
    """
    if not is_name(name):
        raise InputError(f"{name!r} cannot be the name of a token; expected {NAMES}", argument="name")
    check_unbound(context, "makes no tokens")
    token = PREFIX + secrets.token_urlsafe(_BYTES)
    limits = _limits(name, budget or {})
    where = _project(context, project)
    new = store.NewToken(name, digest_of(token), _scopes(scopes), context.by, where, user, expires_s)
    _check_allowed(context, new)
    row = store.create_token(context.database, new, lambda connection: create_budgets(connection, limits))
    return {"token": token, **_document(row)}


@checked
def list_tokens(context: Context) -> list[TokenDocument]:
    """List tokens with what their holders may do, and when they were used.

    Args:
        context: Where they are.

    Returns:
        A document for each, the newest first; the tokens themselves are known to their holders alone.
    """
    expired = store.expired_tokens(context.database)
    return [_document(row, has_expired=row.id in expired) for row in store.list_tokens(context.database)]


@checked
@audited
def revoke_token(context: Context, name: str) -> TokenDocument:
    """Let a token be of no more use; what it has open ends within a second.

    Args:
        context: Where it is.
        name: Its name.

    Returns:
        Its document.

    Raises:
        InputError: If there is none of this name.
    """
    return _document(store.revoke_token(context.database, name))


def digest_of(token: str) -> str:
    """Return what is kept of a token. It is random throughout, so a quick function does."""
    return hashlib.sha256(token.encode()).hexdigest()


def _scopes(scopes: Sequence[str]) -> list[str]:
    permissions = [str(permission) for permission in Permission]
    for scope in scopes:
        if scope not in permissions:
            near = did_you_mean(scope, permissions)
            raise InputError(f"{scope!r} is not a scope{near} (they are: {', '.join(permissions)})", argument="scopes")
    if not scopes:
        raise InputError(f"there is no scope; expected some of: {', '.join(permissions)}", argument="scopes")
    return [scope for scope in permissions if scope in scopes]


def _project(context: Context, project: str | None) -> str | None:
    mine = context.database.scope.projects
    return project if mine is None else context.project_name(project)


def _limits(name: str, budget: Mapping[str, float | None]) -> dict[Key, float | None]:
    for kind in budget:
        if kind not in KINDS:
            raise InputError(f"there are no budgets of {kind!r}{meant_or_known(kind, KINDS)}", argument="budget")
    Quota.of(budget)  # the quota of a session takes the same amounts
    return {("token", name, "", kind): amount for kind, amount in budget.items()}


def _check_allowed(context: Context, new: store.NewToken) -> None:
    """Raises InputError where a token would let its holder do more than whoever makes it may do."""
    for scope in new.scopes:
        if not context.identity.allows(Permission(scope), new.project):
            raise InputError(f"a token that may {scope} there would let its holder do more than you may do")


def _document(row: TokenRow, *, has_expired: bool = False) -> TokenDocument:
    state: TokenState = "active"
    if row.revoked_at is not None:
        state = "revoked"
    elif has_expired:
        state = "expired"
    return {
        "name": row.name,
        "state": state,
        "scopes": list(row.scopes),
        "project": row.project,
        "user": row.user,
        "created_at": str(iso(row.created_at)),
        "created_by": row.created_by,
        "expires_at": iso(row.expires_at),
        "used_at": iso(row.used_at),
        "revoked_at": iso(row.revoked_at),
    }
