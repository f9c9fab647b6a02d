"""How much of 5% a later look may use, so that all looks at the same cases together are seldom wrong.

The first look has the whole level. What comes after it shares another half of it, however many looks follow, so false
claims of a gain stay below 3.75% and of any difference below 7.5%. An earlier look counts by the cases that it had:
what chance showed in a few of them says little about all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from wtb.analysis.statistics.power.pairs import PAIRS
from wtb.core.classes.frozen import frozen

LATER: Final = 0.5  # of the level, for all looks after the first together
WHOLE: Final = 4  # times as many cases: below that, a look at them is another at the same question


@frozen
class EarlierLook:
    """A sweep that was looked at before another one.

    Attributes:
        share: Of the other one's cases, the part that it had.
        cases: How many cases it had itself.
        combinations: How many it compared with its baseline.
    """

    share: float
    cases: int
    combinations: int


def count_before(looks: Iterable[EarlierLook], new: int) -> float:
    """Return how many combinations count as tried before.

    Each counts in each look, by the share of the cases that the look had. So fifty smoke tests over 3 of 300 cases
    count as half a combination. But whoever looks at 50, 200, 800 cases claims something each time, and each time most
    of the cases are new: a look that had a quarter of them, and could claim anything, counts as whole for as many
    combinations as are new.

    Args:
        looks: Those before.
        new: How many combinations are compared now.
    """
    looks = list(looks)
    each = sum(look.share * look.combinations for look in looks)
    claims = (min(1.0, WHOLE * look.share) * min(look.combinations, new) for look in looks if look.cases >= PAIRS)
    return max(each, max(claims, default=0.0))


def spendable(before: float, new: int) -> float:
    """Return the part of 5% that `new` combinations may use after so many others: all of it if they are the first.

    Parts that are used one after the other come to no more than LATER together, however many follow. Less than one
    combination before costs in proportion.
    """
    if before < 1:
        return 1 - max(before, 0.0) * (1 - spendable(1, new))
    first, last = math.sqrt(before), math.sqrt(before + max(new, 1))
    return LATER * max(new, 1) / (first * last * (first + last))  # 1 / first - 1 / last, which could round to 0


def share_of_next(earlier: Iterable[EarlierLook], now: int, new: int, cases: int) -> float:
    """Return the part of 5% that a sweep of the same combinations over more cases may use.

    Args:
        earlier: The looks before a sweep.
        now: How many cases it has.
        new: How many combinations it compares.
        cases: How many cases the next one has, these among them.
    """
    part = min(1.0, now / cases)
    looks = [*(replace(look, share=look.share * part) for look in earlier), EarlierLook(part, now, new)]
    return spendable(count_before(looks, new), new)
