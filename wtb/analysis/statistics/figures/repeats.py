"""Figures over the repeats of a case: pass@k and pass^k, which are means over cases of what each case's repeats say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import Floats
from wtb.core.scoring.passes import Passes


def over_repeats(passes: Passes, rates: Floats, repeats: NDArray[Any]) -> Floats:
    """Estimate the figure of each case.

    Args:
        passes: The figure.
        rates: The shares of repeats that passed, of any shape.
        repeats: How many there are of each.

    Returns:
        Estimates of the same shape; NaN for fewer than k repeats.
    """
    counts = np.column_stack([repeats.ravel(), np.rint(np.nan_to_num(rates.ravel()) * repeats.ravel())])
    kinds, place = np.unique(counts.astype(np.int64), axis=0, return_inverse=True)
    estimates = [passes.estimate(n, passed) for n, passed in kinds.tolist()]
    values = np.array([np.nan if estimate is None else estimate for estimate in estimates], dtype=np.float64)
    return np.asarray(values[place.ravel()].reshape(rates.shape))
