"""The nights of a series by their code: which count as repeats of the reference, and which are tested."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from wtb.analysis.comparison.changes import changed_code
from wtb.analysis.statistics.missing.claims import SIGNIFICANT
from wtb.analysis.statistics.sequential.nights import BASELINE, FIRST, JOINING, WINDOW
from wtb.core.classes.frozen import frozen
from wtb.store.tables.sweeps import SweepRow


@frozen
class PastNight:
    """A night before tonight.

    Attributes:
        sweep: Its sweep.
        is_worse: Whether it was called worse.
        was_accepted: Whether it became the baseline, or is a fire of a schedule that ended well.
        is_early: Whether it is one of the first, which may count as repeats of the reference.
    """

    sweep: SweepRow
    is_worse: bool
    was_accepted: bool
    is_early: bool


@frozen
class Line:
    """A reference and the nights after it, up to tonight.

    Attributes:
        reference: The sweep that does not move.
        baseline: The sweep that tonight is compared with, which may move every night.
        repeats: Repeats of the reference.
        nights: Nights before tonight, the oldest first.
        tonight: The sweep of tonight.
        number: Which night tonight is, from 1.
    """

    reference: SweepRow
    baseline: SweepRow
    repeats: Sequence[SweepRow]
    nights: Sequence[PastNight]
    tonight: SweepRow
    number: int

    @cached_property
    def has_new_code(self) -> bool:
        """Return whether no sweep before tonight had its code, so that this is the first look at a change."""
        earlier = [self.reference, self.baseline, *(night.sweep for night in reversed(self.nights))]
        return not any(is_same_code(sweep, self.tonight) for sweep in earlier)

    @property
    def level(self) -> float:
        """Below which p a fall against the baseline counts.

        The first look at new code is a question of its own, as in a pull request. Nights without new code share 5%.
        """
        if self.has_new_code:
            return SIGNIFICANT
        return FIRST if self.number == 1 else BASELINE

    @cached_property
    def block(self) -> list[SweepRow]:
        """The reference with its repeats, and the first nights of the same code that were not worse."""
        joining = [
            night.sweep
            for night in self.nights
            if night.is_early and not night.is_worse and is_same_code(self.reference, night.sweep)
        ]
        return [self.reference, *self.repeats, *joining][: 1 + JOINING]

    @cached_property
    def accepted(self) -> list[SweepRow]:
        """The nights that were accepted, or have tonight's code: others were changes that were not kept."""
        return [night.sweep for night in self.nights if night.was_accepted or is_same_code(night.sweep, self.tonight)]

    @cached_property
    def tested(self) -> list[SweepRow]:
        """The last nights that belong to the line, and tonight; none that is in the block."""
        block = {sweep.id for sweep in self.block}
        return [*[sweep for sweep in self.accepted if sweep.id not in block][-WINDOW + 1 :], self.tonight]


def is_same_code(first: SweepRow, second: SweepRow) -> bool:
    """Return whether two sweeps have the same variants, of the same code."""
    names = [{node: set(variants) for node, variants in sweep.fingerprints.items()} for sweep in (first, second)]
    return names[0] == names[1] and not changed_code(first, second)
