"""The metric that decides: whether a sweep got worse, and which of its combinations is the best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wtb.evaluation import MEASURED

_MEASURED = {fn.__name__ for fn in MEASURED}


def primary_of(spec: Mapping[str, Any], metrics: Iterable[str]) -> str | None:
    """The name of the metric that decides.

    Args:
        spec: a stored sweep; its `primary`, where it has one.
        metrics: those that there are, in their order.

    Returns:
        Else the first that is not what a cell takes (built-in cost, latency, tokens, node runs), else the first of all.
    """
    names = list(metrics)
    if spec.get("primary"):
        return str(spec["primary"])
    return next((name for name in names if name not in _MEASURED), names[0] if names else None)
