"""Signing in and out: a browser exchanges a code or a token for a cookie, and uses that from then on."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Body, Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from wtb.core.errors import WTBError
from wtb.hosting.api import cookies
from wtb.hosting.api.guard import Doors, OneTimeCode, failed_too_often
from wtb.hosting.api.identities import Identities, address_of
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.routes import AT_PROVIDER, FROM_PROVIDER, PREFIX, SIGN_IN
from wtb.operations.identity import OPERATOR, Identity
from wtb.store.access.users import MOST_S

if TYPE_CHECKING:
    from wtb.hosting.api.provider import Provider

_log = logging.getLogger("wtb")
_NOT_KEPT = {"Cache-Control": "no-store"}


class SignedIn(TypedDict):
    """The identity of a browser.

    Attributes:
        name: The name in events; null for the operator, and if nobody is signed in.
        scopes: The permissions.
        csrf: The value of `X-CSRF-Token` for requests that change something; null if nobody is signed in.
        provider: The provider for signing in; null if there is none.
        runs: Whether the server itself runs sweeps that no workers run.
    """

    name: str | None
    scopes: list[str]
    csrf: str | None
    provider: str | None
    runs: bool


def router(identities: Identities, doors: Doors, *, runs: bool) -> APIRouter:
    """Return the routes by which browsers sign in and out, which need no identity.

    Args:
        identities: The identities.
        doors: The ways to sign in.
        runs: Whether the server itself runs sweeps that no workers run.
    """
    routes = APIRouter(prefix=PREFIX, tags=["sign-in"])

    @routes.get(SIGN_IN, summary="Show which user the browser is signed in as.", response_model=SignedIn)
    async def show(request: Request) -> Response:
        cookie = cookies.cookie_of(request.scope)
        identity = None if cookie is None else await identities.find_signed_in(cookie)
        return _signed_in(identity, cookie, doors.provider, runs)

    @routes.post(SIGN_IN, summary="Exchange a code or a token for a cookie.", response_model=SignedIn)
    async def begin(
        request: Request,
        code: Annotated[str | None, Body(embed=True)] = None,
        token: Annotated[str | None, Body(embed=True)] = None,
    ) -> Response:
        if foreign := cookies.foreign_origin(request.scope):
            return Problem(HTTPStatus.FORBIDDEN, foreign)
        if (code is None) == (token is None):
            return Problem(HTTPStatus.BAD_REQUEST, "expected either a code or a token")
        address = address_of(request.scope)
        identity = await _identify(identities, doors.code, code, token)
        if identity is None:
            detail = f"the {'code' if token is None else 'token'} is of no use: it is wrong, or of no more use"
            often = failed_too_often(doors, request.scope, token or code or "")
            return often or await _failed(identities, _via(request), address, detail)
        cookie = await identities.sign_in(identity, _via(request), address)
        response = _signed_in(identity, cookie, doors.provider, runs)
        response.headers.append("Set-Cookie", cookies.set_cookie(request.scope, cookie, MOST_S))
        return response

    @routes.delete(SIGN_IN, summary="Sign out.", status_code=HTTPStatus.NO_CONTENT, response_model=None)
    async def end(request: Request) -> Response:
        cookie = cookies.cookie_of(request.scope)
        if cookie is not None:
            if forged := cookies.forgery(request.scope, cookie):
                return Problem(HTTPStatus.FORBIDDEN, forged)
            await identities.sign_out(cookie, _via(request), address_of(request.scope))
        response = Response(status_code=HTTPStatus.NO_CONTENT, headers=_NOT_KEPT)
        response.headers.append("Set-Cookie", cookies.set_cookie(request.scope, "", 0))
        return response

    return routes


def provider_router(identities: Identities, provider: Provider) -> APIRouter:
    """Return the routes by which a browser goes to a provider and comes back.

    Args:
        identities: The identities.
        provider: The provider.
    """
    routes = APIRouter(prefix=PREFIX, tags=["sign-in"])

    @routes.get(AT_PROVIDER, summary="Go to the provider to sign in.", response_model=None)
    async def go(request: Request) -> Response:
        flow = cookies.new_flow()
        try:
            response = _to(await provider.address(flow))
        except WTBError as error:
            _log.warning("nobody was signed in: %s", error)
            return _to("/#sign-in=failed")
        flow_cookie = cookies.set_cookie(request.scope, flow.as_cookie(), cookies.LASTS_S, cookies.AT_PROVIDER)
        response.headers.append("Set-Cookie", flow_cookie)
        return response

    @routes.get(FROM_PROVIDER, summary="Come back from the provider.", response_model=None)
    async def come_back(request: Request) -> Response:
        flow_cookie = cookies.cookie_of(request.scope, cookies.AT_PROVIDER)
        try:
            person = await provider.person(cookies.flow_of(flow_cookie), dict(request.query_params))
        except WTBError as error:
            # The message goes to the log only: anyone can make up such an address, and its text must not show on a
            # page.
            _log.warning("nobody was signed in: %s", error)
            response = _to("/#sign-in=failed")
        else:
            via = f"GET {PREFIX}{FROM_PROVIDER}"
            cookie = await identities.sign_in_person(person, via, address_of(request.scope))
            response = _to("/#sign-in=not-allowed" if cookie is None else "/")
            if cookie is not None:
                response.headers.append("Set-Cookie", cookies.set_cookie(request.scope, cookie, MOST_S))
        # Deleted in either case: the secrets of a sign-in serve once.
        response.headers.append("Set-Cookie", cookies.set_cookie(request.scope, "", 0, cookies.AT_PROVIDER))
        return response

    return routes


async def _failed(identities: Identities, via: str, address: str | None, detail: str) -> Problem:
    """Return the response to invalid credentials, which are recorded in the audit log."""
    await identities.note_failure(via, address)
    return Problem(HTTPStatus.UNAUTHORIZED, detail)


async def _identify(
    identities: Identities, one_time_code: OneTimeCode, code: str | None, token: str | None
) -> Identity | None:
    """Return the identity of a code or a token; None if it is invalid."""
    if code is not None:
        return OPERATOR if one_time_code.take(code) else None
    return await identities.find(f"Bearer {token}")


def _to(address: str) -> Response:
    """Redirect the browser, without a referrer."""
    headers = {**_NOT_KEPT, "Location": address, "Referrer-Policy": "no-referrer"}
    return Response(status_code=HTTPStatus.SEE_OTHER, headers=headers)


def _via(request: Request) -> str:
    return f"{request.method} {PREFIX}{SIGN_IN}"


def _signed_in(identity: Identity | None, cookie: str | None, provider: Provider | None, runs: bool) -> JSONResponse:
    signed: SignedIn = {
        "name": identity.name if identity else None,
        "scopes": sorted(identity.may) if identity else [],
        "csrf": cookies.csrf_token(cookie) if identity and cookie else None,
        "provider": provider.name if provider else None,
        "runs": runs,
    }
    return JSONResponse(signed, headers=_NOT_KEPT)
