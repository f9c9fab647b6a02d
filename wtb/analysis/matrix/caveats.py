"""Consequences of missing results and many questions for a matrix, as text and figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from wtb.analysis import interim
from wtb.analysis.matrix.facts import SweepFacts
from wtb.analysis.scores import Scores
from wtb.analysis.statistics.anytime import limit_from
from wtb.analysis.statistics.claims import corrected
from wtb.analysis.statistics.comparing import Claimed, is_claimed
from wtb.analysis.statistics.intervals import FEW, FEWEST
from wtb.core.documents.matrix import is_ranked
from wtb.core.scoring.failure_scores import cure, hangs_on, unseen
from wtb.core.scoring.measure import MEASURED_NAMES, without_expected
from wtb.core.status import FINAL_CELLS
from wtb.core.texts import listed_names, plural
from wtb.core.tree.combinations import in_words
from wtb.store.read import aggregates
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.matrix import (
        BestDocument,
        ChoiceDocument,
        MatrixDocument,
        MetricDocument,
        ProviderDocument,
        RowDocument,
    )
    from wtb.core.documents.shared_types import Combination
    from wtb.core.tree.stored_spec import StoredSpec

_COUNTED = ("without_expected", "rare_class", "no_scale")  # findings that a matrix has figures of


def correct_exploratory(
    rows: Sequence[RowDocument], shares: Mapping[str, float], claimed: Mapping[str, Claimed] | None = None
) -> None:
    """Correct the p-values (Holm) of exploratory metrics over all of these metrics and all rows together.

    Args:
        rows: The rows of the matrix, which are changed.
        shares: Metric -> the part of 5% that is left if other combinations were tried over these cases before.
        claimed: Metric -> the differences of these rows that were shown before, for which all of it is left.
    """
    estimates = [
        (row["metrics"][metric], 1.0 if is_claimed(number, row["metrics"][metric]["delta"], earlier_claims) else share)
        for metric, share in shares.items()
        for earlier_claims in [(claimed or {}).get(metric, frozenset())]
        for number, row in enumerate(rows)
    ]
    # Dividing by the share leaves one family to correct, although metrics have different levels.
    p = np.array([np.nan if estimate["p"] is None else estimate["p"] / share for estimate, share in estimates])
    at_worst = np.array([estimate.get("p_at_worst", np.nan) / share for estimate, share in estimates])
    adjusted, hanging = corrected(p, at_worst)
    for (estimate, _), adjusted_p, is_hanging in zip(estimates, adjusted.tolist(), hanging.tolist(), strict=True):
        estimate["p_adjusted"] = None if estimate["p"] is None else adjusted_p
        estimate.pop("hangs_on", None)
        if is_hanging:
            estimate["hangs_on"] = estimate["pairs_missing"]


def cases_without_expected(scored: Scores) -> list[str]:
    """Return sentences about cases that metrics do not score because they have no expected value."""
    return [
        without_expected(metric, scored.without_expected[metric], scored.cases)
        for metric in scored.measures
        if metric in scored.without_expected
    ]


def data_found(spec: StoredSpec) -> list[str]:
    """Return sentences about the cases of a sweep from the check before it ran.

    Findings that a matrix counts itself, over the cells that it has, are left out.
    """
    return [finding["sentence"] for finding in spec.get("data", ()) if finding["kind"] not in _COUNTED]


def failures_counted(scored: Scores) -> list[str]:
    """Return sentences on how failed cells count, or are left out, by metric."""
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
        how = f"{'is' if is_one else 'are'} left out by"
        if what is not None:
            how = f"count{'s' * is_one} as {what if isinstance(what, str) else f'{what:g}'} by"
        sentences.append(f"{many} {how} {listed_names(names)}")
    if undeclared and scored.failed:
        why = "no score for failures (`on_failure`) and no scale (`scale`) is declared"
        sentences.append(f"{many} {'is' if is_one else 'are'} left out by {listed_names(undeclared)}: {why}")
    sentences += _lost_to_provider(scored)
    reported_elsewhere = ("cancelled", "skipped", "provider")  # by themselves
    if missing := {kind: count for kind, count in scored.missing.items() if kind not in reported_elsewhere}:
        kinds = listed_names([f"{count:,} {kind}" for kind, count in sorted(missing.items())])
        count = sum(missing.values())
        failed_cells = "1 failed cell is" if count == 1 else f"{count:,} failed cells are"
        sentences.append(f"{failed_cells} no result ({kinds}) and left out everywhere")
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


def bounds_that_matter(matrix: MatrixDocument) -> list[str]:
    """Return sentences on metrics by which missing scores could make another combination the best."""
    sentences = []
    for metric, best in matrix["best"].items():
        sign = -1.0 if matrix["metrics"][metric]["better"] == "lower" else 1.0
        leader = next((row for row in matrix["rows"] if row["combination"] == best["combination"]), None)
        if leader is None:
            continue
        # The leader at its worst against each rival at its best: only then is no other assignment of scores worse.
        least = min(sign * end for end in _ends(leader, metric))
        rivals = [row for row in matrix["rows"] if row is not leader and is_ranked(row) and _ends(row, metric)]
        better = [row for row in rivals if max(sign * end for end in _ends(row, metric)) > least]
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
    """Return the lowest and highest possible mean of a row; its mean if nothing is missing."""
    estimate = row["metrics"][metric]
    mean = estimate["mean"]
    return list(estimate["bounds"] or ([] if mean is None else [mean, mean]))


def _between(ends: Sequence[float]) -> str:
    return f"{ends[0]:.3g}" if ends[0] == ends[-1] else f"{ends[0]:.3g} to {ends[-1]:.3g}"


def not_as_submitted(sweep: SweepRow, matrix: MatrixDocument) -> list[str]:
    """Warn of another baseline than the sweep's own, and of cells that a person edited and that are left out."""
    warnings = []
    if matrix["baseline"] != sweep.spec.get("baseline_row"):
        warnings.append(_chosen_baseline(sweep, matrix["baseline"] or {}))
    if left_out := matrix["edited_left_out"]:
        is_single = left_out == 1
        kept_out = "1 edited cell is" if is_single else f"{left_out:,} edited cells are"
        warnings.append(f"{kept_out} left out: a person changed {'its' if is_single else 'their'} state")
    return warnings


