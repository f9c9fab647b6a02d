"""Identities and permissions of clients, by the token or the cookie of a request."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from fastapi import Depends, Request
from starlette.exceptions import HTTPException
from starlette.types import Scope

from wtb.core.errors import AccessDenied
from wtb.core.roles import other_maker
from wtb.hosting.api.provider_settings import Person
from wtb.hosting.api.threads import run_quickly
from wtb.operations.auditing import note_refusal, noting
from wtb.operations.context import Context
from wtb.operations.identity import (
    OPERATOR,
    Follower,
    Identity,
    Method,
    digest_of,
    identity_of_user,
    narrowed,
    still_reading,
)
from wtb.operations.registry import Permission
from wtb.store.access import users
from wtb.store.access.audit import Origin
from wtb.store.tables.access import TokenRow

_BYTES = 20  # 160 random bits


def _add(context: Context, new: users.NewSignIn) -> None:
    with noting(context, "sign-in", kind=new.kind):
        users.add_sign_in(context.database, new)


def address_of(scope: Scope) -> str | None:
    """Return the address of a request's client; None if there is none, as on a Unix socket."""
    client = scope.get("client")
    return None if client is None else str(client[0])


def origin_of(request: Request, via: str) -> Origin:
    """Return the origin of a request for the audit log. `via` is its method and route."""
    return Origin(via, address_of(request.scope), request.state.identity.token)


def needing(permission: Permission) -> Any:
    """Return the dependency that rejects requests without a permission, before their arguments are checked."""

    async def check(request: Request) -> None:
        identity: Identity = request.state.identity
        if refusal := identity.refusal(permission):
            raise HTTPException(HTTPStatus.FORBIDDEN, refusal)

    return Depends(check)


class Identities:
    """The identities that a server accepts: by its own token, by tokens of the database, and by cookies."""

    def __init__(self, context: Context, token: str) -> None:
        """Make it.

        Args:
            context: The context with the database of the tokens.
            token: The server's own token.
        """
        self._context = context
        self._own = hashlib.sha256(token.encode()).hexdigest()

    async def find(self, authorization: str) -> Identity | None:
        """Return the identity of a header `Authorization`; None if it is invalid.

        Raises:
            StoreError: If the database cannot be read.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return None
        if self._is_own(digest_of(token)):
            return OPERATOR
        row = await run_quickly(users.use_token, self._context.database, digest_of(token))
        return None if row is None else await run_quickly(self._of_token, row)

    async def find_signed_in(self, cookie: str) -> Identity | None:
        """Return the identity of a cookie; None if it is no longer valid.

        Raises:
            StoreError: If the database cannot be read.
        """
        sign_in = await run_quickly(users.use_sign_in, self._context.database, digest_of(cookie))
        if sign_in is None:
            return None
        row, token = sign_in
        if token is not None:
            identity = await run_quickly(self._of_token, token)
            return None if identity is None else replace(identity, method=Method.cookie, digest=row.digest)
        if row.kind == "provider":
            identity = await run_quickly(self._of_person, str(row.name), row.scopes or ())
            return None if identity is None else replace(identity, digest=row.digest)
        # Only under the token by which it was made, so that a new token signs the operator's browsers out.
        return replace(OPERATOR, method=Method.cookie, digest=row.digest) if self._is_own(row.source) else None

    async def sign_in(self, identity: Identity, via: str, address: str | None) -> str:
        """Sign a browser in.

        Args:
            identity: The identity, which has just shown a token or the server's code.
            via: The method and route.
            address: The address of the client.

        Returns:
            The value of its cookie, of which the database keeps a digest.

        Raises:
            StoreError: If the database cannot be written.
        """
        kind, source = ("operator", self._own) if identity.digest is None else ("token", identity.digest)
        cookie = secrets.token_urlsafe(_BYTES)
        context = self._context.noting_for(identity.attribution, Origin(via, address, identity.token))
        await run_quickly(_add, context, users.NewSignIn(kind, digest_of(cookie), source, address))
        return cookie

    async def sign_in_person(self, person: Person, via: str, address: str | None) -> str | None:
        """Sign in a person from a provider, as `sign_in` does; None if the person has no permission."""
        scopes = sorted(person.scopes)
        if await run_quickly(self._of_person, person.name, scopes) is None:
            return None
        cookie = secrets.token_urlsafe(_BYTES)
        new = users.NewSignIn("provider", digest_of(cookie), person.subject, address, person.name, scopes)
        await run_quickly(_add, self._context.noting_for(person.name, Origin(via, address)), new)
        return cookie

    async def note_failure(self, via: str, address: str | None) -> None:
        """Record that a client sent an invalid code, token or cookie.

        Args:
            via: The method and route.
            address: The address of the client.
        """
        context = self._context.noting_for("unknown", Origin(via, address))
        await run_quickly(note_refusal, context, "sign-in", AccessDenied("what was shown is of no use"))

    async def sign_out(self, cookie: str, via: str, address: str | None) -> None:
        """Revoke a cookie.

        Args:
            cookie: Its value.
            via: The method and route.
            address: The address of the client.

        Raises:
            StoreError: If the database cannot be written.
        """
        identity = await self.find_signed_in(cookie)
        if identity is None:
            return
        context = self._context.noting_for(identity.attribution, Origin(via, address, identity.token))

        def end() -> None:
            with noting(context, "sign-out"):
                users.end_sign_in(context.database, digest_of(cookie))

        await run_quickly(end)

    async def still_active(self, followers: Collection[Follower]) -> set[Follower]:
        """Return the followers who may still follow: their token or cookie is valid, and their roles suffice."""
        return await run_quickly(self._still_active, followers)

    def _still_active(self, followers: Collection[Follower]) -> set[Follower]:
        database, digests = self._context.database, {follower.digest for follower in followers}
        active = users.active_digests(database, digests) | users.active_sign_ins(database, digests)
        return still_reading(database, [follower for follower in followers if follower.digest in active])

    def _of_person(self, name: str, scopes: Collection[str]) -> Identity | None:
        """Return the identity of a person from a provider, with the permissions of groups and of roles as a user."""
        user = identity_of_user(self._context.database, name, Method.cookie)
        if user is None and not scopes:
            return None
        everywhere = {Permission(scope): None for scope in scopes}
        by_roles = None if user is None or Permission.read in everywhere else name
        return Identity(name, Method.cookie, {**(user.may if user else {}), **everywhere}, user=by_roles)

    def _is_own(self, digest: str) -> bool:
        # In constant time, so that the duration of a failure shows nothing of the digest.
        return hmac.compare_digest(digest, self._own)

    def _of_token(self, row: TokenRow) -> Identity | None:
        """Return the identity of a token: its scopes in its project, within the permissions of its user, if any."""
        holder = Identity(row.name, Method.token, OPERATOR.may)
        if row.user is not None:
            user = identity_of_user(self._context.database, row.user, Method.token)
            if user is None:
                return None
            holder = user
        made_by = None if row.user is None else other_maker(row.user, row.created_by)
        narrow = narrowed(holder, row.scopes, row.project)
        return replace(narrow, token=row.name, digest=row.digest, made_by=made_by)
