"""Human labels of a sweep: whether a metric can be trusted for gates, and the mean label of each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wtb.analysis.judge_check import JudgeCheck, Label, check
from wtb.analysis.scores import Scores
from wtb.core.errors import InputError
from wtb.core.scoring.scores import BY_HAND, MET
from wtb.core.texts import plural
from wtb.core.values import Options
from wtb.store.control.labels import label_rows, labelled_sweeps
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.analysis.judge_bias import Figure
    from wtb.core.documents.matrix import MatrixDocument, PeopleDocument
    from wtb.core.documents.shared_types import Interval


def stored_labels(database: Database, sweep_id: str, metric: str) -> list[Label]:
    """Return the labels of a sweep for a metric."""
    return [
        Label(
            row.combination,
            row.case_number,
            row.repeat,
            row.rater,
            row.value,
            drawn=row.asked != "disagreement",
            probability=row.probability,
        )
        for row in label_rows(database, sweep_id, metric)
    ]


def judge_of(sweep: SweepRow, metric: str) -> tuple[str, Options]:
    """Return the evaluator of a metric as the sweep declares it: its name or import path, and its options."""
    for evaluator in sweep.spec.get("evaluate") or ():
        for name, settings in dict(evaluator).items():
            options: Options = settings if isinstance(settings, Mapping) else {}
            # An evaluator gives its metric under the option `name`, its own name, or the function's in an import path.
            if metric in (options.get("name"), name, name.rpartition(":")[2]):
                return name, options
    return "", {}


def rubric_of(judge: Options) -> dict[str, str]:
    """Return the levels of a judge from its options, with their descriptions; criteria alone are met or not."""
    rubric = judge.get("rubric") or (MET if judge.get("criteria") else {})
    return {str(level): str(text) for level, text in rubric.items()}


def why_not(database: Database, sweep: SweepRow, metric: str) -> tuple[bool, str]:
    """Return whether gates may rely on a metric, and the reason.

    The sweep's own labels count, else those of the newest sweep of the project with the same judge, because a sweep
    that has just ended has none.

    Args:
        database: Where the sweep is.
        sweep: A sweep that declares a required agreement for this metric.
        metric: The metric.

    Returns:
        True if gates may rely on it, and the reason as text.
    """
    required = sweep.spec["agreement"][metric]
    if required == BY_HAND:
        return True, f"{metric} decides by hand, however far it agrees with people"
    labelled_sweep = _find_labelled_sweep(database, sweep, metric)
    if labelled_sweep is None:
        why = f"nobody has labelled anything for {metric}, which has to agree with people as far as {required:g}"
        return False, why
    labels = stored_labels(database, labelled_sweep.id, metric)
    try:
        judge_check = check(database, labelled_sweep, Scores(database, labelled_sweep), metric, labels, "ordinal")
    except InputError as error:
        return False, str(error)
    if judge_check.why_not:
        return False, f"nothing is known of how far {metric} agrees with people: {judge_check.why_not}"
    kappa, source = judge_check.kappa, f"{plural(judge_check.labels, 'label')} of {labelled_sweep.name}"
    # With perfect agreement the jackknife sees no error at all, so its interval cannot bound it.
    interval = kappa.interval or ((_least(judge_check), 1.0) if kappa.value == 1 else None)
    if kappa.value is None or interval is None:
        why = f": {kappa.because}" if kappa.because else ""
        return False, f"nothing is known of how far {metric} agrees with people, by {source}{why}"
    figures = f"{kappa.value:.3f} ({interval[0]:.3f} to {interval[1]:.3f}), {source}"
    # The lower end counts, so that a few lucky labels do not suffice.
    if interval[0] >= float(required):
        return True, f"{metric} agrees with people: {figures}"
    return False, f"{metric} is not shown to agree with people as far as {float(required):g}: {figures}"


def _least(judge_check: JudgeCheck) -> float:
    """Return the lower end of a kappa without any disagreement, for which the jackknife has no error.

    Of n cases without a disagreement, less than 3 / n disagree with 95% (Hanley and Lippman-Hand 1983), as if that
    share were between the ends of the scale. The row with the most labels counts, since rows share cases.
    """
    shares = [level.labels / judge_check.labels for level in judge_check.levels]
    apart = [[abs(first - second) for second in range(len(shares))] for first in range(len(shares))]
    by_chance = sum(p * q * apart[i][j] for i, p in enumerate(shares) for j, q in enumerate(shares))
    return max(-1.0, 1 - 3 / max(row.labels for row in judge_check.rows) * (len(shares) - 1) / by_chance)


def _find_labelled_sweep(database: Database, sweep: SweepRow, metric: str) -> SweepRow | None:
    """Return the sweep whose labels show how far a metric agrees with people; None if there is none."""
    judge = judge_of(sweep, metric)
    if label_rows(database, sweep.id, metric):
        return sweep
    for sweep_id in labelled_sweeps(database, sweep.project, metric):
        other = queries.find_sweep(database, sweep_id)
        # The same metric name with another judge, or other options, is another instrument.
        if judge_of(other, metric) == judge and judge[0]:
            return other
    return None


def people(database: Database, sweep: SweepRow, matrix: MatrixDocument) -> list[PeopleDocument]:
    """Estimate the mean label of each row for every labelled metric; empty before the sweep has ended.

    Args:
        database: Where the sweep is.
        sweep: Its row.
        matrix: Its matrix.
    """
    # Before the end scores are missing, and the estimate needs the judge's scores of all cases.
    if matrix["figures"] != "final":
        return []
    read, baseline = Scores(database, sweep), matrix["baseline"]
    base = read.choices.index(baseline) if baseline in read.choices else None
    by_metric = (_of_metric(database, sweep, read, metric, base) for metric in matrix["metrics"])
    return [document for document in by_metric if document is not None]


def _of_metric(
    database: Database, sweep: SweepRow, read: Scores, metric: str, base: int | None
) -> PeopleDocument | None:
    """Return the estimates for one metric; None without usable labels (`wtb judge check` shows the reason)."""
    if not (labels := stored_labels(database, sweep.id, metric)):
        return None
    try:
        judge_check = check(database, sweep, read, metric, labels, "ordinal", base=base)
    except InputError:
        return None
    document: PeopleDocument = {
        "metric": metric,
        "labels": judge_check.labels,
        "raters": len(judge_check.raters),
        "rows": [
            {
                "combination": row.combination,
                "labels": row.labels,
                "mean": row.people.value,
                "ci": _interval(row.people),
                "delta": None if row.difference is None else row.difference.value,
                "delta_ci": None if row.difference is None else _interval(row.difference),
                "few_labels": row.has_few_labels,
            }
            for row in judge_check.rows
        ],
    }
    if judge_check.why_not:
        document["because"] = judge_check.why_not
    return document


def _interval(figure: Figure) -> Interval | None:
    return None if figure.interval is None else [*figure.interval]
