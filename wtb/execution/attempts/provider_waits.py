"""Waiting for providers that fail: how long a node run waits, and when the whole sweep pauses."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from wtb.core.providers.faults import ProviderFault, is_lasting, wait_s, waiting_for
from wtb.core.stop import Stop, Stopped

LASTING_TRIES = 3  # of a request that a provider rejects for a reason that waiting does not change
LONE_TRIES = 6  # of a request that a provider fails while it serves others like it
NOTICE_S = 30.0  # between two notices about one provider
_LOOK_S = 1.0  # between two looks at what people ask of the execution


class ProviderWaits:
    """What the node runs of a sweep in this process know of their providers. Threads share it.

    Args:
        stop: Requested if the sweep has to pause.
        longest_s: Seconds that a node run waits at most.
        notify: Takes a line for people.
    """

    def __init__(self, stop: Stop, longest_s: float, notify: Callable[[str], None]) -> None:
        self.stop = stop
        self.longest_s = longest_s
        self.served: Counter[tuple[str, str]] = Counter()  # (node, variant) -> node runs that succeeded
        self._notify = notify
        self._noticed_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def notice(self, fault: ProviderFault, seconds: float) -> None:
        """Tell people that node runs wait for a provider, from time to time."""
        now = time.monotonic()
        with self._lock:
            due = now - self._noticed_at.get(fault["provider"], -NOTICE_S) >= NOTICE_S
            if due:
                self._noticed_at[fault["provider"]] = now
        if due:
            self._notify(f"{waiting_for(fault)}: the next try is in {seconds:.0f} s")


class ProviderWait:
    """The waits of one node run.

    Args:
        waits: Those of its sweep.
        node: The node and its variant.
        is_second: Whether the node run has waited in vain under an earlier claim.
    """

    def __init__(self, waits: ProviderWaits, node: tuple[str, str], *, is_second: bool) -> None:
        self._waits = waits
        self._node = node
        self._is_second = is_second
        self._tries = 0
        self._began_at = 0.0
        self._served_before = 0

    def next_wait_s(self, fault: ProviderFault) -> float | None:
        """Decide what follows a fault.

        Args:
            fault: The fault that ended the latest attempt.

        Returns:
            Seconds to wait before the next attempt; None if the node run has failed for good.

        Raises:
            Stopped: The provider fails everyone, so the sweep pauses.
        """
        now = time.monotonic()
        if not self._tries:
            self._began_at, self._served_before = now, self._waits.served[self._node]
        self._tries += 1
        seconds = wait_s(fault, self._tries)
        serves_others = self._waits.served[self._node] > self._served_before
        if is_lasting(fault):
            is_over = self._tries >= LASTING_TRIES
        else:
            is_over = now + seconds - self._began_at > self._waits.longest_s
            is_limited = fault["reason"] in ("rate_limit", "overloaded")
            is_over = is_over or (serves_others and not is_limited and self._tries >= LONE_TRIES)
        if not is_over:
            return seconds
        if serves_others or self._is_second:
            return None
        self._waits.stop.request(waiting_for(fault))
        self._waits.stop.check()
        return None

    def sleep(self, fault: ProviderFault, seconds: float, is_wanted: Callable[[], bool]) -> None:
        """Wait before the next attempt.

        Args:
            fault: The fault that ended the latest attempt.
            seconds: How long to wait.
            is_wanted: Returns whether a person wants the execution to pause or to end.

        Raises:
            Stopped: A stop is requested, of the sweep or of the execution.
        """
        self._waits.notice(fault, seconds)
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if is_wanted():
                raise Stopped("a person asked for the execution")
            self._waits.stop.wait(min(left, _LOOK_S))
