"""Main effects of nodes and interactions of pairs of nodes, with the case as the block.

Each case's scores are fitted by least squares under sum-to-zero coding, so that an effect is how far a variant lies
from the middle of its node's, the others being equal; what is told of an effect is the mean over cases. A node, or a
pair, is tested as a whole: one sign for all effects of a case (Fisher 1935), and the sum of the squared means.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wtb.statistics.intervals import RESAMPLES, Floats, chunks, intervals
from wtb.statistics.paired import EXACT_PAIRS, Signs, flips, holm

Levels = NDArray[np.int64]
MAX_PAIRS = 66  # of nodes: twelve nodes
_ROUNDING = 1e-10  # of the largest score of a case; a smaller effect comes from solving for it
_SLACK = 1e-5  # relative; sums of squares, in single precision, that differ by less are the same


@dataclass(frozen=True)
class Effects:
    """Effects of one node (one entry a variant) or of a pair (variants x variants), flat, with their intervals.

    `factors` are the numbers of the nodes. `share` is of the variance of the combinations' means.
    """

    factors: tuple[int, ...]
    share: float
    p: float
    p_adjusted: float
    means: Floats
    ci: Floats


@dataclass(frozen=True)
class Fit:
    """aliased: nodes whose effects cannot be told from those of others. untold: the same of pairs."""

    nodes: list[Effects]
    pairs: list[Effects]
    unexplained: float
    aliased: list[int]
    untold: list[tuple[int, int]]


def fit(scores: Floats, levels: Levels, seed: int) -> Fit:
    """Effects on `scores` (combinations x cases, complete, whose means vary) of `levels` (combinations x nodes).

    Every node has variants 0 to its highest, each in some combination. At least two of them, and two cases.
    """
    coded = [_coded(column) for column in levels.T]
    main = np.hstack([np.ones((len(levels), 1)), *coded])
    aliased = _aliased(main, coded)
    told = [node for node in range(len(coded)) if node not in aliased]
    pairs, untold = _estimable(main, coded, told)
    whole = np.hstack([main, *(_products(coded[a], coded[b]) for a, b in pairs)])
    alone, together = (np.linalg.pinv(design) @ scores for design in (main, whole))
    for effects in (alone, together):
        effects[np.abs(effects) <= _ROUNDING * np.abs(scores).max(axis=0)] = 0.0
    starts = np.cumsum([1, *(columns.shape[1] for columns in coded)]).tolist()
    per_case: list[Floats] = [_expanded(alone[starts[node] : starts[node + 1]]) for node in told]
    parts = [effects.mean(axis=1)[levels[:, node]] for node, effects in zip(told, per_case, strict=True)]
    start = starts[-1]
    for a, b in pairs:
        shape = coded[a].shape[1], coded[b].shape[1], scores.shape[1]
        grid = together[start : start + shape[0] * shape[1]].reshape(shape)
        grid = _expanded(_expanded(grid).swapaxes(0, 1)).swapaxes(0, 1)
        per_case.append(grid.reshape(-1, shape[2]))
        parts.append(grid.mean(axis=2)[levels[:, a], levels[:, b]])
        start += shape[0] * shape[1]
    means = scores.mean(axis=1)
    factors = [*((node,) for node in told), *pairs]
    found = _summarised(factors, per_case, [float(part.var() / means.var()) for part in parts], len(told), seed)
    rest = means - whole @ (np.linalg.pinv(whole) @ means)
    return Fit(found[: len(told)], found[len(told) :], float((rest**2).mean() / means.var()), aliased, untold)


def _summarised(
    factors: list[tuple[int, ...]], per_case: list[Floats], shares: list[float], nodes: int, seed: int
) -> list[Effects]:
    """Means, intervals and tests of effects of each case; p is corrected over the nodes, and over the pairs."""
    if not per_case:
        return []
    p = _joint_flip(per_case, seed)
    adjusted = np.concatenate([holm(p[:nodes]), holm(p[nodes:])])
    ci = np.split(intervals(np.vstack(per_case), seed), np.cumsum([len(effects) for effects in per_case])[:-1])
    means = [effects.mean(axis=1) for effects in per_case]
    return [Effects(*row) for row in zip(factors, shares, p.tolist(), adjusted.tolist(), means, ci, strict=True)]


def _aliased(main: Floats, coded: list[Floats]) -> list[int]:
    """Nodes that bring less into the design than they have variants, since others always change with them."""
    rank = _rank(main)
    others = (np.hstack([main[:, :1], *coded[:node], *coded[node + 1 :]]) for node in range(len(coded)))
    return [node for node, rest in enumerate(others) if rank - _rank(rest) < coded[node].shape[1]]


def _coded(column: Levels) -> Floats:
    """Sum-to-zero columns of a node: the last variant is the negative sum of the others."""
    last = int(column.max())
    return np.asarray(np.eye(last + 1)[column][:, :last] - (column == last)[:, None])


def _products(a: Floats, b: Floats) -> Floats:
    return np.asarray(a[:, :, None] * b[:, None, :]).reshape(len(a), -1)


def _expanded(effects: Floats) -> Floats:
    """With the effect of the last variant, which the sum-to-zero coding leaves out."""
    return np.concatenate([effects, -effects.sum(axis=0, keepdims=True)])


def _estimable(
    main: Floats, coded: list[Floats], nodes: list[int]
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Pairs of nodes whose interaction can be told apart from the rest, and those for which it cannot."""
    pairs = list(itertools.combinations(nodes, 2))
    if len(pairs) > MAX_PAIRS:
        return [], pairs
    design = main
    kept: list[tuple[int, int]] = []
    for a, b in pairs:
        wider = np.hstack([design, _products(coded[a], coded[b])])
        if wider.shape[1] <= len(main) and _rank(wider) == wider.shape[1]:
            design = wider
            kept.append((a, b))
    return kept, [pair for pair in pairs if pair not in kept]


def _rank(design: Floats) -> int:
    return int(np.linalg.matrix_rank(design))


def _principal(effects: Floats) -> Floats:
    """Fewer rows with the same sums of squares: effects that sum to zero depend on each other."""
    values, vectors = np.linalg.eigh(effects @ effects.T)
    return np.asarray(vectors[:, values > 1e-12 * values[-1]].T @ effects) if values[-1] > 0 else effects[:1]


def _joint_flip(groups: list[Floats], seed: int) -> Floats:
    """p of each group of effects (effects x cases): one random sign for all of a case's."""
    groups = [_principal(effects) for effects in groups]
    stacked = np.vstack(groups)
    starts = np.cumsum([0, *map(len, groups[:-1])])
    moved = (stacked[:, (stacked != 0).any(axis=0)] / (np.abs(stacked).max() or 1.0)).astype(np.float32)
    cases = moved.shape[1]
    observed = np.add.reduceat(moved.sum(axis=1) ** 2, starts)[:, None] * (1 - _SLACK)

    def extreme(signs: Signs) -> NDArray[np.bool_]:
        sums = moved @ signs.T
        sums *= sums
        return np.asarray(np.add.reduceat(sums, starts, axis=0) >= observed)

    if cases <= EXACT_PAIRS:
        signs = 1 - 2 * (np.arange(2**cases)[:, None] >> np.arange(cases) & 1)
        return np.asarray(extreme(signs.astype(np.float32)).mean(axis=1), dtype=np.float64)
    rng = np.random.default_rng([abs(seed), 2])
    hits = np.ones(len(groups))
    for count in chunks(cases):
        hits += extreme(flips(cases, count, rng, np.float32)).sum(axis=1)
    return hits / (RESAMPLES + 1)
