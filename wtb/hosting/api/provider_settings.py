"""The settings of signing in at a server: the table `[server]` of wtb.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping

from wtb.config.credentials import OIDC_SECRET, credential, split_url
from wtb.config.project_settings import Setting, find_setting, table_of
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.values import Json
from wtb.operations.registry import Permission

_SERVER_KEYS = ("url", "oidc")
_KNOWN_OF_OIDC = ("issuer", "client_id", "scope", "name", "claim", "grants", "everybody")
_LOOPBACK = re.compile(r"http://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/|$)")


@frozen
class ProviderSettings:
    """An OpenID Connect provider at which people sign in, and their permissions.

    Attributes:
        url: The URL of this server for browsers.
        issuer: The issuer, exactly as the provider names itself.
        client_id: The provider's name for this server.
        client_secret: The shared secret, from WTB_OIDC_SECRET; None for a public client.
        scope: The requested scope.
        name: The claim with the name that events show.
        claim: The claim with a person's groups.
        grants: The permissions of each group.
        everybody: The permissions of everyone who can sign in.
    """

    url: str
    issuer: str
    client_id: str
    client_secret: str | None
    scope: str
    name: str
    claim: str
    grants: Mapping[str, frozenset[str]]
    everybody: frozenset[str]

    def scopes_of(self, claims: Mapping[str, Json]) -> frozenset[str]:
        """Return the permissions of a person with these claims."""
        groups = claims.get(self.claim)
        named = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        return self.everybody.union(
            *(self.grants[group] for group in named if isinstance(group, str) and group in self.grants)
        )


@frozen
class Person:
    """A person who has signed in at the provider.

    Attributes:
        subject: A permanent id: a digest of the issuer and of its id for the person.
        name: The name that events show.
        scopes: Their permissions.
    """

    subject: str
    name: str
    scopes: frozenset[str]


def read_provider() -> ProviderSettings | None:
    """Read `[server.oidc]`; None if there is none.

    Raises:
        InputError: If a setting is invalid.
    """
    setting = find_setting("server")
    if setting is None:
        return None
    server = table_of(setting, _SERVER_KEYS)
    if "oidc" not in server:
        return None
    oidc = table_of(Setting(setting.file, f"{setting.title[:-1]}.oidc]", server["oidc"]), _KNOWN_OF_OIDC)
    where = f"{setting.file}: {setting.title[:-1]}.oidc]"
    grants = oidc.get("grants", {})
    if not isinstance(grants, dict):
        raise InputError(f"{where} grants must be a table of groups with what their members may do")
    return ProviderSettings(
        url=_url(f"{setting.file}: {setting.title} url", server.get("url")),
        issuer=_url(f"{where} issuer", oidc.get("issuer"), keep_slash=True),
        client_id=_text(f"{where} client_id", oidc.get("client_id")),
        client_secret=credential(OIDC_SECRET) or None,
        scope=_text(f"{where} scope", oidc.get("scope", "openid email")),
        name=_text(f"{where} name", oidc.get("name", "email")),
        claim=_text(f"{where} claim", oidc.get("claim", "groups")),
        grants={group: _scopes(f"{where} grants.{group}", scopes) for group, scopes in grants.items()},
        everybody=_scopes(f"{where} everybody", oidc.get("everybody", [])),
    )


def _text(where: str, text: object) -> str:
    if not isinstance(text, str) or not text:
        raise InputError(f"{where} is {text!r}; expected text")
    return text


def _url(where: str, url: object, *, keep_slash: bool = False) -> str:
    text = _text(where, url)
    parts = split_url(text)
    if parts is None or parts.query or parts.fragment or not (text.startswith("https://") or _LOOPBACK.match(text)):
        raise InputError(f"{where} is {text!r}; expected a URL such as https://bench.example.org")
    return text if keep_slash else text.rstrip("/")


def _scopes(where: str, scopes: object) -> frozenset[str]:
    permissions = [str(permission) for permission in Permission]
    if not isinstance(scopes, list) or any(scope not in permissions for scope in scopes):
        raise InputError(f"{where} is {scopes!r}; expected a list of some of: {', '.join(permissions)}")
    return frozenset(scopes)
