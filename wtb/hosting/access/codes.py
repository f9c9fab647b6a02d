"""The code by which whoever started a server signs in: printed once, of use once, for ten minutes."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from time import monotonic

LASTS_S = 600.0
_BYTES = 20  # 160 random bits


class OneTimeCode:
    """A code that is of use once. It is kept by its digest."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Make it; no code is of use before one is issued.

        Args:
            clock: Seconds, by which it grows old.
        """
        self._clock = clock
        self._digest: bytes | None = None
        self._until = 0.0

    def issue(self) -> str:
        """Return a new code; the one before it is of no more use."""
        code = secrets.token_urlsafe(_BYTES)
        self._digest, self._until = _digest_of(code), self._clock() + LASTS_S
        return code

    def take(self, given: str) -> bool:
        """Return whether somebody has the code; if so it is of no more use."""
        digest = self._digest
        if digest is None or self._clock() > self._until or not hmac.compare_digest(digest, _digest_of(given)):
            return False
        self._digest = None
        return True


def _digest_of(code: str) -> bytes:
    return hashlib.sha256(code.encode()).digest()
