"""What was tried over the same cases before: whoever tries long enough finds a combination that seems better by luck.

Nothing of it is stored: it is what the sweeps say that were submitted before this one. A combination is what it changes
from its baseline, with the code that it had, so the same one in two sweeps is one, and another code of the same name
another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from wtb.core.tree.run_order import case_order
from wtb.store.database import Database
from wtb.store.read import aggregates, outcomes
from wtb.store.rows.sweeps import SweepRow

SAME = 0.5  # of a sweep's cases: another one that has as many is over the same
COMPARED = 200  # cases, drawn at random, by which that is found out

Key = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Tried:
    """Combinations other than the baseline that were tried over some cases, this sweep's included.

    n: how many. before: those of them that only other sweeps had, so many (`sweeps`). share: the part of the level that
    what this sweep adds may use. uses: of cases that were kept for the end, how often they were used before.
    """

    n: int
    before: int = 0
    sweeps: int = 0
    share: float = 1.0
    uses: int = 0


def spendable(before: int, new: int) -> float:
    """The part of 5% that `new` combinations may use after so many others: all of it where they are the first.

    Parts that are used one after the other, after the first, come to no more than 1 together, however many follow, so
    a search that goes on and on is wrong in twice 5%, and half of that in claims that something is better.
    """
    if before <= 0:
        return 1.0
    return 1 / math.sqrt(before) - 1 / math.sqrt(before + max(new, 1))


class Ledger:
    """What was tried over the cases of a sweep before it."""

    def __init__(self, database: Database, sweep: SweepRow, choices: Sequence[Mapping[str, str]]) -> None:
        self._database = database
        self._sweep = sweep
        self._mine = _keys(choices, sweep.spec.get("baseline_row"), sweep.fingerprints)

    def tried(self, metric: str) -> Tried:
        """What counts for a metric."""
        tried, finals = self._before
        scored = outcomes.scored(self._database, tried, metric) if tried else set()
        uses = [tried[id] for id in scored if id in finals]
        others: set[Key] = set().union(*(tried[id] for id in scored - finals))
        mine = self._mine
        before = len(others - mine) + sum(map(len, uses))
        part = spendable(before, len(mine) if uses else len(mine - others))
        sweeps = sum(1 for id in scored if id in finals or tried[id] - mine)
        return Tried(before + len(mine), before, sweeps, part, len(uses))

    def share_of_one_more(self, metric: str) -> float:
        """The part of the level that a combination may use which is tried after all of these."""
        return spendable(self.tried(metric).n, 1)

    @cached_property
    def _before(self) -> tuple[dict[str, set[Key]], set[str]]:
        """Sweep -> its combinations, of those over the same cases that count.

        Also the sweeps that used cases that are to be used once: all that was tried there counts.
        """
        if self._sweep.kind != "sweep":
            return {}, set()
        rows = [row for row in outcomes.earlier_sweeps(self._database, self._sweep) if row.id != self._sweep.id]
        keys_by_sweep = {row.id: _keys(row.choices, row.baseline, row.fingerprints) for row in rows}
        keys_by_sweep = {id: keys for id, keys in keys_by_sweep.items() if keys}
        finals = {row.id for row in rows if row.final} if self._sweep.spec.get("final") else set()
        if not finals and not any(keys - self._mine for keys in keys_by_sweep.values()):
            return {}, set()
        numbers = aggregates.case_numbers(self._database, self._sweep.id)
        drawn = [numbers[place] for place in case_order([None] * len(numbers), 0)[:COMPARED]]
        least = max(1, math.ceil(SAME * len(drawn)))
        same = outcomes.over_same_cases(self._database, self._sweep.id, keys_by_sweep, drawn, least)
        return {id: keys_by_sweep[id] for id in same}, finals


def _keys(
    choices: Sequence[Mapping[str, str]], baseline: Mapping[str, str] | None, code: Mapping[str, Mapping[str, str]]
) -> set[Key]:
    """What each combination changes from the baseline; without the baseline, which changes nothing."""
    usual = baseline or {}
    found = (
        frozenset(
            (node, code.get(node, {}).get(variant, variant))
            for node, variant in choice.items()
            if usual.get(node) != variant
        )
        for choice in choices
    )
    return {key for key in found if key}
