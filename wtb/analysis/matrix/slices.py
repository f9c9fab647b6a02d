"""The same comparison within the cases of a tag: where a combination is better or worse than it is over all. Pure.

Who looks at every tag finds something in one of them, so p is corrected (Holm) over all tags and combinations together,
apart from the comparison over all cases, which stays the answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.comparing import Design
from wtb.analysis.statistics.intervals import Floats
from wtb.analysis.statistics.paired import Tested, cleaned, from_baseline, holm, means, paired_tests

if TYPE_CHECKING:
    from wtb.core.documents.matrix import TagRow, TagSlices


MOST = 12  # tags, those with most cases
FEWEST = 5  # cases that a tag needs to be told of


def slices(
    scores: Floats, cases: NDArray[np.int64], tags: Mapping[int, Sequence[str]], design: Design
) -> TagSlices | None:
    """Each tag's cases by themselves, as `slices` of the JSON contract; None where no tag tells cases apart.

    Args:
        scores: combinations x cases, repeats averaged, NaN where there is none.
        cases: the number of the case of each column.
        tags: number of a case -> its tags.
        design: how rows are compared.
    """
    columns: dict[str, list[int]] = {}
    for column, case in enumerate(cases.tolist()):
        for tag in dict.fromkeys(tags.get(case, ())):
            columns.setdefault(tag, []).append(column)
    shown = {tag: means_by_tag for tag, means_by_tag in columns.items() if FEWEST <= len(means_by_tag) < len(cases)}
    if not shown:
        return None
    largest = sorted(shown, key=lambda tag: (-len(shown[tag]), tag))[:MOST]
    scores = cleaned(scores)
    pairs_of_rates = design.pairs_of_rates(design.rates(scores))
    means_by_tag: list[tuple[str, int, Floats, Sequence[Tested]]] = []
    p: list[list[float]] = []
    for tag in largest:
        some = scores[:, shown[tag]]
        tested = paired_tests(
            from_baseline(some, design.baseline),
            seed=design.seed,
            rates=pairs_of_rates,
            compare=design.by,
            units=design.of_cases(shown[tag]).units,
        )
        p.append([np.nan if one.p is None else one.p for one in tested])
        means_by_tag.append((tag, len(shown[tag]), means(some), tested))
    adjusted = np.minimum(1.0, holm(np.array(p).ravel()) / design.share).reshape(len(means_by_tag), -1)
    return {
        "tags": [
            {"tag": tag, "cases": count, "rows": list(map(_row, middle.tolist(), tested, row.tolist()))}
            for (tag, count, middle, tested), row in zip(means_by_tag, adjusted, strict=True)
        ],
        "left_out": len(columns) - len(largest),
    }


def _row(mean: float, found: Tested, p: float) -> TagRow:
    return {
        "mean": None if math.isnan(mean) else mean,
        "n_pairs": found.n,
        "delta": found.delta,
        "delta_ci": None if found.ci is None else list(found.ci),
        "p": found.p,
        "p_adjusted": None if math.isnan(p) else p,
    }
