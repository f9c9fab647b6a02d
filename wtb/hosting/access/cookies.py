"""Cookies that say who asks, and what tells requests of the server's own pages from those of others.

Browsers send cookies whoever made the page that asks. So a request that a cookie speaks for has to come from a page of
this server, by its `Origin`; and one that changes something carries a header as well, whose value only such a page can
know, and which no page of elsewhere can send without being asked first.

Source: OWASP Cross-Site Request Forgery Prevention Cheat Sheet; RFC 6265bis for names that begin with `__Host-`.
"""

from __future__ import annotations

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers
from starlette.types import Scope

from wtb.core.classes.frozen import frozen

CSRF_HEADER = "X-CSRF-Token"
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_SECURE = frozenset({"https", "wss"})


def is_secure(scope: Scope) -> bool:
    """Return whether a request came by TLS, to this server or to a proxy that it believes."""
    return scope.get("scheme") in _SECURE


@frozen
class Cookie:
    """A cookie of this server.

    Attributes:
        ending: What its name ends with.
        same_site: What of other sites it is sent with: nothing (`Strict`), or links and redirects as well (`Lax`).
    """

    ending: str
    same_site: str

    def name(self, scope: Scope) -> str:
        """Return its name; without TLS it has the port, since all servers of a host share their cookies."""
        if is_secure(scope):
            return f"__Host-wtb{self.ending}"
        _, port = scope.get("server") or ("", 0)
        return f"wtb-{port}{self.ending}"


SIGNED_IN = Cookie("", "Strict")
AT_PROVIDER = Cookie("-provider", "Lax")  # the way back from it is a redirect of another site


def cookie_of(scope: Scope, cookie: Cookie = SIGNED_IN) -> str | None:
    """Return what a cookie of a request says, if it is there."""
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load(Headers(scope=scope).get("cookie", ""))
    except CookieError:  # of another program on this host
        return None
    found = cookies.get(cookie.name(scope))
    return found.value if found is not None and found.value else None


def set_cookie(scope: Scope, value: str, lasts_s: float, cookie: Cookie = SIGNED_IN) -> str:
    """Return the header `Set-Cookie` that has a browser keep a cookie, for this server alone and out of scripts' reach.

    Args:
        scope: The request that is answered.
        value: What it will say; empty to have it forgotten.
        lasts_s: Seconds until the browser forgets it.
        cookie: Which it is.
    """
    bounds = f"Path=/; Max-Age={lasts_s:.0f}; HttpOnly; SameSite={cookie.same_site}"
    return f"{cookie.name(scope)}={value}; {bounds}{'; Secure' if is_secure(scope) else ''}"


def csrf_token(value: str) -> str:
    """Return what pages send with requests that change something, for what their cookie says."""
    return hmac.new(value.encode(), b"csrf", hashlib.sha256).hexdigest()


def foreign_origin(scope: Scope) -> str | None:
    """Return why the page that asks is none of this server; None if it is one, or if no page asks."""
    headers = Headers(scope=scope)
    origin = headers.get("origin")
    own = f"{'https' if is_secure(scope) else 'http'}://{headers.get('host', '')}"
    if origin is None or origin.lower() == own.lower():
        return None
    return (
        f"a page of {origin} asks, and this server is {own}; behind a proxy with TLS, "
        "`wtb serve --proxy ADDRESS` says whose word it takes for that"
    )


def forgery(scope: Scope, value: str) -> str | None:
    """Return why a request that has the cookie cannot be one of this server's pages; None if it can.

    Args:
        scope: The request.
        value: What its cookie says.
    """
    headers = Headers(scope=scope)
    reads = scope["type"] == "http" and scope["method"] in _READS
    if not reads and "origin" not in headers:
        return "a request with a cookie has to name the page that asks, in the header Origin"
    foreign = foreign_origin(scope)
    if foreign is not None or reads or scope["type"] == "websocket":  # to those no header can be given
        return foreign
    if hmac.compare_digest(headers.get(CSRF_HEADER, "").encode(), csrf_token(value).encode()):
        return None
    return f"a request with a cookie that changes something takes the header {CSRF_HEADER}, as `GET /sign-in` says it"
