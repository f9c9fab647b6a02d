"""The Pareto front: what nothing else beats in every respect at once."""

from __future__ import annotations

import numpy as np

from wtb.analysis.statistics.intervals import Floats


def front(costs: Floats) -> list[int]:
    """The rows of `costs` (rows x respects, less is better) that no other row dominates, in their order.

    A row dominates another where it is nowhere worse and somewhere better. Rows with a NaN are left out.
    """
    numbers = np.flatnonzero(np.isfinite(costs).all(axis=1))
    candidates = costs[numbers]
    return [
        int(number)
        for number, row in zip(numbers, candidates, strict=True)
        if not ((candidates <= row).all(axis=1) & (candidates < row).any(axis=1)).any()
    ]
