"""Where the noise of repeated cells comes from: cases, nodes, and what is left (method of moments on the tree)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import Floats
from wtb.core.classes.frozen import frozen


@frozen(slots=True)
class Components:
    """Variances of one score of one cell.

    Attributes:
        case: how much cases differ in difficulty, beyond what repeats of a case differ by.
        common: what all rows share within a case: the randomness before the first varied node, which differences lack.
        nodes: what the randomness of each varied node adds, in their order; shared by the rows that share the node.
        rest: what is left within a case: the randomness that no two rows share.
        cases, repeats: how many of each the estimates rest on.
        incomplete: cases that are left out because some of their scores are missing.
    """

    case: float
    common: float
    nodes: tuple[float, ...]
    rest: float
    cases: int
    repeats: int
    incomplete: int


def components(scores: Floats, shared: NDArray[np.int64], nodes: int) -> Components | None:
    """Take the variance apart.

    Args:
        scores: rows x cases x repeats, NaN where missing; only cases with all scores count.
        shared: rows x rows, how many of the varied nodes two rows go through as one execution does (their common
            prefix).
        nodes: how many varied nodes there are.

    Returns:
        None for fewer than two repeats or cases that have all scores. Estimates that fall below 0 are 0.
    """
    complete = np.isfinite(scores).all(axis=(0, 2))
    scores = scores[:, complete]
    rows, cases, repeats = scores.shape
    if repeats < 2 or cases < 2 or not rows:
        return None
    means = scores.mean(axis=2)
    moved = (scores - means[:, :, None]).reshape(rows, -1)
    products = moved @ moved.T / (cases * (repeats - 1))  # covariances within cases
    within = float(np.diag(products).mean())
    between = float(means.var(axis=1, ddof=1).mean()) - within / repeats
    steps, before = [], 0.0
    for depth in range(nodes + 1):
        pairs = (shared == depth) & ~np.eye(rows, dtype=bool)
        if not pairs.any():
            steps.append(0.0)
            continue
        covariance = min(max(float(products[pairs].mean()), before), within)
        steps.append(covariance - before)
        before = covariance
    common, *own = steps
    return Components(
        max(between, 0.0), common, tuple(own), max(within - before, 0.0), cases, repeats, int((~complete).sum())
    )
