"""What missing results and many questions mean for a matrix, in words and in figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from wtb.analysis.scores import Scores
from wtb.analysis.statistics.comparing import Claimed, is_claimed
from wtb.analysis.statistics.missing.claims import corrected
from wtb.core.documents.matrix import is_ranked
from wtb.core.scoring.measure import MEASURED_NAMES, without_expected
from wtb.core.texts import listed_names
from wtb.core.tree.combinations import in_words

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, RowDocument
    from wtb.core.tree.stored_spec import StoredSpec

_COUNTED = ("without_expected", "rare_class", "no_scale")  # findings that a matrix has figures of


def correct_exploratory(
    rows: Sequence[RowDocument], shares: Mapping[str, float], claimed: Mapping[str, Claimed] | None = None
) -> None:
    """Correct (Holm) the p of metrics that do not decide over all of these and all rows together.

    Args:
        rows: The rows of the matrix, which are changed.
        shares: Metric -> the part of 5% that is left, where other combinations were tried over these cases before.
        claimed: Metric -> the differences of these rows that were shown before, for which all of it is left.
    """
    estimates = [
        (row["metrics"][metric], 1.0 if is_claimed(number, row["metrics"][metric]["delta"], again) else share)
        for metric, share in shares.items()
        for again in [(claimed or {}).get(metric, frozenset())]
        for number, row in enumerate(rows)
    ]
    p = np.array([np.nan if one["p"] is None else one["p"] / share for one, share in estimates])
    at_worst = np.array([one.get("p_at_worst", np.nan) / share for one, share in estimates])
    adjusted, hanging = corrected(p, at_worst)
    for (one, _), value, is_hanging in zip(estimates, adjusted.tolist(), hanging.tolist(), strict=True):
        one["p_adjusted"] = None if one["p"] is None else value
        one.pop("hangs_on", None)
        if is_hanging:
            one["hangs_on"] = one["pairs_missing"]


def cases_without_expected(scored: Scores) -> list[str]:
    """Return sentences about cases that metrics do not score because they have no expected value."""
    return [
        without_expected(metric, scored.without_expected[metric], scored.cases)
        for metric in scored.measures
        if metric in scored.without_expected
    ]


def data_found(spec: StoredSpec) -> list[str]:
    """Return sentences about the cases of a sweep, as the check before it ran found them.

    Those that a matrix counts by itself, of the cells that there are, are not among them.
    """
    return [finding["sentence"] for finding in spec.get("data", ()) if finding["kind"] not in _COUNTED]


def failures_counted(scored: Scores) -> list[str]:
    """Sentences: how many failed cells count as what by which metrics, and by which they are left out."""
    if not scored.failed and not scored.missing:
        return []
    counted: dict[float | str | None, list[str]] = {}
    undeclared: list[str] = []
    for name, measure in scored.measures.items():
        if name in MEASURED_NAMES:  # a cell that failed has no such figure
            continue
        score = scored.failure_score(measure)
        if score is None and not scored.leaves_out(measure):
            undeclared.append(name)
        else:
            counted.setdefault("wrong" if measure.figure and score is not None else score, []).append(name)
    sentences = []
    many = "1 failed cell" if scored.failed == 1 else f"{scored.failed:,} failed cells"
    is_one = scored.failed == 1
    for what, names in counted.items() if scored.failed else ():
        how = (
            f"{'is' if is_one else 'are'} left out by" if what is None else f"count{'s' * is_one} as {_shown(what)} by"
        )
        sentences.append(f"{many} {how} {listed_names(names)}")
    if undeclared and scored.failed:
        why = "nothing says what a failure counts as (`on_failure`), or what the scale is (`scale`)"
        sentences.append(f"{many} {'is' if is_one else 'are'} left out by {listed_names(undeclared)}: {why}")
    sentences += _lost_to_provider(scored)
    told = ("cancelled", "skipped", "provider")  # by themselves
    if missing := {kind: count for kind, count in scored.missing.items() if kind not in told}:
        kinds = listed_names([f"{count:,} {kind}" for kind, count in sorted(missing.items())])
        one = "1 failed cell is" if sum(missing.values()) == 1 else f"{sum(missing.values()):,} failed cells are"
        sentences.append(f"{one} no result ({kinds}) and left out everywhere")
    return sentences


def _lost_to_provider(scored: Scores) -> list[str]:
    lost = sum(scored.lost_of.values())
    if not lost:
        return []
    cells = "1 cell was" if lost == 1 else f"{lost:,} cells were"
    total = sum(group.cells for group in scored.cell_groups)
    return [
        f"{cells} lost to a provider ({lost / total:.1%} of all) and left out, not graded: "
        f"run {'it' if lost == 1 else 'them'} again with `wtb retry {scored.sweep_id} --provider`"
    ]


def _shown(score: float | str) -> str:
    return score if isinstance(score, str) else f"{score:g}"


def bounds_that_matter(matrix: MatrixDocument) -> list[str]:
    """Sentences: by which metrics another combination would be the best if missing scores were as they may be."""
    sentences = []
    for metric, best in matrix["best"].items():
        sign = -1.0 if matrix["metrics"][metric]["better"] == "lower" else 1.0
        leader = next((row for row in matrix["rows"] if row["combination"] == best["combination"]), None)
        if leader is None:
            continue
        least = min(sign * end for end in _ends(leader, metric))
        others = [row for row in matrix["rows"] if row is not leader and is_ranked(row) and _ends(row, metric)]
        better = [row for row in others if max(sign * end for end in _ends(row, metric)) > least]
        if not better or not any(row["metrics"][metric]["bounds"] for row in (leader, *better)):
            continue
        first = max(better, key=lambda row: max(sign * end for end in _ends(row, metric)))
        figures = (f"{in_words(row['combination'])} would be {_between(_ends(row, metric))}" for row in (leader, first))
        more = f", and {len(better) - 1:,} more could pass it" if len(better) > 1 else ""
        sentences.append(
            f"missing scores could change which is best by {metric}: with them {' and '.join(figures)}{more}"
        )
    return sentences


def _ends(row: RowDocument, metric: str) -> list[float]:
    """The least and the greatest mean that a row may have; its mean where nothing is missing."""
    found = row["metrics"][metric]
    mean = found["mean"]
    return list(found["bounds"] or ([] if mean is None else [mean, mean]))


def _between(ends: Sequence[float]) -> str:
    return f"{ends[0]:.3g}" if ends[0] == ends[-1] else f"{ends[0]:.3g} to {ends[-1]:.3g}"
