"""Columns of the design for factors and pairs, and what the combinations can tell of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import Floats
from wtb.core.classes.frozen import frozen

Levels = NDArray[np.int64]  # combinations x factors; OUTSIDE where a combination's variant lacks the factor
OUTSIDE = -1
_RANK = 1e-9  # relative; a direction of the design with less information is not there


@frozen
class Block:
    """A factor or a pair of factors.

    Attributes:
        factors: The numbers of the factors.
        columns: Combinations x coefficients, 0 where a combination lacks the factor.
        expansion: Effects x coefficients.
        cells: For each effect, the levels of the factors.
    """

    factors: tuple[int, ...]
    columns: Floats
    expansion: Floats
    cells: Sequence[tuple[int, ...]]


def main_block(levels: Levels, number: int) -> Block:
    """Return sum-to-zero columns of a factor: the last level is the negative sum of the others."""
    column = levels[:, number]
    last = int(column.max())
    expansion = np.vstack([np.eye(last), -np.ones((1, last))])
    columns = np.where(column[:, None] == OUTSIDE, 0.0, expansion[column])
    return Block((number,), columns, expansion, [(level,) for level in range(last + 1)])


def pair_block(levels: Levels, a: int, b: int) -> Block:
    """Return the columns of what two factors do together beyond their sum, of the levels that occur with the other."""
    both = (levels[:, [a, b]] != OUTSIDE).all(axis=1)
    own = [np.unique(levels[both, number]) for number in (a, b)]
    coded = np.full((len(levels), 2), OUTSIDE, dtype=np.int64)
    for place, (number, some) in enumerate(zip((a, b), own, strict=True)):
        coded[both, place] = np.searchsorted(some, levels[both, number])
    block = _product_block(main_block(coded, 0), main_block(coded, 1))
    cells = [(int(own[0][level]), int(own[1][other])) for level, other in block.cells]
    return Block((a, b), block.columns, block.expansion, cells)


def _product_block(a: Block, b: Block) -> Block:
    columns = (a.columns[:, :, None] * b.columns[:, None, :]).reshape(len(a.columns), -1)
    cells = [(*cell, *other) for cell in a.cells for other in b.cells]
    return Block(
        (*a.factors, *b.factors), columns, np.asarray(np.kron(a.expansion, b.expansion), dtype=np.float64), cells
    )


def estimable_part(block: Block, blocks: Sequence[Block], levels: Levels) -> Block | None:
    """Return the part of a pair that the combinations tell apart from other blocks; None if they tell nothing.

    An effect of it is the mean over the combinations with these levels. Levels that never meet have none.
    """
    remainder = _beyond(block.columns, stack(blocks, len(levels)))
    vectors, values, _ = np.linalg.svd(remainder, full_matrices=False)
    basis = vectors[:, values > 1e-7 * max(float(np.abs(block.columns).max()), 1e-300)]
    if not basis.shape[1]:
        return None
    some = levels[:, list(block.factors)]
    met = [cell for cell in block.cells if (some == cell).all(axis=1).any()]
    means = [basis[(some == cell).all(axis=1)].mean(axis=0) for cell in met]
    return Block(block.factors, basis, np.array(means), met)


def stack(blocks: Iterable[Block], rows: int) -> Floats:
    """Return the columns of blocks beside a column of ones."""
    return np.hstack([np.ones((rows, 1)), *(block.columns for block in blocks)])


def rank(design: Floats) -> int:
    """Return how many directions a design has."""
    if design.shape[1] == 0:
        return 0
    gram = design.T @ design if design.shape[1] <= design.shape[0] else design @ design.T
    values = np.linalg.eigvalsh(gram)
    return int((values > _RANK * max(values[-1], 1e-300)).sum())


def complement(design: Floats) -> Floats:
    """Return orthonormal columns for all that combinations can differ in beyond a design of independent columns."""
    return np.asarray(np.linalg.qr(design, mode="complete")[0][:, design.shape[1] :])


def aliased_factors(mains: Sequence[Block]) -> list[list[int]]:
    """Return groups of factors that the combinations do not tell apart, because they always change together."""
    rows = len(mains[0].columns)
    width = sum(block.columns.shape[1] for block in mains) + 1
    everything = rank(stack(mains, rows))
    if everything == width:
        return []
    aliased = []
    for block in mains:
        other_rank = rank(stack((other for other in mains if other is not block), rows))
        if everything - other_rank < block.columns.shape[1]:
            aliased.append(block)
    return _grouped(aliased)


def _grouped(aliased: Sequence[Block]) -> list[list[int]]:
    """Group aliased factors by which of them become estimable if another one is left out."""
    groups: list[set[int]] = []
    for number, block in enumerate(aliased):
        together = {block.factors[0]}
        for other in aliased[number + 1 :]:
            both = np.hstack([block.columns, other.columns])
            if rank(stack([block, other], len(block.columns))) < both.shape[1] + 1:
                together.add(other.factors[0])
        joined = [group for group in groups if group & together]
        groups = [group for group in groups if group not in joined] + [together.union(*joined)]
    alone = [group for group in groups if len(group) == 1]
    if alone:  # of three and more, any two of which can be told apart
        groups = [group for group in groups if len(group) > 1] + [set().union(*alone)]
    return sorted(sorted(group) for group in groups)


def is_crossed(levels: Levels, factors: Sequence[int]) -> bool:
    """Return whether all levels of these factors meet the same combinations of the other factors.

    If so, effects are averages over those, and nothing that the other factors do can be taken for an effect. Factors
    that are nested in these ones may differ, if all of their levels meet the same.
    """
    present = levels[(levels[:, list(factors)] != OUTSIDE).all(axis=1)]
    own = _numbered(present[:, list(factors)])
    if len(factors) > 1 and own.max() + 1 < np.prod([len(np.unique(present[:, number])) for number in factors]):
        return False
    other_factors = [number for number in range(levels.shape[1]) if number not in factors]
    nested = _nested_factors(present, other_factors, own)
    rest = _numbered(present[:, [number for number in other_factors if number not in nested]])
    within = _numbered(np.column_stack([own, present[:, nested]]))
    meets = np.zeros((within.max() + 1, rest.max() + 1), dtype=np.bool_)
    meets[within, rest] = True
    return bool(meets.all())


def _numbered(rows: Levels) -> Levels:
    """Return a number for each row, the same for equal ones."""
    if not rows.shape[1]:
        return np.zeros(len(rows), dtype=np.int64)
    return np.unique(rows, axis=0, return_inverse=True)[1].ravel()


def _nested_factors(levels: Levels, candidates: Sequence[int], own: Levels) -> list[int]:
    """Return the factors that are nested in levels, by number, or in factors that are."""
    nested: list[int] = []
    while True:
        within = _numbered(np.column_stack([own, levels[:, nested]]))
        more = [n for n in candidates if n not in nested and _is_nested(levels[:, n] == OUTSIDE, within)]
        if not more:
            return nested
        nested += more


def _is_nested(outside: NDArray[np.bool_], own: Levels) -> bool:
    """Return whether the levels of other factors, by number, say whether a combination has a factor."""
    if outside.all() or not outside.any():
        return False
    lacking = np.bincount(own, weights=outside)
    return bool(((lacking == 0) | (lacking == np.bincount(own))).all())


def is_candidate(levels: Levels, a: int, b: int) -> bool:
    """Return whether two factors can act together: where a combination has both, each has several levels."""
    both = levels[(levels[:, a] != OUTSIDE) & (levels[:, b] != OUTSIDE)]
    return len(both) > 0 and all(np.ptp(both[:, number]) > 0 for number in (a, b))


def lacks_meetings(levels: Levels, a: int, b: int) -> bool:
    """Return whether some levels of two factors never meet."""
    both = levels[(levels[:, a] != OUTSIDE) & (levels[:, b] != OUTSIDE)][:, [a, b]]
    return len(np.unique(both, axis=0)) < len(np.unique(both[:, 0])) * len(np.unique(both[:, 1]))


def _beyond(columns: Floats, design: Floats) -> Floats:
    """Return columns less what a design explains of them."""
    return np.asarray(columns - design @ np.linalg.lstsq(design, columns, rcond=_RANK)[0])
