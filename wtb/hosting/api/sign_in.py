"""Signing in and out: a browser exchanges a code or a token for a cookie, and asks by that from then on."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Body, Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from wtb.hosting.access.codes import OneTimeCode
from wtb.hosting.access.cookies import cookie_of, csrf_token, foreign_origin, forgery, set_cookie
from wtb.hosting.api.identities import Identities, address_of
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.routes import PREFIX, SIGN_IN
from wtb.operations.identity import OPERATOR, Identity
from wtb.store.access.sign_ins import MOST_S

_NOT_KEPT = {"Cache-Control": "no-store"}


class SignedIn(TypedDict):
    """Who a browser is signed in as.

    name: What events call them; null for the operator, and for nobody.
    scopes: What they may do.
    csrf: What their pages send as `X-CSRF-Token` with requests that change something; null if nobody is signed in.
    """

    name: str | None
    scopes: list[str]
    csrf: str | None


def router(identities: Identities, code: OneTimeCode) -> APIRouter:
    """Return the requests by which browsers sign in and out. They take no identity: they are how one is got.

    Args:
        identities: Who may ask.
        code: That of whoever started the server.
    """
    routes = APIRouter(prefix=PREFIX, tags=["sign-in"])

    @routes.get(SIGN_IN, summary="Say who the browser is signed in as.", response_model=SignedIn)
    async def show(request: Request) -> Response:
        cookie = cookie_of(request.scope)
        identity = None if cookie is None else await identities.find_signed_in(cookie)
        return _signed_in(identity, cookie)

    @routes.post(SIGN_IN, summary="Exchange a code or a token for a cookie.", response_model=SignedIn)
    async def begin(
        request: Request,
        code_: Annotated[str | None, Body(alias="code", embed=True)] = None,
        token: Annotated[str | None, Body(embed=True)] = None,
    ) -> Response:
        if foreign := foreign_origin(request.scope):
            return Problem(HTTPStatus.FORBIDDEN, foreign)
        if (code_ is None) == (token is None):
            return Problem(HTTPStatus.BAD_REQUEST, "expected either a code or a token")
        if code_ is not None:
            identity = OPERATOR if code.take(code_) else None
        else:
            identity = await identities.find(f"Bearer {token}")
        if identity is None:
            what = "token" if code_ is None else "code"
            return Problem(HTTPStatus.UNAUTHORIZED, f"the {what} is of no use: it is wrong, or of no more use")
        cookie = await identities.sign_in(identity, _via(request), address_of(request.scope))
        response = _signed_in(identity, cookie)
        response.headers.append("Set-Cookie", set_cookie(request.scope, cookie, MOST_S))
        return response

    @routes.delete(SIGN_IN, summary="Sign out.", status_code=HTTPStatus.NO_CONTENT, response_model=None)
    async def end(request: Request) -> Response:
        cookie = cookie_of(request.scope)
        if cookie is not None:
            if forged := forgery(request.scope, cookie):
                return Problem(HTTPStatus.FORBIDDEN, forged)
            await identities.sign_out(cookie, _via(request), address_of(request.scope))
        response = Response(status_code=HTTPStatus.NO_CONTENT, headers=_NOT_KEPT)
        response.headers.append("Set-Cookie", set_cookie(request.scope, "", 0))
        return response

    return routes


def _via(request: Request) -> str:
    return f"{request.method} {PREFIX}{SIGN_IN}"


def _signed_in(identity: Identity | None, cookie: str | None) -> JSONResponse:
    if identity is None or cookie is None:
        nobody: SignedIn = {"name": None, "scopes": [], "csrf": None}
        return JSONResponse(nobody, headers=_NOT_KEPT)
    signed: SignedIn = {"name": identity.name, "scopes": sorted(identity.may), "csrf": csrf_token(cookie)}
    return JSONResponse(signed, headers=_NOT_KEPT)
