"""Cookies of signed-in browsers, and protection against requests that other sites' pages forge.

Browsers send cookies with the requests of any page. A request that is authorized by a cookie must therefore come from a
page of this server, by its `Origin`. One that changes something also needs a header whose value only such a page can
know, and which pages of other origins cannot send without a preflight request.

Source: OWASP Cross-Site Request Forgery Prevention Cheat Sheet; RFC 6265bis for names that begin with `__Host-`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers
from starlette.types import Scope

from wtb.core.frozen import frozen

CSRF_HEADER = "X-CSRF-Token"
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_SECURE = frozenset({"https", "wss"})


def is_secure(scope: Scope) -> bool:
    """Return whether a request came by TLS, to this server or to a trusted proxy."""
    return scope.get("scheme") in _SECURE


@frozen
class Cookie:
    """A cookie of this server.

    Attributes:
        ending: The end of its name.
        same_site: `Strict`, or `Lax` if it is also sent with links and redirects of other sites.
    """

    ending: str
    same_site: str

    def name(self, scope: Scope) -> str:
        """Return its name. Without TLS it contains the port, because all servers of a host share their cookies."""
        if is_secure(scope):
            # Browsers take cookies of this prefix only by TLS and from this very host, so that no other can plant one.
            return f"__Host-wtb{self.ending}"
        _, port = scope.get("server") or ("", 0)
        return f"wtb-{port}{self.ending}"


SIGNED_IN = Cookie("", "Strict")
# Lax, because a browser comes back from the provider by a redirect of another site.
AT_PROVIDER = Cookie("-provider", "Lax")


def cookie_of(scope: Scope, cookie: Cookie = SIGNED_IN) -> str | None:
    """Return the value of a cookie of a request, if it is there."""
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load(Headers(scope=scope).get("cookie", ""))
    except CookieError:  # of another program on this host
        return None
    morsel = cookies.get(cookie.name(scope))
    return morsel.value if morsel is not None and morsel.value else None


def set_cookie(scope: Scope, content: str, lasts_s: float, cookie: Cookie = SIGNED_IN) -> str:
    """Return the header `Set-Cookie` for a cookie that only this server gets and scripts cannot read.

    Args:
        scope: The request.
        content: Its value; empty to delete it.
        lasts_s: Seconds until the browser forgets it.
        cookie: The cookie.
    """
    bounds = f"Path=/; Max-Age={lasts_s:.0f}; HttpOnly; SameSite={cookie.same_site}"
    return f"{cookie.name(scope)}={content}; {bounds}{'; Secure' if is_secure(scope) else ''}"


def csrf_token(content: str) -> str:
    """Return the token that pages send with requests that change something, for the value of their cookie."""
    # Derived from the cookie, so that it is stored nowhere and any server on the database can check it.
    return hmac.new(content.encode(), b"csrf", hashlib.sha256).hexdigest()


def foreign_origin(scope: Scope) -> str | None:
    """Return the reason why a request comes from another site's page; None if it does not."""
    headers = Headers(scope=scope)
    origin = headers.get("origin")
    own = f"{'https' if is_secure(scope) else 'http'}://{headers.get('host', '')}"
    if origin is None or origin.lower() == own.lower():
        return None
    return (
        f"the request is from a page of {origin}; expected one of this server, {own}. If it is behind a proxy with "
        "TLS, start it with `wtb serve --proxy ADDRESS`"
    )


def forgery(scope: Scope, content: str) -> str | None:
    """Return the reason why a request with a cookie may be forged; None if it comes from this server's page.

    Args:
        scope: The request.
        content: The value of its cookie.
    """
    headers = Headers(scope=scope)
    reads = scope["type"] == "http" and scope["method"] in _READS
    if not reads and "origin" not in headers:
        return "the request has a cookie but no header Origin; expected the page that sends it, in Origin"
    foreign = foreign_origin(scope)
    # Browsers let no script set headers of a WebSocket request, so the origin has to be enough.
    if foreign is not None or reads or scope["type"] == "websocket":
        return foreign
    # As bytes: for text beyond ASCII, which a header may have, `compare_digest` raises TypeError.
    if hmac.compare_digest(headers.get(CSRF_HEADER, "").encode(), csrf_token(content).encode()):
        return None
    return f"the header {CSRF_HEADER} is missing or wrong; expected the value that `GET /sign-in` returns"


LASTS_S = 600.0  # that signing in at the provider may take


@frozen
class Flow:
    """The secrets of a sign-in, which the browser keeps until it comes back from the provider."""

    state: str
    nonce: str
    verifier: str

    def as_cookie(self) -> str:
        """Return it as the value of a cookie."""
        return f"{self.state}.{self.nonce}.{self.verifier}"

    @property
    def challenge(self) -> str:
        """The hash of the verifier, which the provider gets first and compares later (PKCE)."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def new_flow() -> Flow:
    """Begin a sign-in with new secrets."""
    return Flow(*(secrets.token_urlsafe(32) for _ in range(3)))


def flow_of(cookie: str | None) -> Flow | None:
    """Read a flow from the value of a cookie; None if it has none."""
    parts = (cookie or "").split(".")
    return Flow(*parts) if len(parts) == 3 and all(parts) else None
