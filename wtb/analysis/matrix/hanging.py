"""Sentences about differences of a matrix that are not claimed, or not sure, each with what cures it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from wtb.analysis.scores import Scores
from wtb.core.scoring.missing_words import cure, hangs_on, unseen
from wtb.core.tree.combinations import in_words

if TYPE_CHECKING:
    from wtb.core.documents.matrix import BestDocument, ChoiceDocument, MetricDocument, RowDocument

_NAMED = 3  # rows that a sentence names


def hanging_claims(scored: Scores, rows: Sequence[RowDocument], best: Mapping[str, BestDocument]) -> list[str]:
    """Return a sentence for each metric by which a difference, or the best, hangs on missing cells."""
    sentences = []
    for metric in scored.measures:
        hanging = [(row, row["metrics"][metric].get("hangs_on")) for row in rows]
        parts = [f"{in_words(row['combination'])} {hangs_on(count)}" for row, count in hanging if count]
        claims = [f"the difference of {part}" for part in parts[:_NAMED]]
        claims += [f"{len(parts) - _NAMED:,} more differences do"] if len(parts) > _NAMED else []
        if metric in best and (count := best[metric].get("hangs_on")):
            claims.append(f"the lead of {in_words(best[metric]['combination'] or {})} {hangs_on(count)}")
        if claims:
            sentences.append(f"by {metric}, {', '.join(claims)}, and is not claimed: {_cure(scored, metric)}")
    return sentences


def _cure(scored: Scores, metric: str) -> str:
    missing, measure = scored.table(metric).missing, scored.measures[metric]
    reasons = [] if missing is None else [reason for reason, counts in missing.reasons.items() if counts.any()]
    return cure(scored.sweep_id, reasons, can_declare=measure.scale is None and not scored.leaves_out(measure))


def hanging_choice(choice: ChoiceDocument | None) -> list[str]:
    """Return a sentence where missing cells could change the combination that `best` chooses."""
    count = None if choice is None else choice.get("hangs_on")
    if choice is None or not count:
        return []
    return [
        f"the choice of {in_words(choice['combination'] or {})} {hangs_on(count)}: others could be better with them"
    ]


def unseen_claims(rows: Sequence[RowDocument], metrics: Mapping[str, MetricDocument]) -> list[str]:
    """Return sentences about differences that rare ones, which no case shows, could cancel."""
    sentences = []
    for metric, facts in metrics.items():
        for row in rows:
            estimate = row["metrics"][metric]
            count, delta = estimate.get("unseen_one_in"), estimate["delta"]
            if count and delta:
                why = unseen(count, is_gain=(delta > 0) == (facts["better"] == "higher"))
                sentences.append(f"the difference of {in_words(row['combination'])} by {metric} is not claimed: {why}")
    return sentences[:_NAMED]


def uneven_differences(
    rows: Sequence[RowDocument], uneven: Mapping[str, Sequence[int]], warned: Iterable[Sequence[str]]
) -> list[str]:
    """Return a sentence for each metric by which few differences from the baseline are far from the others.

    Args:
        rows: The rows of the matrix.
        uneven: Metric -> the numbers of the rows.
        warned: Metrics of which scores are uneven, which readers are told already.
    """
    sentences = []
    warned_metrics = {metric for metrics in warned for metric in metrics}
    for metric, numbers in uneven.items():
        if numbers and metric not in warned_metrics:
            first = in_words(rows[numbers[0]]["combination"])
            more = f" and {len(numbers) - 1:,} more" if len(numbers) > 1 else ""
            sentences.append(
                f"few cases make much of the difference of {first}{more} by {metric}: its interval and p are less sure "
                "than they look; more cases make them sure"
            )
    return sentences
