"""Whether a metric has been held against people far enough for gates to rest on it, as the sweep says how far."""

from __future__ import annotations

from collections.abc import Mapping

from wtb.analysis.judges.check import JudgeCheck, Label, check
from wtb.analysis.scores import Scores
from wtb.core.errors import InputError
from wtb.core.mappings import Options
from wtb.core.scoring.judgement import BY_HAND, MET
from wtb.core.texts import plural
from wtb.store.control.labels import label_rows, labelled_sweeps
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.tables.sweeps import SweepRow


def stored_labels(database: Database, sweep_id: str, metric: str) -> list[Label]:
    """The labels that a sweep has for a metric."""
    return [
        Label(
            one.combination,
            one.case_number,
            one.repeat,
            one.rater,
            one.value,
            drawn=one.asked != "disagreement",
            probability=one.probability,
        )
        for one in label_rows(database, sweep_id, metric)
    ]


def judge_of(sweep: SweepRow, metric: str) -> tuple[str, Options]:
    """The evaluator that gives a metric, as the sweep has it: its name or import path, and its options."""
    for one in sweep.spec.get("evaluate") or ():
        for name, given in dict(one).items():
            options: Options = given if isinstance(given, Mapping) else {}
            if metric in (options.get("name"), name, name.rpartition(":")[2]):
                return name, options
    return "", {}


def rubric_of(judge: Options) -> dict[str, str]:
    """The levels of a judge, by its options, with their descriptions; criteria alone are met or not."""
    rubric = judge.get("rubric") or (MET if judge.get("criteria") else {})
    return {str(level): str(text) for level, text in rubric.items()}


def why_not(database: Database, sweep: SweepRow, metric: str) -> tuple[bool, str]:
    """Whether gates may rest on a metric, and what that is known by.

    Its own labels count, else those of the newest sweep of the project with the same judge: a sweep that has just
    ended has none.

    Args:
        database: The database.
        sweep: A sweep that says how far this metric has to agree.
        metric: The metric.

    Returns:
        Whether, and why in words.
    """
    asked = sweep.spec["agreement"][metric]
    if asked == BY_HAND:
        return True, f"{metric} decides by hand, however far it agrees with people"
    held = _held(database, sweep, metric)
    if held is None:
        return False, f"nobody has labelled anything for {metric}, which has to agree with people as far as {asked:g}"
    try:
        found = check(
            database, held, Scores(database, held), metric, stored_labels(database, held.id, metric), "ordinal"
        )
    except InputError as error:
        return False, str(error)
    if found.why_not:
        return False, f"nothing is known of how far {metric} agrees with people: {found.why_not}"
    kappa, labels = found.kappa, f"{plural(found.labels, 'label')} of {held.name}"
    interval = kappa.interval or ((_least(found), 1.0) if kappa.value == 1 else None)
    if kappa.value is None or interval is None:
        why = f": {kappa.because}" if kappa.because else ""
        return False, f"nothing is known of how far {metric} agrees with people, by {labels}{why}"
    figures = f"{kappa.value:.3f} ({interval[0]:.3f} to {interval[1]:.3f}), {labels}"
    if interval[0] >= float(asked):
        return True, f"{metric} agrees with people: {figures}"
    return False, f"{metric} is not shown to agree with people as far as {float(asked):g}: {figures}"


def _least(found: JudgeCheck) -> float:
    """The lower end of a kappa where nobody disagreed, of which leaving out a case says nothing.

    Of n cases without a disagreement, less than 3 / n disagree with 95% (Hanley and Lippman-Hand 1983): as if as many
    were between the ends of the scale. Cases of the row that has most of them count, since rows share cases.
    """
    shares = [one.labels / found.labels for one in found.levels]
    apart = [[abs(first - second) for second in range(len(shares))] for first in range(len(shares))]
    by_chance = sum(p * q * apart[i][j] for i, p in enumerate(shares) for j, q in enumerate(shares))
    return max(-1.0, 1 - 3 / max(row.labels for row in found.rows) * (len(shares) - 1) / by_chance)


def _held(database: Database, sweep: SweepRow, metric: str) -> SweepRow | None:
    """The sweep whose labels say how far a metric agrees with people."""
    judge = judge_of(sweep, metric)
    if label_rows(database, sweep.id, metric):
        return sweep
    for sweep_id in labelled_sweeps(database, sweep.project, metric):
        other = queries.find_sweep(database, sweep_id)
        if judge_of(other, metric) == judge and judge[0]:
            return other
    return None
