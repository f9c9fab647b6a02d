"""Figures of statistics as documents of the matrix's JSON contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from wtb.analysis.scores import ScoreTable
from wtb.analysis.search_history import Tried
from wtb.analysis.statistics import Comparison
from wtb.analysis.statistics.claims import SIGNIFICANT
from wtb.analysis.statistics.comparing import Estimate
from wtb.analysis.statistics.running import Method
from wtb.core.scoring.measure import Measure

if TYPE_CHECKING:
    from wtb.core.documents.matrix import BestDocument, MetricDocument, MetricEstimate

T = TypeVar("T")


def metric_document(
    measure: Measure, table: ScoreTable, interval: Method | None, without_expected: int
) -> MetricDocument:
    document: MetricDocument = {
        "better": measure.better,
        "declared": measure.declared,
        "compare": measure.compare,
        "low": measure.low,
        "high": measure.high,
        "on_failure": table.failure_score,
        "failed": table.failed,
        "interval": interval,
    }
    if measure.figure is not None:
        document["figure"] = measure.figure
    if measure.passes is not None:
        document["passes"] = measure.passes
    if without_expected:
        document["without_expected"] = without_expected
    return document


def estimate_document(estimate: Estimate, bounds: Sequence[float] | None) -> MetricEstimate:
    """Return an entry of `metrics` in the JSON contract. `bounds` are those of the mean, if any are known."""
    document: MetricEstimate = {
        "n": estimate.n,
        "n_pairs": estimate.n_pairs,
        "mean": estimate.mean,
        "ci": _listed(estimate.ci),
        "delta": estimate.delta,
        "delta_ci": _listed(estimate.delta_ci),
        "p": estimate.p,
        "p_adjusted": estimate.p_adjusted,
        "effect": estimate.effect,
        "detectable": estimate.detectable,
        "detectable_fall": estimate.detectable_fall,
        "detectable_rise": estimate.detectable_rise,
        "ranks": _listed(estimate.ranks),
        "common_mean": estimate.common_mean,
        "bounds": _listed(bounds),
    }
    _add_missing(document, estimate)
    return document


def _add_missing(document: MetricEstimate, estimate: Estimate) -> None:
    """Add the effects of missing cells, and of differences too rare to show, to an estimate."""
    if estimate.missing:
        document["missing"] = estimate.missing
    if estimate.mean_at_worst is not None:
        document["mean_at_worst"] = [*estimate.mean_at_worst]
    if estimate.delta_at_worst is not None:
        document["delta_at_worst"] = [*estimate.delta_at_worst]
    if estimate.p_at_worst is not None:
        document["p_at_worst"] = estimate.p_at_worst
    if estimate.pairs_missing:
        document["pairs_missing"] = estimate.pairs_missing
    if estimate.hangs_on is not None:
        document["hangs_on"] = estimate.hangs_on
    if estimate.unseen is not None:
        document["unseen_one_in"] = estimate.unseen


def best_of(compared: Comparison, choices: Sequence[Mapping[str, str]], tries: Tried) -> BestDocument:
    """Return an entry of `best` in the JSON contract.

    Args:
        compared: The comparison of the rows.
        choices: The combinations, by number.
        tries: The earlier tries over these cases.
    """
    lead, winner = compared.lead, compared.winner
    step = lead.next_step
    document: BestDocument = {
        "combination": None if compared.best is None else dict(choices[compared.best]),
        "clear": compared.clear,
        "candidates": [dict(choices[row]) for row in compared.candidates],
        "unranked": [dict(choices[row]) for row in compared.unranked],
        "cases": compared.cases,
        "winner": None
        if winner is None
        else {"mean": winner.mean, "ci": _listed(winner.ci), "shrunken": winner.shrunken},
        "rival": None if lead.rival is None else dict(choices[lead.rival]),
        "lead": lead.lead,
        "lead_ci": _listed(lead.ci),
        "p": lead.p,
        "n_pairs": lead.n_pairs,
        "cases_needed": None if step is None or step.cases is None else [step.cases, step.cases_if_half],
        "differ_at_most": None if step is None else step.differ_at_most,
        "because": lead.because,
        "tried": tries.n,
        "looks": tries.looks,
        "level": SIGNIFICANT * tries.share,
        "hangs_on": lead.hangs_on,
    }
    if lead.unseen is not None:
        document["unseen_one_in"] = lead.unseen
    return document


def _listed(figures: Sequence[T] | None) -> list[T] | None:
    """Return figures as JSON has them, with an interval as a list."""
    return None if figures is None else list(figures)
