"""Units of evidence: cases, or clusters of cases that came from one source and are not independent of each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import Floats

Units = NDArray[np.int64] | None  # the unit of each case; None where every case is its own
FEWEST = 6  # clusters: of fewer no test can give p < 0.05
FEW = 15  # clusters: from here on intervals cover as they say


def numbered(clusters: Sequence[str | None]) -> Units:
    """The unit of each case: the same number for the cases of a cluster, one of its own for a case without.

    None where no case has a cluster, so that each is its own unit.
    """
    if not any(clusters):
        return None
    names = [f"cluster {name}" if name else f"case {number}" for number, name in enumerate(clusters)]
    first = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([first[name] for name in names], dtype=np.int64)


def by_unit(values: Floats, units: Units) -> Floats:
    """What each unit says of the mean of each row, so that intervals for independent values hold.

    The mean over cases stays as it is: a unit stands for the sum of its cases, linearised around that mean (the ratio
    estimator of cluster samples; Cochran 1977, section 9.3).

    Args:
        values: rows x cases, NaN where missing.
        units: the unit of each case; None where every case is its own.

    Returns:
        rows x units, NaN where a row has no case of a unit.
    """
    if units is None:
        return values
    sums, counts, weight = _sums(values, units)
    means = sums.sum(axis=1, keepdims=True) / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return np.where(counts > 0, means + (sums - means * counts) * weight, np.nan)


def differences_by_unit(differences: Floats, units: Units) -> Floats:
    """The same for tests of differences: sums of cases, whose signs are as good as chance where nothing differs.

    Linearised around their mean they would not be, in few clusters of unequal sizes.
    """
    if units is None:
        return differences
    sums, counts, weight = _sums(differences, units)
    return np.where(counts > 0, sums * weight, np.nan)


def _sums(values: Floats, units: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
    """Of each row and unit: the sum and the number of cases; and units over cases, which makes sums into means."""
    present = np.isfinite(values)
    sums, counts = (np.zeros((int(units.max(initial=-1)) + 1, len(values))) for _ in range(2))
    np.add.at(sums, units, np.where(present, values, 0.0).T)
    np.add.at(counts, units, present.astype(float).T)
    weight = (counts > 0).sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
    return sums.T, counts.T, weight[:, None]
