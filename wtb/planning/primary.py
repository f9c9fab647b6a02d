"""The metric that decides: whether a sweep got worse, and which of its combinations is the best."""

from __future__ import annotations

from collections.abc import Iterable

from wtb.authoring.evaluation.built_in import MEASURED
from wtb.core.tree.stored_spec import StoredSpec

MEASURED_NAMES = frozenset(fn.__name__ for fn in MEASURED)  # of what a cell takes, not of what it comes to


def primary_of(spec: StoredSpec, metrics: Iterable[str]) -> str | None:
    """The name of the metric that decides.

    Args:
        spec: a stored sweep; its `primary`, where it has one, and its `best`.
        metrics: those that there are, in their order.

    Returns:
        Else the one that `best` is about, else the first, of those that are not about what a cell takes (built-in cost,
        latency, tokens, node runs); else the first of all.
    """
    names = list(metrics)
    if primary := spec.get("primary"):
        return primary
    best = spec.get("best") or {}
    wanted = best.get("maximize") or best.get("minimize")
    if wanted in names and wanted not in MEASURED_NAMES:
        return wanted
    return next((name for name in names if name not in MEASURED_NAMES), names[0] if names else None)
