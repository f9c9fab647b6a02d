"""Thresholds: which scores pass."""

from __future__ import annotations

import math

from wtb.core.classes.frozen import frozen


@frozen
class Threshold:
    """The scores that pass: from the lower end to the upper one, both included."""

    at_least: float = -math.inf
    at_most: float = math.inf

    def passes(self, score: float) -> bool:
        """Return whether a score passes."""
        return self.at_least <= score <= self.at_most
