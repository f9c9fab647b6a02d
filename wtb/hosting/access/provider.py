"""Signing in at an OpenID Connect provider: the authorization code flow with PKCE, and what it says of who came back.

Between its beginning and the way back the browser keeps what only it may know, in a cookie of ten minutes, so any
server on the database can finish what another one began, and nobody can begin it for somebody else's browser.

Sources: OpenID Connect Core 1.0, section 3.1; RFC 7636 (PKCE); RFC 9207 (issuer in the answer); RFC 9700, the best
practice for OAuth 2.0 security.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Mapping
from time import monotonic
from typing import Any, NotRequired, TypedDict, cast
from urllib.parse import urlencode, urlsplit

import httpx
import jwt

from wtb.core.errors import WTBError
from wtb.core.values import Json
from wtb.hosting.access.flows import Flow
from wtb.hosting.access.settings import Person, ProviderSettings

_TIMEOUT_S = 10.0
_SKEW_S = 60.0  # clocks of others may differ by so much
_METADATA_S = 3600.0
_KEYS_S = 30.0  # a key that is not known is looked for so often: a provider may change its keys at any time
# None with a key that is shared: a public key could be taken for one.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


class SignInFailed(WTBError):
    """The provider, or who came back from it, is not to be believed."""


class Metadata(TypedDict):
    """What a provider says of itself, as far as it is read here: OpenID Connect Discovery 1.0, section 3."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: NotRequired[list[str]]


class Provider:
    """A provider, with what it says of itself and its keys, which are asked for when they are needed.

    Attributes:
        settings: Which it is.
        name: What people know it by.
        host: That of this server, to which it sends them back.
    """

    def __init__(self, settings: ProviderSettings, redirect: str) -> None:
        """Make it; nothing is asked yet.

        Args:
            settings: Which it is.
            redirect: Where browsers come back to, exactly as the provider was told.
        """
        self.settings = settings
        self.name = urlsplit(settings.issuer).netloc
        self.host = urlsplit(settings.url).hostname or ""
        self._redirect = redirect
        self._lock = asyncio.Lock()
        self._metadata: Metadata | None = None
        self._metadata_at = -_METADATA_S
        self._keys: Mapping[str | None, jwt.PyJWK] = {}
        self._keys_at = -_KEYS_S

    async def address(self, flow: Flow) -> str:
        """Return where a browser goes to sign in.

        Raises:
            SignInFailed: If the provider does not answer as one.
        """
        metadata = await self._described()
        asked = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self._redirect,
            "scope": self.settings.scope,
            "state": flow.state,
            "nonce": flow.nonce,
            "code_challenge": flow.challenge,
            "code_challenge_method": "S256",
        }
        endpoint = str(metadata["authorization_endpoint"])
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    async def person(self, flow: Flow | None, answer: Mapping[str, str]) -> Person:
        """Return who came back.

        Args:
            flow: What their browser kept; None if it kept nothing.
            answer: The query with which it was sent back.

        Raises:
            SignInFailed: If it is somebody else's answer, or the provider's word is not as it must be.
        """
        if flow is None or not hmac.compare_digest(answer.get("state", "").encode(), flow.state.encode()):
            raise SignInFailed("the answer belongs to no sign-in of this browser, or to one of 10 minutes ago")
        if answer.get("iss", self.settings.issuer) != self.settings.issuer:
            raise SignInFailed("the answer is of another provider")
        if "code" not in answer:
            raise SignInFailed(f"the provider refused: {answer.get('error', 'without a word')}")
        claims = await self._claims(await self._exchanged(answer["code"], flow), flow)
        name = claims.get(self.settings.name)
        if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
            raise SignInFailed(f"the provider says no {self.settings.name!r} of {claims['sub']!r}")
        if self.settings.name == "email" and claims.get("email_verified") is False:
            raise SignInFailed(f"the provider has not verified the address {name!r}")
        subject = hashlib.sha256(f"{self.settings.issuer}\n{claims['sub']}".encode()).hexdigest()
        return Person(subject, name, self.settings.scopes_of(claims))

    async def _exchanged(self, code: str, flow: Flow) -> str:
        """Exchange a code for the token that says who came."""
        metadata, settings = await self._described(), self.settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect,
            "client_id": settings.client_id,
            "code_verifier": flow.verifier,
        }
        basic = None
        if settings.client_secret is not None:
            if "client_secret_post" in metadata.get("token_endpoint_auth_methods_supported", ()):
                form["client_secret"] = settings.client_secret
            else:
                basic = httpx.BasicAuth(settings.client_id, settings.client_secret)
        answer = await self._asked("POST", str(metadata["token_endpoint"]), data=form, auth=basic)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise SignInFailed("the provider gave no ID token; is `openid` in the scope?")
        return token

    async def _claims(self, token: str, flow: Flow) -> Mapping[str, Json]:
        """Return what an ID token says, if the provider signed it for this server and this sign-in."""
        try:
            key = await self._key(jwt.get_unverified_header(token).get("kid"))
            claims: dict[str, Json] = jwt.decode(
                token,
                key,
                algorithms=list(_ALGORITHMS),
                audience=self.settings.client_id,
                issuer=self.settings.issuer,
                leeway=_SKEW_S,
                options={"require": ["iss", "sub", "aud", "exp", "iat"]},
            )
        except jwt.PyJWTError as error:
            raise SignInFailed(f"the ID token is not to be believed: {error}") from None
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), flow.nonce.encode()):
            raise SignInFailed("the ID token is of another sign-in")
        if isinstance(claims["aud"], list) and len(claims["aud"]) > 1 and claims.get("azp") != self.settings.client_id:
            raise SignInFailed("the ID token is for several, and was not given to this server")
        return claims

    async def _key(self, id: str | None) -> jwt.PyJWK:
        """Return a key of the provider, which is asked again for one that is new."""
        async with self._lock:
            if id not in self._keys and monotonic() - self._keys_at >= _KEYS_S:
                metadata = await self._described()
                found = jwt.PyJWKSet.from_dict(await self._asked("GET", str(metadata["jwks_uri"])))
                self._keys = {key.key_id: key for key in found.keys}
                self._keys_at = monotonic()
        if id not in self._keys:
            raise SignInFailed("the ID token is signed by a key that the provider does not publish")
        return self._keys[id]

    async def _described(self) -> Metadata:
        """Return what the provider says of itself, which is asked for once an hour."""
        if self._metadata is None or monotonic() - self._metadata_at >= _METADATA_S:
            issuer = self.settings.issuer
            found = await self._asked("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            if found.get("issuer") != issuer:
                raise SignInFailed(f"the provider calls itself {found.get('issuer')!r}, and the settings {issuer!r}")
            missing = {"authorization_endpoint", "token_endpoint", "jwks_uri"} - found.keys()
            if missing:
                raise SignInFailed(f"the provider does not say its {', '.join(sorted(missing))}")
            self._metadata, self._metadata_at = cast("Metadata", found), monotonic()
        return self._metadata

    async def _asked(self, method: str, url: str, **given: Any) -> dict[str, Json]:
        """Send a request to the provider, and return the JSON of its answer; redirects are not followed."""
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT_S) as client:
                answer = await client.request(method, url, **given)
            document = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise SignInFailed(f"the provider does not answer as one: {type(error).__name__}") from None
        if not answer.is_success or not isinstance(document, dict):
            reason = document.get("error") if isinstance(document, dict) else None
            raise SignInFailed(f"the provider answered {answer.status_code} ({reason or 'without a reason'})")
        return document
