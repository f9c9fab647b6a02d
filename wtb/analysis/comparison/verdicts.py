"""The verdicts of comparisons and how they combine. Pure.

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
    """Return the verdict on a whole from those on its parts: it is never more certain than they are."""
    verdicts = set(parts)
    # The order is the rule: a loss in any part decides, then every doubt, and only then a gain.
    for verdict in (WORSE, CANNOT_TELL, UNCLEAR, BETTER, NOT_WORSE):
        if verdict in verdicts:
            return verdict
    return SAME


def is_unclear(gate: GateVerdict) -> bool:
    """Return whether a gate compares with a baseline and the comparison is unclear."""
    return gate["holds"] is None and gate.get("verdict") == UNCLEAR


def passes(gate: GateVerdict, *, strict: bool = False) -> bool:
    """Return whether a gate lets a sweep pass: it holds or, unless strict, its comparison is unclear.

    Most comparisons are unclear if nothing got worse, and people should not be stopped by each of them. A gate that
    cannot be decided for any other reason does not pass.
    """
    return bool(gate["holds"]) or (is_unclear(gate) and not strict)
