"""Ranking rows by comparisons of two at a time: those of a file, and those that a judge is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from wtb.analysis.judges.ranking import Asked, Ended, RowRanking, ranking
from wtb.analysis.statistics.raters.bradley_terry import Comparisons
from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import AnyPath
from wtb.core.errors import InputError, did_you_mean
from wtb.operations.context import Context
from wtb.operations.results.asking import Asker, Asking, Table
from wtb.operations.results.preference_files import RESULTS, Preference, read_preferences
from wtb.store.read import queries


@checked
def rank(
    context: Context, ref: str, comparisons: AnyPath, *, rater: str | None = None, asking: Asking | None = None
) -> RowRanking:
    """Rank rows by comparisons of two at a time.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        comparisons: A CSV file, or `.jsonl`: `case`, `first`, `second`, `preferred` and `rater`. What a judge replies
            is written behind them, and is not asked again; `.jsonl` then.
        rater: Whose comparisons count; by default everybody's, where no judge is asked.
        asking: A judge to be asked, about what tells most, until the best row is known.

    Returns:
        The rows, strongest first.

    Raises:
        InputError: If there is no such sweep, or the file cannot be used.
    """
    comparisons = Path(comparisons)
    database = context.database
    sweep = queries.find_sweep(database, ref)
    table = Table(database, sweep)
    if asking is None:
        preferences = [preference for preference in read_preferences(comparisons) if rater in (None, preference.rater)]
        raters = tuple(sorted({preference.rater for preference in preferences}))
        return ranking(table.sweep.id, table.choices, _read_comparisons(table, comparisons, preferences), raters)
    if comparisons.suffix != ".jsonl":
        raise InputError(f"{comparisons}: what a judge replies is written to JSON lines; expected a name with .jsonl")
    preferences = read_preferences(comparisons) if comparisons.exists() else []
    judge = Asker(
        table,
        comparisons,
        asking,
        {preference.asked: RESULTS[preference.preferred] for preference in preferences if preference.asked},
    )
    outcomes, is_known = judge.race()
    ended: Ended = "known" if is_known else "most" if judge.is_spent else "cases"
    summary = Asked(judge.call_count, judge.failed, judge.usd, ended)
    return ranking(table.sweep.id, table.choices, outcomes, (asking.rater,), summary)


def _read_comparisons(table: Table, file: Path, preferences: Sequence[Preference]) -> Comparisons:
    """What a file says of the rows of a sweep. Raises InputError."""
    rows = {name: number for number, name in enumerate(table.names)}
    problems = [
        f"{file}: the sweep has no {what} {name!r}{did_you_mean(name, existing)}"
        for what, existing, names in (
            ("case", table.cases, {preference.case for preference in preferences}),
            ("row", rows, {name for preference in preferences for name in (preference.first, preference.second)}),
        )
        for name in sorted(names - set(existing))
    ]
    if problems:
        raise InputError(*problems)
    if not preferences:
        raise InputError(f"{file}: no comparisons; expected at least one")
    units: dict[str, int] = {}
    places = [units.setdefault(table.unit(table.cases[preference.case]), len(units)) for preference in preferences]
    columns = (
        [rows[preference.first] for preference in preferences],
        [rows[preference.second] for preference in preferences],
        [RESULTS[preference.preferred] for preference in preferences],
        places,
    )
    return Comparisons(*(np.array(column, dtype=np.int64) for column in columns))
