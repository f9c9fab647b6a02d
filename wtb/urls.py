"""Addresses of servers as messages show them: without what is secret in them, however malformed they are."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

HIDDEN = "***"
_MOST = 300
_SECRET = re.compile("pass|pwd|secret|token|key|auth|cred", re.IGNORECASE)
_PARAMETER = re.compile(r"[?&;]([^=&;?]*)=")


def shown_url(url: str) -> str:
    """A URL without its passwords: that of the user, and all that stand in its query.

    What is no URL is shown so, too: rather too much of it is hidden than too little.
    """
    scheme, found, rest = url.partition("://")
    if not found:
        scheme, rest = "", url
    rest = _without_parameter(rest if scheme.startswith("sqlite") else _without_password(rest))
    text = "".join(char if char.isprintable() else "?" for char in f"{scheme}{found}{rest}")
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."


def _without_password(rest: str) -> str:
    user, at, host = rest.rpartition("@")  # an @ or / of the password may stand there as it is
    if at:
        name, colon, _ = user.partition(":")
        return f"{name}:{HIDDEN}@{host}" if colon else rest
    name, colon, port = re.split("[/?#]", rest, maxsplit=1)[0].rpartition(":")
    if colon and port and not port.isdigit() and not port.endswith("]"):
        return f"{name}:{HIDDEN}"  # it may be a password whose @ was forgotten
    return rest


def _without_parameter(rest: str) -> str:
    """All from the first secret parameter on is left out: its end is not to be seen where it was not encoded."""
    for parameter in _PARAMETER.finditer(rest):
        if _SECRET.search(unquote_plus(parameter[1])):
            return rest[: parameter.end()] + HIDDEN
    return rest
