"""Consent to what destroys or costs: a first call says what it would do, a second one does it.

What is kept between the two is signed and given to the caller: who they are, what they asked for and until when it
holds. Whoever does not come again has not agreed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable

from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError
from wtb.hosting.agents.tools import ToolArguments

LASTS_S = 300.0
_BYTES = 16


@frozen
class Consent:
    """What a caller shows to have done what they were told.

    Attributes:
        token: It, to be sent with the same arguments.
        expires_s: Seconds for which it holds.
    """

    token: str
    expires_s: float


@frozen
class Consented:
    """What somebody has consented to, besides what they asked for."""

    _digest: str

    def check(self, target: str) -> None:
        """Raise ConflictError if it would be done to something else by now."""
        if self._digest != _digest(target):
            raise ConflictError(
                "what this would do has changed since you were told; nothing was done. Call without `confirm` to be "
                "told again"
            )


class Confirmations:
    """Gives consents and takes them, each once, for as long as this process lives."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Make it with a key of its own.

        Args:
            clock: Returns seconds. The time of day would not do, because it may be corrected meanwhile.
        """
        self._key = secrets.token_bytes(32)
        self._clock = clock
        self._lock = threading.Lock()
        self._used: dict[str, float] = {}  # by when each is of no more use anyway

    def offer(self, who: str, tool: str, arguments: ToolArguments, target: str = "") -> Consent:
        """Return what the caller sends again if they agree.

        Args:
            who: Identifies them.
            tool: What they asked for.
            arguments: With which arguments.
            target: To what it would be done.
        """
        head = f"{secrets.token_urlsafe(_BYTES)}.{int(self._clock() + LASTS_S)}.{_digest(target)}"
        return Consent(f"{head}.{self._signature(head, who, _request(tool, arguments))}", LASTS_S)

    def take(self, token: str, who: str, tool: str, arguments: ToolArguments) -> Consented:
        """Take a consent, which is of no more use from then on.

        Args:
            token: It.
            who: As for `offer`.
            tool: As for `offer`.
            arguments: As for `offer`.

        Returns:
            What it was given for.

        Raises:
            ConflictError: If it is of somebody else, for something else, too old, used, or none at all.
        """
        head, _, signed = token.rpartition(".")
        nonce, _, rest = head.partition(".")
        until, _, target = rest.partition(".")
        if not (until.isascii() and until.isdigit() and len(until) < 16 and token.isascii()):
            raise ConflictError(_NONE)
        if not hmac.compare_digest(signed, self._signature(head, who, _request(tool, arguments))):
            raise ConflictError(_NONE)
        now = self._clock()
        if int(until) < now:
            raise ConflictError("the confirm token is too old; nothing was done. Call without it to get another one")
        with self._lock:
            self._used = {one: ends for one, ends in self._used.items() if ends >= now}
            if nonce in self._used:
                raise ConflictError("the confirm token was used already; nothing more was done")
            self._used[nonce] = float(until)
        return Consented(target)

    def _signature(self, head: str, who: str, request: str) -> str:
        signed = json.dumps([head, who, request]).encode()
        return hmac.new(self._key, signed, hashlib.sha256).hexdigest()


_NONE = (
    "the confirm token is not one that you were given for these arguments; nothing was done. Call without `confirm` to "
    "get one"
)


def _request(tool: str, arguments: ToolArguments) -> str:
    return json.dumps([tool, arguments], sort_keys=True)


def _digest(target: str) -> str:
    return hashlib.sha256(target.encode()).hexdigest()[:16]