def _chosen_baseline(sweep: SweepRow, base: Combination) -> str:
    named = sweep.spec.get("baseline_row")
    own = "the sweep names none" if named is None else f"the sweep's own is {in_words(named)}"
    return (
        f"differences are from {in_words(base)}, which whoever looks chose ({own}): p allows for the number of rows, "
        "and not for baselines that are tried one after the other"
    )


def answered_after_failure(failures: ProviderDocument) -> list[str]:
    count = failures["answered_after_failure"]
    if not count:
        return []
    runs = "1 node run" if count == 1 else f"{count:,} node runs"
    return [
        f"{runs} answered after a failed call: a provider failed, the node caught the error, and what it did instead "
        "is graded; let the error through, so that WTB waits for the provider"
    ]


def lost_scores(failures: ProviderDocument, sweep_id: str) -> list[str]:
    count = failures.get("scores", 0)
    if not count:
        return []
    lost = "1 score was" if count == 1 else f"{count:,} scores were"
    return [
        f"{lost} lost to a provider that failed in an evaluator, and left out, not graded: score again with "
        f"`wtb score {sweep_id}`"
    ]


def looked_at(seen: interim.View, metrics: Mapping[str, MetricDocument], rows: int) -> list[str]:
    """Return sentences on the basis of figures before the end."""
    as_of = seen.as_of
    sentences = [
        f"{seen.because}: figures are as of {as_of['cases']:,} of {as_of['of']:,} cases, the first in its random "
        "order, and hold however often one looks"
    ]
    if names := [name for name, metric in metrics.items() if metric["interval"] == "asymptotic"]:
        sentences.append(
            f"{listed_names(names)} {'has' if len(names) == 1 else 'have'} no declared bounds (`scale`, `limits`): "
            f"intervals before the end need {limit_from(rows)} cases and even scores, else there are none"
        )
    return sentences


def few_clusters(units: int | None) -> list[str]:
    """Warn that few clusters make intervals and tests unreliable; empty if cases are independent."""
    if units is None or units >= FEW:
        return []
    if units < FEWEST:
        return [f"the cases come from {units} clusters: too few for any test; expected {FEWEST} or more"]
    return [f"the cases come from {units} clusters, on which intervals and tests rest: fewer than {FEW} are few"]


