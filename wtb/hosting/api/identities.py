"""Who asks, by the token or the cookie of a request, and what they may do."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass

from wtb.hosting.api.threads import run_quickly
from wtb.operations.administration.tokens import digest_of
from wtb.operations.context import Context
from wtb.operations.registry import Permission
from wtb.store.access.sign_ins import active_sign_ins, add_sign_in, end_sign_in, use_sign_in
from wtb.store.control.tokens import active_digests, use_token

_BYTES = 20  # 160 random bits


@dataclass(frozen=True)
class Identity:
    """Who asks.

    Attributes:
        name: What events call them; None for whoever has the server's own token, who is the operator.
        scopes: What they may do.
        digest: Of their token, if it is one of the database's, or of their cookie: when that is of no more use, what
            they have open ends.
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
    """Who may ask a server: whoever has its own token, those whose tokens the database knows, and their browsers."""

    def __init__(self, context: Context, token: str) -> None:
        """Make it.

        Args:
            context: Where the others' tokens are.
            token: The server's own.
        """
        self._context = context
        self._own = hashlib.sha256(token.encode()).hexdigest()

    async def find(self, authorization: str) -> Identity | None:
        """Return who sent a header `Authorization`, or None if that is nobody.

        Raises:
            StoreError: If the database cannot be read.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return None
        if self._is_own(digest_of(token)):
            return Identity(None, frozenset(Permission))
        row = await run_quickly(use_token, self._context.database, digest_of(token))
        return None if row is None else Identity(row.name, frozenset(row.scopes), row.digest)

    async def find_signed_in(self, cookie: str) -> Identity | None:
        """Return whose browser sent a cookie, or None if it is nobody's any more.

        Raises:
            StoreError: If the database cannot be read.
        """
        found = await run_quickly(use_sign_in, self._context.database, digest_of(cookie))
        if found is None:
            return None
        row, name, scopes = found
        if row.kind == "token":
            return Identity(name, frozenset(scopes), row.digest)
        return Identity(None, frozenset(Permission), row.digest) if self._is_own(row.source) else None

    async def sign_in(self, identity: Identity, address: str | None) -> str:
        """Sign a browser in.

        Args:
            identity: Whoever has just shown that they have a token, or the server's code.
            address: From where.

        Returns:
            What its cookie is to say; the database keeps a digest of it.

        Raises:
            StoreError: If the database cannot be written.
        """
        cookie = secrets.token_urlsafe(_BYTES)
        kind, source = ("operator", self._own) if identity.digest is None else ("token", identity.digest)
        await run_quickly(add_sign_in, self._context.database, kind, digest_of(cookie), source, address)
        return cookie

    async def sign_out(self, cookie: str) -> None:
        """Let a cookie be of no more use.

        Raises:
            StoreError: If the database cannot be written.
        """
        await run_quickly(end_sign_in, self._context.database, digest_of(cookie))

    async def still_active(self, digests: Collection[str]) -> set[str]:
        """Return those of some digests that are still of use, whether of tokens or of cookies."""
        return await run_quickly(self._still_active, digests)

    def _still_active(self, digests: Collection[str]) -> set[str]:
        database = self._context.database
        return active_digests(database, digests) | active_sign_ins(database, digests)

    def _is_own(self, digest: str) -> bool:
        return hmac.compare_digest(digest, self._own)
