"""How often somebody may ask: token buckets, in memory that does not grow with those who ask."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

MOST_KEYS = 10_000  # whose buckets are kept: the one that was used least recently is forgotten, and full again


class Rates:
    """A bucket for each of those who ask: it fills at a rate, each request takes one, and an empty one refuses.

    Source: token bucket, as in RFC 2697.
    """

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = monotonic) -> None:
        """Make it.

        Args:
            per_s: How many are allowed in a second, on average.
            burst: How many at once.
            clock: Seconds.
        """
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what was in it, and when

    def take(self, key: str) -> float:
        """Take one.

        Args:
            key: Who asks.

        Returns:
            0, or the seconds after which they may ask again.
        """
        level = self._level(key)
        if level >= 1:
            self._buckets[key] = (level - 1, self._clock())
            self._buckets.move_to_end(key)
            if len(self._buckets) > MOST_KEYS:
                self._buckets.popitem(last=False)
        return self._wait(level)

    def _level(self, key: str) -> float:
        level, at = self._buckets.get(key, (float(self._burst), 0.0))
        return min(float(self._burst), level + (self._clock() - at) * self._per_s)

    def _wait(self, level: float) -> float:
        return 0.0 if level >= 1 else (1 - level) / self._per_s


def network_of(address: str | None) -> str:
    """Return by what an address is told from others: of IPv6 the half that names a network, which one person has."""
    try:
        found = ipaddress.ip_address(address or "")
    except ValueError:
        return str(address)
    return str(found) if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))
