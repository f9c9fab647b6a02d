"""Signing in at an OpenID Connect provider, by the authorization code flow with PKCE.

Until it comes back, the browser keeps the secrets of the flow in a cookie for ten minutes. So any
server on the database can finish a sign-in that another one began, and nobody can begin one for another browser.

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
from wtb.hosting.api.cookies import Flow
from wtb.hosting.api.provider_settings import Person, ProviderSettings

_TIMEOUT_S = 10.0
_SKEW_S = 60.0  # clocks of others may differ by so much
_METADATA_S = 3600.0
# Between two looks for an unknown key: providers change keys at any time, but a forged token must not cause a request
# each.
_KEYS_S = 30.0
# No algorithm with a shared key: a forger could sign with the provider's public key as if it were the shared one.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


class SignInFailed(WTBError):
    """The answer of the provider, or of the browser that came back from it, cannot be trusted."""


class Metadata(TypedDict):
    """The metadata of a provider that are read here: OpenID Connect Discovery 1.0, section 3."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: NotRequired[list[str]]


class Provider:
    """A provider, with its metadata and keys, which are fetched when they are needed.

    Attributes:
        settings: Its settings.
        name: Its name for people.
        host: The host of this server, to which it sends browsers back.
    """

    def __init__(self, settings: ProviderSettings, redirect: str) -> None:
        """Make it; no request is sent yet.

        Args:
            settings: Its settings.
            redirect: The URL that browsers come back to, exactly as registered at the provider.
        """
        self.settings = settings
        self.name = urlsplit(settings.issuer).netloc
        self.host = urlsplit(settings.url).hostname or ""
        self._redirect = redirect
        self._lock = asyncio.Lock()
        self._metadata: Metadata | None = None
        self._metadata_at = -_METADATA_S
        self._keys: Mapping[str | None, jwt.PyJWK] = {}
        # Not 0: on a machine that has just started, the monotonic clock is below the interval.
        self._keys_at = -_KEYS_S

    async def address(self, flow: Flow) -> str:
        """Return the URL at which a browser signs in.

        Raises:
            SignInFailed: If the provider does not answer as one.
        """
        metadata = await self._described()
        query = {
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
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    async def person(self, flow: Flow | None, answer: Mapping[str, str]) -> Person:
        """Return the person who has signed in.

        Args:
            flow: The secrets that the browser kept, if any.
            answer: The query with which the browser was sent back.

        Raises:
            SignInFailed: If it is the answer to another sign-in, or the provider's token is invalid.
        """
        if flow is None or not hmac.compare_digest(answer.get("state", "").encode(), flow.state.encode()):
            raise SignInFailed("the response belongs to no sign-in of this browser, or to one older than 10 minutes")
        # RFC 9207: protects against a mix-up of two providers. Providers may leave `iss` out.
        if answer.get("iss", self.settings.issuer) != self.settings.issuer:
            raise SignInFailed("the response is from another provider")
        if "code" not in answer:
            raise SignInFailed(f"the provider refused: {answer.get('error', 'without a message')}")
        claims = await self._claims(await self._exchanged(answer["code"], flow), flow)
        name = claims.get(self.settings.name)
        if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
            raise SignInFailed(f"the provider returned no {self.settings.name!r} of {claims['sub']!r}")
        if self.settings.name == "email" and claims.get("email_verified") is False:
            raise SignInFailed(f"the provider has not verified the address {name!r}")
        # `sub` is unique only within an issuer. Names and addresses do not identify a person, because they may change.
        subject = hashlib.sha256(f"{self.settings.issuer}\n{claims['sub']}".encode()).hexdigest()
        return Person(subject, name, self.settings.scopes_of(claims))

    async def _exchanged(self, code: str, flow: Flow) -> str:
        """Exchange a code for the ID token."""
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
            # Providers that list no methods take `client_secret_basic`, as OpenID Connect Discovery prescribes.
            if "client_secret_post" in metadata.get("token_endpoint_auth_methods_supported", ()):
                form["client_secret"] = settings.client_secret
            else:
                basic = httpx.BasicAuth(settings.client_id, settings.client_secret)
        answer = await self._request_json("POST", str(metadata["token_endpoint"]), data=form, auth=basic)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise SignInFailed("the provider returned no ID token; check that `openid` is in the scope")
        return token

    async def _claims(self, token: str, flow: Flow) -> Mapping[str, Json]:
        """Return the claims of an ID token, if the provider signed it for this server and this sign-in."""
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
            raise SignInFailed(f"the ID token is invalid: {error}") from None
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), flow.nonce.encode()):
            raise SignInFailed("the ID token is of another sign-in")
        if isinstance(claims["aud"], list) and len(claims["aud"]) > 1 and claims.get("azp") != self.settings.client_id:
            raise SignInFailed("the ID token is for several audiences, and not issued to this server")
        return claims

    async def _key(self, id: str | None) -> jwt.PyJWK:
        """Return a key of the provider. Keys are fetched again for an unknown one."""
        # Simultaneous sign-ins with a new key fetch the keys only once.
        async with self._lock:
            if id not in self._keys and monotonic() - self._keys_at >= _KEYS_S:
                metadata = await self._described()
                key_set = jwt.PyJWKSet.from_dict(await self._request_json("GET", str(metadata["jwks_uri"])))
                self._keys = {key.key_id: key for key in key_set.keys}
                self._keys_at = monotonic()
        if id not in self._keys:
            raise SignInFailed("the ID token is signed by a key that the provider does not publish")
        return self._keys[id]

    async def _described(self) -> Metadata:
        """Return the metadata of the provider, which are fetched once an hour."""
        if self._metadata is None or monotonic() - self._metadata_at >= _METADATA_S:
            issuer = self.settings.issuer
            description = await self._request_json("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            if description.get("issuer") != issuer:
                raise SignInFailed(
                    f"the provider calls itself {description.get('issuer')!r}, and the settings {issuer!r}"
                )
            missing = {"authorization_endpoint", "token_endpoint", "jwks_uri"} - description.keys()
            if missing:
                raise SignInFailed(f"the provider does not publish its {', '.join(sorted(missing))}")
            self._metadata, self._metadata_at = cast("Metadata", description), monotonic()
        return self._metadata

    async def _request_json(self, method: str, url: str, **options: Any) -> dict[str, Json]:
        """Send a request to the provider, and return the JSON of its answer; redirects are not followed."""
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT_S) as client:
                answer = await client.request(method, url, **options)
            document = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise SignInFailed(f"the provider did not respond as OpenID Connect: {type(error).__name__}") from None
        if not answer.is_success or not isinstance(document, dict):
            reason = document.get("error") if isinstance(document, dict) else None
            raise SignInFailed(f"the provider answered {answer.status_code} ({reason or 'without a reason'})")
        return document
