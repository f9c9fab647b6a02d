"""pass@k and pass^k: whether one of k repeats of a case passes, or all of them do."""

from __future__ import annotations

import re
from math import comb
from typing import Final, Literal, NamedTuple

PASSES: Final = r"pass[@^][1-9][0-9]{0,3}"
Kind = Literal["pass@", "pass^"]


class Passes(NamedTuple):
    """A figure over the repeats of a case.

    kind: pass@ if one of k repeats has to pass, pass^ if all of them have to.
    """

    kind: Kind
    k: int

    def __str__(self) -> str:
        return f"{self.kind}{self.k}"

    def estimate(self, repeats: int, passed: int) -> float | None:
        """Estimate a case's figure without bias from all of its repeats, of which so many passed.

        It is the share of all choices of k repeats in which one passes, or all do (Chen et al. 2021, for pass@k); None
        for fewer than k repeats.
        """
        if repeats < self.k:
            return None
        if self.kind == "pass^":
            return comb(passed, self.k) / comb(repeats, self.k)
        return 1 - comb(repeats - passed, self.k) / comb(repeats, self.k)


def read_passes(text: str | None) -> Passes | None:
    """Return the figure of this name, such as pass@3; None if it is no such figure."""
    if text is None or not re.fullmatch(PASSES, text):
        return None
    return Passes("pass@" if text[4] == "@" else "pass^", int(text[5:]))
