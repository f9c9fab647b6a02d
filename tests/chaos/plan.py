"""What happens in a storm, and in which order: the same for the same seed."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """How many cells there are, and how often what goes wrong."""

    cells: int
    kills: int
    zombies: int
    flushes: int
    crashes: int  # of each server
    seed: int = 4

    def faults(self) -> list[str]:
        """All of them, shuffled."""
        counts = {
            "kill": self.kills,
            "zombie": self.zombies,
            "flush": self.flushes,
            "crash the broker": self.crashes,
            "crash the database": self.crashes,
        }
        found = [name for name, count in counts.items() for _ in range(count)]
        random.Random(self.seed).shuffle(found)
        return found


LONG = Plan(cells=2000, kills=100, zombies=20, flushes=10, crashes=5)
SHORT = Plan(cells=152, kills=8, zombies=2, flushes=1, crashes=1)
