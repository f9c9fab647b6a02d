"""Power of tests of pairs: effect sizes, detectable changes, pairs needed; and the sources of the noise of cells."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import NORMAL, Floats, is_constant, t_quantile, tail_quantile
from wtb.core.frozen import frozen

POWER = 0.8
PAIRS = 6  # fewer cannot give p < 0.05, whatever they show: 2 / 2**5 = 0.0625
Z_POWER = NORMAL.inv_cdf(POWER)
_DRAWS = 4_000  # random samples of the estimates of several rows
Change = float | None
_FEW_DIFFER = 40  # cases, on average: below it the exact test is coarse, and quick to compute
_MOST_DIFFER = 100  # cases: so many hardly ever differ where few do
_CLOSE = 5e-4  # of a change, which is shown with three digits
_MOST_PAIRS = 1e18  # more than anybody will ever run: a tiny effect would take infinitely many
_STEPS = 100  # of an iteration that converges within ten


def spreads(differences: Floats) -> Floats:
    """Return the standard deviation of each row of differences; NaN for fewer than two, and without variation."""
    deviations = np.full(len(differences), np.nan)
    for i, row in enumerate(differences):
        row = row[np.isfinite(row)]
        if row.size >= 2 and not is_constant(row):
            deviations[i] = row.std(ddof=1)
    return deviations


def detectable(spread: float | None, pairs: int, family: int = 1, rate: float | None = None) -> tuple[Change, Change]:
    """Return the smallest true fall and rise that pairs show with 80% power, at p < 0.05 after correction.

    Args:
        spread: The standard deviation of the differences if nothing changed.
        pairs: The number of pairs.
        family: How many tests are corrected over; if one row alone differs, its p has to pass all of it (Holm).
        rate: For scores that are 0 or 1, their mean without the change; None for other scores. A change of such scores
            makes more pairs differ, and there is no room for a rise at the ceiling, or for a fall at the floor.

    Returns:
        Both positive, in the unit of the scores; None without variation, for too few pairs, and without room.
    """
    if spread is None or pairs < PAIRS or 2.0 ** (1 - pairs) * family > 0.05:
        return None, None
    z = tail_quantile(0.025 / max(family, 1))
    if rate is not None:
        return _change_of_rate(spread**2, pairs, z, rate), _change_of_rate(spread**2, pairs, z, 1 - rate)
    change = spread * _noncentrality(pairs, z) / math.sqrt(pairs)
    return change, change


def _noncentrality(n: int, z: float) -> float:
    """Return the true mean of n pairs, in standard errors, whose t passes z with 80% (Johnson & Welch 1940)."""
    t = t_quantile(n - 1, z)
    return t * (1 - 1 / (4 * (n - 1))) + Z_POWER * math.sqrt(1 + t * t / (2 * (n - 1)))


def _change_of_rate(differing: float, n: int, z: float, room: float) -> Change:
    """Return the same for rates, whose test depends on how many cases differ, not on how many of them rise or fall.

    The exact test jumps from one difference to the next, which costs about one case (the continuity correction of
    McNemar's test). If few cases differ its power is computed exactly.

    Args:
        differing: The share of cases that differ if nothing changed.
        n: The number of pairs.
        z: The quantile that the test statistic has to exceed.
        room: The share of cases that can change in that direction, evenly drawn from these.
    """
    if room <= 0:
        return None
    differing, change, share = min(differing, 2 * min(room, 1 - room)), 0.0, 1.0
    # The share of cases that differ depends on the change, and the change that can be shown on the share.
    for _ in range(_STEPS):
        share = differing + change * (1 - differing / room)
        change = (z * math.sqrt(share) + Z_POWER * math.sqrt(max(share - change**2, 0.0))) / math.sqrt(n) + 1 / n
        change = min(change, room)
    if n * share < _FEW_DIFFER:
        return _exact_change(differing, n, 2 * (1 - NORMAL.cdf(z)), min(2 * change, room), room)
    return change if change < room else None


def _exact_change(differing: float, n: int, level: float, high: float, room: float) -> Change:
    """Return the change up to `high` that McNemar's exact test finds with 80%, by bisection; None if there is none."""
    if _exact_power(differing, high, n, level, room) < POWER:
        return None
    low = 0.0
    while high - low > _CLOSE:
        middle = (low + high) / 2
        low, high = (low, middle) if _exact_power(differing, middle, n, level, room) >= POWER else (middle, high)
    return high


def _exact_power(differing: float, change: float, n: int, level: float, room: float) -> float:
    """Return how often McNemar's exact test is significant in the right direction."""
    share = min(differing + change * (1 - differing / room), 1.0)
    ahead = min((share + change) / (2 * share), 1.0)  # of those that differ, the share that changes that way
    differ, wins, ways = _significant(level)
    chances = ways + wins * math.log(ahead) + (differ - wins) * math.log(max(1 - ahead, 1e-300))
    return float(np.exp(chances + _log_binomial(n, share)[differ]).sum())


@lru_cache(maxsize=32)
def _significant(level: float) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return counts of differing cases, counts in one direction, and log ways, wherever the test is significant."""
    logs, size = _log_factorials(_MOST_DIFFER), np.arange(_MOST_DIFFER)
    inside = size[None, :] <= size[:, None]
    ways = np.where(inside, logs[:, None] - logs[None, :] - logs[np.maximum(size[:, None] - size[None, :], 0)], -np.inf)
    tails = np.cumsum(np.exp(ways - size[:, None] * math.log(2))[:, ::-1], axis=1)[:, ::-1]
    differ, wins = np.nonzero(inside & (2 * tails < level))
    return differ, wins, ways[differ, wins]


def _log_binomial(n: int, share: float) -> Floats:
    """Return log the probability of each number of cases that differ, below _MOST_DIFFER."""
    logs, k = _log_factorials(max(n + 1, _MOST_DIFFER)), np.arange(_MOST_DIFFER)
    rest = np.maximum(n - k, 0)
    log_p = logs[n] - logs[k] - logs[rest] + k * math.log(share) + rest * math.log(max(1 - share, 1e-300))
    return np.where(k <= n, log_p, -np.inf)


@lru_cache(maxsize=8)
def _log_factorials(size: int) -> Floats:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, size)))])


def larger(changes: tuple[Change, Change]) -> Change:
    """Return the larger of two changes; None if there is none."""
    return max((change for change in changes if change is not None), default=None)


def pairs_needed(
    effects: Floats,
    spreads: Floats,
    z: float,
    correlation: Floats | None = None,
    *,
    rates: NDArray[np.bool_] | None = None,
) -> int:
    """Return about how many pairs show several true effects, all of them together 80 times of 100 (Guenther 1981).

    Args:
        effects: The true mean difference of each test, above 0.
        spreads: The standard deviation of the differences of each, in the same unit.
        z: The normal quantile that each test statistic has to exceed.
        correlation: Of the differences of the tests; None if they vary independently.
        rates: Which of them are of scores that are 0 and 1, whose exact test costs half a case.

    Returns:
        At least PAIRS.
    """
    count = len(effects)
    draws = np.full((1, 1), -Z_POWER)
    if count > 1:
        # The seed is fixed, so that equal figures always give the same number.
        draws = np.random.default_rng(count).standard_normal((_DRAWS, count))
        if correlation is not None:
            values, vectors = np.linalg.eigh(correlation)
            draws = draws @ (vectors * np.sqrt(np.clip(values, 0.0, None))).T
    is_rate = np.zeros(count, dtype=np.bool_) if rates is None else rates
    null_spreads = np.where(is_rate, np.hypot(spreads, effects), spreads)  # McNemar's test goes by how many differ
    with np.errstate(over="ignore", divide="ignore"):
        roots = np.minimum(np.maximum(z * null_spreads - draws * spreads, 0.0) / effects, _MOST_PAIRS)
    squares = np.where(is_rate, ((roots + np.sqrt(roots**2 + 2 / effects)) / 2) ** 2, roots**2 + z * z / 2)
    return max(PAIRS, math.ceil(min(float(np.quantile(squares.max(axis=1), POWER)), _MOST_PAIRS)))


@frozen(slots=True)
class Components:
    """Variances of one score of one cell.

    Attributes:
        case: How much cases differ in difficulty, beyond the differences of repeats of a case.
        common: The part that all rows share within a case: the randomness before the first varied node, which cancels
            in differences.
        nodes: The randomness of each varied node, in their order; shared by the rows that share the node.
        rest: The rest within a case: the randomness that no two rows share.
        cases: How many cases the estimates use.
        repeats: How many repeats the estimates use.
        incomplete: Cases that are left out because some of their scores are missing.
    """

    case: float
    common: float
    nodes: tuple[float, ...]
    rest: float
    cases: int
    repeats: int
    incomplete: int


def components(scores: Floats, shared: NDArray[np.int64], nodes: int) -> Components | None:
    """Decompose the variance.

    Args:
        scores: Rows x cases x repeats, NaN where missing; only complete cases count.
        shared: Rows x rows, how many of the varied nodes two rows pass as one execution (their common prefix).
        nodes: How many varied nodes there are.

    Returns:
        None for fewer than two repeats or complete cases. Negative estimates become 0.
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
        # Rows that share more nodes cannot share less randomness, so an estimate that falls is noise.
        covariance = min(max(float(products[pairs].mean()), before), within)
        steps.append(covariance - before)
        before = covariance
    common, *own = steps
    return Components(
        max(between, 0.0), common, tuple(own), max(within - before, 0.0), cases, repeats, int((~complete).sum())
    )
