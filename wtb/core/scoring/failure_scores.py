"""What a failed cell counts as: which failures are results, and which score they have by a metric.

A result has a score by every metric that says, or whose scale says, what a failure counts as; what is missing has
none. Nothing of it is stored with the scores: it is applied where they are read, so that it may be changed afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from wtb.core.scoring.scales import LEFT_OUT, OnFailure

if TYPE_CHECKING:
    from wtb.core.tree.stored_spec import StoredSpec

Counts = Literal["result", "missing"]

# The ways in which a cell ends without a final state, and what they count as where the sweep file says nothing.
KINDS: Final[Mapping[str, Counts]] = MappingProxyType(
    {
        "error": "result",
        "timeout": "result",
        "state": "result",
        "routing": "result",
        "killed": "result",
        "budget": "missing",
        "provider": "missing",
        "disk": "missing",
        "lost": "missing",
        "rejected": "missing",
        "cancelled": "missing",
        "skipped": "missing",
    }
)
ENDS: Final = ("failed", "set_aside", "cancelled", "skipped")  # statuses of cells that have no final state
# The share of a combination's cells that a provider may lose before the rest is no fair sample of them.
MOST_LOST: Final = 0.05
_WORKER_LOST = "WorkerLost"


def kind_of(status: str, kind: str | None, type_: str | None) -> str:
    """One of KINDS, of a cell of this status with a failure of this kind and type."""
    if status == "skipped":
        return status
    if status == "cancelled":
        return "rejected" if kind == "rejected" else status
    if type_ == _WORKER_LOST:
        return "lost"
    return kind if kind is not None and kind in KINDS else "error"


def results(spec: StoredSpec) -> frozenset[str]:
    """The kinds that are results in a sweep."""
    meanings = {**KINDS, **(spec.get("failure_kinds") or {})}
    return frozenset(kind for kind in KINDS if meanings[kind] == "result")


def failure_score(own: OnFailure | None, worst: float | None, spec: StoredSpec) -> float | None:
    """The score of a failed cell by a metric, None where it is left out.

    What the metric's evaluator declares counts (own), else what the sweep does, else the worse end of its scale.
    """
    declared = spec.get("on_failure") if own is None else own
    if declared == LEFT_OUT:
        return None
    return worst if declared is None else float(declared)