def uneven_cases(matrix: MatrixDocument) -> list[str]:
    """Return warnings that means cover different cases, because some combinations failed where others did not."""
    # By counts, so that metrics with the same counts share one sentence.
    metrics_by_counts: dict[tuple[int, int, int], list[str]] = {}
    rows = [row for row in matrix["rows"] if is_ranked(row)]
    for metric in matrix["metrics"]:
        counts = [row["metrics"][metric]["n"] for row in rows]
        if fewer := sum(0 < n < max(counts) for n in counts):
            metrics_by_counts.setdefault((fewer, min(n for n in counts if n), max(counts)), []).append(metric)
    sentences = []
    for (fewer, least, largest), metrics in metrics_by_counts.items():
        which = "1 combination is" if fewer == 1 else f"{fewer:,} combinations are"
        sentences.append(
            f"{which} scored by {listed_names(metrics)} in fewer cases than others (down to {least:,} of {largest:,}), "
            "so means cover different cases: use the Δ column, which is paired"
        )
    return sentences


def _erased(erased: aggregates.Rows) -> str:
    """Return a sentence on erased cases, which are not missing."""
    who = sorted({str(by) for _, by, _ in erased})
    named = listed_names([str(case) for case, _, _ in erased[:5]]) + (", ..." if len(erased) > 5 else "")
    many = "1 case was" if len(erased) == 1 else f"{len(erased):,} cases were"
    return (
        f"{many} erased, with {'its' if len(erased) == 1 else 'their'} cells and scores: {named} (by {', '.join(who)})"
    )


def about_sweep(facts: SweepFacts) -> list[str]:
    """Return sentences about the sweep: open and erased cells, and what changed or failed while it ran."""
    sentences, sweep = [], facts.sweep
    open_cells = sum(count for status, count in facts.counts.items() if status not in FINAL_CELLS)
    if open_cells:
        why = f" ({sweep.reason})" if sweep.reason else ""
        sentences.append(f"{open_cells:,} cells have no outcome yet: the sweep is {sweep.status}{why}")
    if facts.erased:
        sentences.append(_erased(facts.erased))
    if facts.undeclared:
        names = ", ".join(facts.undeclared)
        sentences.append(
            f"which values of {names} are better is not declared, so higher counts as better: declare "
            'it with @evaluator(better="higher") or @evaluator(better="lower"), then score again with `wtb score`'
        )
    for metric, count, reason in facts.scored.errors:
        sentences.append(f"{plural(count, 'score')} of {metric} failed, such as: {reason}")
    if facts.changed_tools:
        sentences.append(f"changed tools: servers changed {', '.join(facts.changed_tools)} while the sweep ran")
    for metric, models in facts.judges.items():
        if len(models) > 1:
            sentences.append(f"changed models: {metric} was judged by {' and '.join(models)}")
    return sentences


def mixed_code(counted: aggregates.Rows) -> list[str]:
    """Warn of variants whose accepted runs come from more than one version of the code."""
    mixed = [f"{node}={variant}" for node, variant, *_, is_mixed in counted if is_mixed]
    return [f"mixed code: results of {', '.join(mixed)} come from more than one version of it"] if mixed else []


def uneven_scores(metrics_by_cases: Mapping[int, Sequence[str]]) -> list[str]:
    """Return sentences on intervals of very uneven scores, given the metrics by the number of cases."""
    return [
        f"the intervals of {listed_names(names)} rest on {count:,} cases with very uneven scores: they cover the "
        "truth less often than 95 times of 100"
        for count, names in metrics_by_cases.items()
    ]


_NAMED = 3  # rows that a sentence names


def hanging_claims(scored: Scores, rows: Sequence[RowDocument], best: Mapping[str, BestDocument]) -> list[str]:
    """Return a sentence for each metric by which a difference, or the best, depends on missing cells."""
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
    """Return a sentence if missing cells could change the combination that `best` chooses."""
    if choice is None or not (count := choice.get("hangs_on")):
        return []
    chosen = in_words(choice["combination"] or {})
    return [f"the choice of {chosen} {hangs_on(count)}: others could be better with them"]


def unseen_claims(rows: Sequence[RowDocument], metrics: Mapping[str, MetricDocument]) -> list[str]:
    """Return sentences on differences that rare ones, which no case shows, could cancel."""
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
        warned: Groups of metrics with uneven scores, for which there is a warning already.
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
