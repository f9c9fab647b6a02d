"""What a browser keeps while somebody is at a provider, in a cookie: it alone may finish what it began."""

from __future__ import annotations

import base64
import hashlib
import secrets

from wtb.core.classes.frozen import frozen

LASTS_S = 600.0  # somebody may take so long at the provider


@frozen
class Flow:
    """What a browser keeps while somebody is at the provider."""

    state: str
    nonce: str
    verifier: str

    def as_cookie(self) -> str:
        """Return it as a cookie says it."""
        return f"{self.state}.{self.nonce}.{self.verifier}"

    @property
    def challenge(self) -> str:
        """What the provider is told of the verifier, before it is told the verifier."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def new_flow() -> Flow:
    """Begin one."""
    return Flow(*(secrets.token_urlsafe(32) for _ in range(3)))


def flow_of(cookie: str | None) -> Flow | None:
    """Return the flow that a cookie says, if it is one."""
    parts = (cookie or "").split(".")
    return Flow(*parts) if len(parts) == 3 and all(parts) else None
