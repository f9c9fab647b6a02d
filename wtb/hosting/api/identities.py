"""Who asks, by the token or the cookie of a request, and what they may do."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from dataclasses import replace

from starlette.requests import Request
from starlette.types import Scope

from wtb.core.access.attribution import other_maker
from wtb.core.errors import AccessDenied
from wtb.hosting.access.settings import Person
from wtb.hosting.api.threads import run_quickly
from wtb.operations.administration.access import identity_of_user, narrowed, still_reading
from wtb.operations.administration.tokens import digest_of
from wtb.operations.auditing import note_refusal, noting
from wtb.operations.context import Context
from wtb.operations.identity import OPERATOR, Follower, Identity, Method
from wtb.operations.registry import Permission
from wtb.store.access.audit import Origin
from wtb.store.access.sign_ins import NewSignIn, active_sign_ins, add_sign_in, end_sign_in, use_sign_in
from wtb.store.access.tokens import active_digests, use_token
from wtb.store.tables.access import TokenRow

_BYTES = 20  # 160 random bits


def _add(context: Context, new: NewSignIn) -> None:
    with noting(context, "sign-in", kind=new.kind):
        add_sign_in(context.database, new)


def address_of(scope: Scope) -> str | None:
    """Return the address that a request comes from; None where there is none, as on a socket of this machine."""
    client = scope.get("client")
    return None if client is None else str(client[0])


def origin_of(request: Request, via: str) -> Origin:
    """Return where a request comes from, as the audit log has it. via: its method and route."""
    return Origin(via, address_of(request.scope), request.state.identity.token)


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
            return OPERATOR
        row = await run_quickly(use_token, self._context.database, digest_of(token))
        return None if row is None else await run_quickly(self._of_token, row)

    async def find_signed_in(self, cookie: str) -> Identity | None:
        """Return whose browser sent a cookie, or None if it is nobody's any more.

        Raises:
            StoreError: If the database cannot be read.
        """
        found = await run_quickly(use_sign_in, self._context.database, digest_of(cookie))
        if found is None:
            return None
        row, token = found
        if token is not None:
            identity = await run_quickly(self._of_token, token)
            return None if identity is None else replace(identity, method=Method.cookie, digest=row.digest)
        if row.kind == "provider":
            identity = await run_quickly(self._of_person, str(row.name), row.scopes or ())
            return None if identity is None else replace(identity, digest=row.digest)
        return replace(OPERATOR, method=Method.cookie, digest=row.digest) if self._is_own(row.source) else None

    async def sign_in(self, identity: Identity, via: str, address: str | None) -> str:
        """Sign a browser in.

        Args:
            identity: Whoever has just shown that they have a token, or the server's code.
            via: How.
            address: From where.

        Returns:
            What its cookie is to say; the database keeps a digest of it.

        Raises:
            StoreError: If the database cannot be written.
        """
        kind, source = ("operator", self._own) if identity.digest is None else ("token", identity.digest)
        cookie = secrets.token_urlsafe(_BYTES)
        context = self._context.noting_for(identity.attribution, Origin(via, address, identity.token))
        await run_quickly(_add, context, NewSignIn(kind, digest_of(cookie), source, address))
        return cookie

    async def sign_in_person(self, person: Person, via: str, address: str | None) -> str | None:
        """Sign in whom a provider knows, as `sign_in` does; None if they may do nothing here."""
        scopes = sorted(person.scopes)
        if await run_quickly(self._of_person, person.name, scopes) is None:
            return None
        cookie = secrets.token_urlsafe(_BYTES)
        new = NewSignIn("provider", digest_of(cookie), person.subject, address, person.name, scopes)
        await run_quickly(_add, self._context.noting_for(person.name, Origin(via, address)), new)
        return cookie

    async def note_failure(self, via: str, address: str | None) -> None:
        """Note that somebody showed a code, a token or a cookie that is of no use.

        Args:
            via: How.
            address: From where.
        """
        context = self._context.noting_for("unknown", Origin(via, address))
        await run_quickly(note_refusal, context, "sign-in", AccessDenied("what was shown is of no use"))

    async def sign_out(self, cookie: str, via: str, address: str | None) -> None:
        """Let a cookie be of no more use.

        Args:
            cookie: What it says.
            via: How they sign out.
            address: From where.

        Raises:
            StoreError: If the database cannot be written.
        """
        identity = await self.find_signed_in(cookie)
        if identity is None:
            return
        context = self._context.noting_for(identity.attribution, Origin(via, address, identity.token))

        def end() -> None:
            with noting(context, "sign-out"):
                end_sign_in(context.database, digest_of(cookie))

        await run_quickly(end)

    async def still_active(self, followers: Collection[Follower]) -> set[Follower]:
        """Return those who may still follow: their token or cookie is of use, and their roles are as good as before."""
        return await run_quickly(self._still_active, followers)

    def _still_active(self, followers: Collection[Follower]) -> set[Follower]:
        database, digests = self._context.database, {one.digest for one in followers}
        active = active_digests(database, digests) | active_sign_ins(database, digests)
        return still_reading(database, [one for one in followers if one.digest in active])

    def _of_person(self, name: str, scopes: Collection[str]) -> Identity | None:
        """Return what somebody may do whom a provider knows: what their groups let them, and their roles as a user."""
        user = identity_of_user(self._context.database, name, Method.cookie)
        if user is None and not scopes:
            return None
        everywhere = {Permission(scope): None for scope in scopes}
        by_roles = None if user is None or Permission.read in everywhere else name
        return Identity(name, Method.cookie, {**(user.may if user else {}), **everywhere}, user=by_roles)

    def _is_own(self, digest: str) -> bool:
        return hmac.compare_digest(digest, self._own)

    def _of_token(self, row: TokenRow) -> Identity | None:
        """Return what a token is good for: its scopes in its project, of what its user may do if it has one."""
        holder = Identity(row.name, Method.token, OPERATOR.may)
        if row.user is not None:
            user = identity_of_user(self._context.database, row.user, Method.token)
            if user is None:
                return None
            holder = user
        made_by = None if row.user is None else other_maker(row.user, row.created_by)
        narrow = narrowed(holder, row.scopes, row.project)
        return replace(narrow, token=row.name, digest=row.digest, made_by=made_by)
