"""Who asks, by the token of a request, and what they may do."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from dataclasses import dataclass

from wtb.hosting.api.threads import run_quickly
from wtb.operations.administration.tokens import digest_of
from wtb.operations.context import Context
from wtb.operations.registry import Permission
from wtb.store.control.tokens import active_digests, use_token


@dataclass(frozen=True)
class Identity:
    """Who asks.

    Attributes:
        name: What events call them; None for whoever has the server's own token, who is the operator.
        scopes: What they may do.
        digest: Of their token, if it is one of the database's.
    """

    name: str | None
    scopes: frozenset[str]
    digest: str | None = None

    def refusal(self, needed: Permission) -> str | None:
        """Return why they may not do something; None if they may."""
        if needed in self.scopes:
            return None
        return f"token {self.name!r} may {', '.join(sorted(self.scopes))}; this takes one with the scope {needed}"

    def acting_in(self, context: Context) -> Context:
        """Return a context in which they are who acts."""
        return context if self.name is None else context.acting_as(self.name)


class Identities:
    """Who may ask a server: whoever has its own token, and those whose tokens the database knows."""

    def __init__(self, context: Context, token: str) -> None:
        """Make it.

        Args:
            context: Where the others' tokens are.
            token: The server's own.
        """
        self._context = context
        self._own = hashlib.sha256(token.encode()).digest()

    async def find(self, authorization: str) -> Identity | None:
        """Return who sent a header `Authorization`, or None if that is nobody.

        Raises:
            StoreError: If the database cannot be read.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return None
        if hmac.compare_digest(hashlib.sha256(token.encode()).digest(), self._own):
            return Identity(None, frozenset(Permission))
        row = await run_quickly(use_token, self._context.database, digest_of(token))
        return None if row is None else Identity(row.name, frozenset(row.scopes), row.digest)

    async def still_active(self, digests: Collection[str]) -> set[str]:
        """Return those of some digests whose tokens were neither revoked nor have expired."""
        return await run_quickly(active_digests, self._context.database, digests)
