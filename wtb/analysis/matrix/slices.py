"""The same comparison within the cases of a tag: where a combination is better or worse than it is over all. Pure.

Who looks at every tag finds something in one of them, so p is corrected (Holm) over all tags and combinations together,
apart from the comparison over all cases, which stays the answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.comparing import Design
from wtb.analysis.statistics.intervals import Floats
from wtb.analysis.statistics.missing.claims import Tests, corrected, test_columns, with_worst
from wtb.analysis.statistics.paired import Tested, cleaned, from_baseline, means, paired_tests

if TYPE_CHECKING:
    from wtb.core.documents.matrix import TagRow, TagSlices


MAX_TAGS = 12  # tags, those with most cases
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
    sliced = {tag: means_by_tag for tag, means_by_tag in columns.items() if FEWEST <= len(means_by_tag) < len(cases)}
    if not sliced:
        return None
    largest = sorted(sliced, key=lambda tag: (-len(sliced[tag]), tag))[:MAX_TAGS]
    scores = cleaned(scores)
    pairs_of_rates = design.pairs_of_rates(design.rates(scores))
    means_by_tag: list[tuple[str, int, Floats, Sequence[Tested]]] = []
    p: list[Floats] = []
    at_worst: list[Floats] = []
    counts: list[NDArray[np.int64]] = []
    for tag in largest:
        some = scores[:, sliced[tag]]
        tested = paired_tests(
            from_baseline(some, design.baseline),
            seed=design.seed,
            rates=pairs_of_rates,
            compare=design.by,
            units=design.of_cases(sliced[tag]).units,
        )
        tests = _tests(tested, some, sliced[tag], design)
        p.append(tests.p)
        at_worst.append(tests.at_worst)
        counts.append(tests.missing)
        means_by_tag.append((tag, len(sliced[tag]), means(some), tested))
    lasting, is_hanging = corrected(np.concatenate(p), np.concatenate(at_worst), design.share)
    adjusted = lasting.reshape(len(means_by_tag), -1)
    hanging = np.where(is_hanging, np.concatenate(counts), 0).reshape(adjusted.shape)
    return {
        "tags": [
            {"tag": tag, "cases": count, "rows": list(map(_row, middle.tolist(), tested, row.tolist(), on.tolist()))}
            for (tag, count, middle, tested), row, on in zip(means_by_tag, adjusted, hanging, strict=True)
        ],
        "left_out": len(columns) - len(largest),
    }


def _tests(tested: Sequence[Tested], scores: Floats, columns: Sequence[int], design: Design) -> Tests:
    """Return the tests of the rows over some of the cases, with missing cells at their worst."""
    missing = None if design.missing is None else design.missing.part(range(len(scores)), np.array(columns))
    pairs = replace(design.of_cases(columns), missing=missing).pairs(scores)
    return with_worst(pairs, design.baseline, *test_columns(tested))


def _row(mean: float, tested: Tested, p: float, hangs_on: int) -> TagRow:
    row: TagRow = {
        "mean": None if math.isnan(mean) else mean,
        "n_pairs": tested.n,
        "delta": tested.delta,
        "delta_ci": None if tested.ci is None else list(tested.ci),
        "p": tested.p,
        "p_adjusted": None if math.isnan(p) else p,
    }
    if hangs_on:
        row["hangs_on"] = hangs_on
    return row
