"""Addresses of servers as messages show them: without what is secret in them, however malformed they are."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, unquote_plus, urlsplit

HIDDEN = "***"
_MAX_LENGTH = 300
_HARMLESS = frozenset(
    {
        *("application_name", "connect_timeout", "client_encoding", "db", "dbname", "host", "hostaddr", "options"),
        *("port", "service", "sslmode", "target_session_attrs", "user"),
        *("health_check_interval", "max_connections", "protocol", "socket_connect_timeout", "socket_keepalive"),
        *("socket_timeout", "ssl_cert_reqs"),
    }
)
_PARAMETER = re.compile(r"[?&;]([^=&;?]*)=")


def shown_url(url: str) -> str:
    """A URL without its passwords: that of the user, and those of its query, misspelt ones among them.

    What is no URL is shown so, too: rather too much of it is hidden than too little.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    rest = _without_parameter(rest)  # first: an @ in it ends no password
    rest = rest if scheme.startswith("sqlite") else _without_password(rest)
    text = "".join(char if char.isprintable() else "?" for char in f"{scheme}{separator}{rest}")
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."


def _without_password(rest: str) -> str:
    user, at, host = rest.rpartition("@")  # an @ or / of the password may stand there as it is
    if at:
        name, colon, _ = user.partition(":")
        return f"{name}:{HIDDEN}@{host}" if colon else rest
    server = re.split("[/?#]", rest, maxsplit=1)[0]
    address = re.match(r"\[[^]]*]|[^:]*", server)
    port = server[address.end() :] if address else ""
    if port and not re.fullmatch(":[0-9]*", port):
        return f"{server[: -len(port)]}:{HIDDEN}"  # it may be a password whose @ was forgotten
    return rest


def _without_parameter(rest: str) -> str:
    """All from the first parameter on that may be secret is left out: it may be malformed, and end nowhere."""
    for parameter in _PARAMETER.finditer(rest):
        if unquote_plus(parameter[1]) not in _HARMLESS:
            return rest[: parameter.end()] + HIDDEN
    return rest


def split_url(text: str) -> SplitResult | None:
    """Return the parts of a URL; None if its host or its port cannot be read, such as an IPv6 address without end."""
    try:
        parts = urlsplit(text)
        _ = parts.port  # is read only now
    except ValueError:
        return None
    return parts
