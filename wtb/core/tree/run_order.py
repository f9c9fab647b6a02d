"""The order in which what is compared begins: random, so that nobody is always first, and the same in every run.

Whoever begins first pays for what is not warm yet, and meets a machine in another state than the last. The order comes
from the seed that the sweep records, so it is known afterwards, and does not depend on who runs what.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def mixed(things: Iterable[T], *place: object) -> list[T]:
    """The things in an order that depends on the place alone: the sweep's seed, and where in the sweep it is."""
    shuffled = list(things)
    if len(shuffled) > 1:
        random.Random(hashlib.sha256(repr(place).encode()).digest()).shuffle(shuffled)
    return shuffled


def case_order(clusters: Sequence[str | None], seed: int, firsts: Sequence[int] = ()) -> list[int]:
    """The numbers of a sweep's cases in the order in which they begin, those of a cluster together.

    It rests on the seed and on what cases there are, so it is known of every sweep, and no result can have changed it:
    whoever looks at the first of them in this order sees a random sample, however quick each was.

    Args:
        clusters: that of each case, None of one without.
        seed: of the sweep.
        firsts: the places in `clusters` at which cases begin that were added later; they come after those before them.
    """
    if firsts:
        ends = [0, *firsts, len(clusters)]
        parts = [clusters[start:end] for start, end in itertools.pairwise(ends)]
        return [start + place for start, part in zip(ends, parts, strict=False) for place in case_order(part, seed)]
    if not any(clusters):
        return mixed(range(len(clusters)), seed, 0)
    units: dict[object, list[int]] = {}
    for number, name in enumerate(clusters):
        units.setdefault(name or (number,), []).append(number)
    return [number for unit in mixed(units.values(), seed, 0) for number in unit]


def is_held_out(share: float, seed: int, case: str, cluster: str | None) -> bool:
    """Return whether a case is one of those that are kept for the end: about a share of them, whole clusters.

    It rests on the seed and the case's name alone, so that it stays so when others are added.
    """
    place = (seed, "cluster", cluster) if cluster else (seed, "case", case)
    return _drawn(place) < share * 2**64


def place_of(seed: int, case: str) -> int:
    """Return the place of a case in a random order of all cases, from 0 to 2**64: the first are a random sample.

    It rests on the seed and the case's name alone.
    """
    return _drawn((seed, "sample", case))


def _drawn(place: tuple[object, ...]) -> int:
    return int.from_bytes(hashlib.sha256(repr(place).encode()).digest()[:8])
