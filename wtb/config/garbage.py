"""Garbage collection in processes of our own: commands, workers, node processes. A user's program has its own way."""

from __future__ import annotations

import gc

# How many new objects there are before the young are looked through, and how often the older ones then. Python's 700
# are passed three times in each node run, which finds next to nothing and takes a fifth of a short one.
THRESHOLDS = (20_000, 10, 10)


def start_collecting() -> None:
    """Collect garbage from now on, but nothing that is there already: what was imported stays."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()
