"""How people sign in at a server, as the project's settings say it: the table `[server]` of wtb.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping

from wtb.config.credentials import OIDC_SECRET, credential
from wtb.config.project_settings import Setting, find_setting, table_of
from wtb.config.urls import split_url
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError
from wtb.core.values import Json
from wtb.operations.registry import Permission

_KNOWN = ("url", "oidc")
_KNOWN_OF_OIDC = ("issuer", "client_id", "scope", "name", "claim", "grants", "everybody")
_LOOPBACK = re.compile(r"http://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/|$)")


@frozen
class ProviderSettings:
    """An OpenID Connect provider, at which people sign in, and what those whom it knows may do here.

    Attributes:
        url: This server, as browsers name it.
        issuer: The provider's, exactly as it names itself.
        client_id: What the provider calls this server.
        client_secret: What it shares with this server, of WTB_OIDC_SECRET; None for a public client.
        scope: What it is asked for.
        name: The claim that says what events call somebody.
        claim: The claim that has the groups of somebody.
        grants: Of each group what its members may do.
        everybody: What all may do whom the provider knows.
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
        """Return what somebody may do of whom the provider says this."""
        groups = claims.get(self.claim)
        named = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        return self.everybody.union(*(self.grants[one] for one in named if isinstance(one, str) and one in self.grants))


@frozen
class Person:
    """Whom the provider knows.

    Attributes:
        subject: Who that is, for ever: a digest of the issuer's name and its name for them.
        name: What events call them.
        scopes: What they may do.
    """

    subject: str
    name: str
    scopes: frozenset[str]


def read_provider() -> ProviderSettings | None:
    """Read `[server.oidc]`, or return None where there is none.

    Raises:
        InputError: If a setting is not what it may be.
    """
    setting = find_setting("server")
    if setting is None:
        return None
    server = table_of(setting, _KNOWN)
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
        grants={group: _scopes(f"{where} grants.{group}", given) for group, given in grants.items()},
        everybody=_scopes(f"{where} everybody", oidc.get("everybody", [])),
    )


def _text(where: str, given: object) -> str:
    if not isinstance(given, str) or not given:
        raise InputError(f"{where} is {given!r}; expected text")
    return given


def _url(where: str, given: object, *, keep_slash: bool = False) -> str:
    text = _text(where, given)
    parts = split_url(text)
    if parts is None or parts.query or parts.fragment or not (text.startswith("https://") or _LOOPBACK.match(text)):
        raise InputError(f"{where} is {text!r}; expected a URL such as https://bench.example.org")
    return text if keep_slash else text.rstrip("/")


def _scopes(where: str, given: object) -> frozenset[str]:
    known = [str(one) for one in Permission]
    if not isinstance(given, list) or any(one not in known for one in given):
        raise InputError(f"{where} is {given!r}; expected a list of some of: {', '.join(known)}")
    return frozenset(given)
