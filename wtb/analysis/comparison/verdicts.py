"""The words in which two sweeps are compared, and what follows from them. Pure.

- same: equal scores in every case.
- worse, better: a fall, or a rise, that is not chance (p < 5%, corrected).
- not worse: less was lost than the margin that would matter, with an error of 5%.
- unclear: none of these; so many cases cannot tell.
- cannot tell: there is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from wtb.core.documents.matrix import GateVerdict, Verdict

WORSE: Final = "worse"
BETTER: Final = "better"
SAME: Final = "same"
NOT_WORSE: Final = "not worse"
UNCLEAR: Final = "unclear"
CANNOT_TELL: Final = "cannot tell"


def overall(parts: Iterable[Verdict]) -> Verdict:
    """The verdict on a whole of which the parts have these: it is no better known than its parts."""
    verdicts = set(parts)
    for verdict in (WORSE, CANNOT_TELL, UNCLEAR, BETTER, NOT_WORSE):
        if verdict in verdicts:
            return verdict
    return SAME


def is_unclear(gate: GateVerdict) -> bool:
    """Return whether a gate asked for a comparison with a baseline, and that is unclear."""
    return gate["holds"] is None and gate.get("verdict") == UNCLEAR


def passes(gate: GateVerdict, *, strict: bool = False) -> bool:
    """Return whether a gate lets a sweep pass: where it holds, and, unless strict, where the comparison is unclear.

    Where nothing got worse most comparisons are, so that a person is not stopped by each. One that cannot be told for
    another reason lets nothing pass.
    """
    return bool(gate["holds"]) or (is_unclear(gate) and not strict)
