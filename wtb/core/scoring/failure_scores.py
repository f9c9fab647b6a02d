"""Scores of failed cells: the failures that are results, and their score by a metric.

A result has a score by every metric whose evaluator or scale declares the score of a failure; a missing cell has none.
These scores are not stored: they are applied when scores are read, so that the declaration may be changed afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from wtb.core.scoring.scores import LEFT_OUT, OnFailure
from wtb.core.texts import plural

if TYPE_CHECKING:
    from wtb.core.tree.stored_spec import StoredSpec

Counts = Literal["result", "missing"]

# The ways in which a cell ends without a final state, and what they count as unless the sweep file declares it.
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
# The share of a combination's cells that a provider may lose before the rest counts as no fair sample of them.
MOST_LOST: Final = 0.05
_WORKER_LOST = "WorkerLost"


def kind_of(status: str, kind: str | None, type_: str | None) -> str:
    """Return one of KINDS for a cell of this status with a failure of this kind and type."""
    if status == "skipped":
        return status
    if status == "cancelled":
        return "rejected" if kind == "rejected" else status
    # A lost worker is no evidence about the code under test, although the failure is stored as killed.
    if type_ == _WORKER_LOST:
        return "lost"
    return kind if kind is not None and kind in KINDS else "error"


def results(spec: StoredSpec) -> frozenset[str]:
    """Return the kinds that are results in a sweep."""
    meanings = {**KINDS, **(spec.get("failure_kinds") or {})}
    return frozenset(kind for kind in KINDS if meanings[kind] == "result")


def failure_score(own: OnFailure | None, worst: float | None, spec: StoredSpec) -> float | None:
    """Return the score of a failed cell by a metric; None if it is left out.

    The declaration of the metric's evaluator (`own`) counts, else that of the sweep, else the worse end of the scale.
    """
    declared = spec.get("on_failure") if own is None else own
    if declared == LEFT_OUT:
        return None
    return worst if declared is None else float(declared)


def hangs_on(count: int) -> str:
    """Return `hangs on 41 missing cells`."""
    return f"hangs on {plural(count, 'missing cell')}"


def unseen(one_in: int, *, is_gain: bool) -> str:
    """Return why small gains, or small losses, in all cases are not claimed.

    Args:
        one_in: Differences rarer than 1 in so many cases cannot show.
        is_gain: Whether it is gains that are small.
    """
    rare, small = ("loss", "gains") if is_gain else ("gain", "losses")
    return f"a {rare} rarer than 1 in {one_in:,} cases cannot show here and could cancel {small} this small"


def cure(sweep_id: str, reasons: Collection[str], *, can_declare: bool) -> str:
    """Return the advice about missing cells.

    Args:
        sweep_id: The sweep that lacks them.
        reasons: Why they are missing: `provider`, `evaluator` or `failed`.
        can_declare: Whether nothing is declared yet for failed cells.
    """
    commands = []
    if "provider" in reasons:
        commands.append(f"run lost cells again with `wtb retry {sweep_id} --provider`")
    if "evaluator" in reasons:
        commands.append(f"score again with `wtb score {sweep_id}`")
    if "failed" in reasons:
        declare = "declare `scale` or `on_failure`, or " if can_declare else ""
        commands.append(f"{declare}run failed cells again with `wtb retry {sweep_id} --failed`")
    return " and ".join(commands) or "with these at their worst it could be chance"
