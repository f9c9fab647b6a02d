"""Combinations and cases that two sweeps have in common, and their results as tables of the same shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wtb.analysis import scores
from wtb.analysis.comparison.changes import renamed_variants
from wtb.analysis.observations import Numbers
from wtb.analysis.statistics import Floats
from wtb.analysis.statistics.claims import MissingCells
from wtb.analysis.statistics.claims import Pairs as TableOfPairs
from wtb.analysis.statistics.class_intervals import FigureDifferences, differences
from wtb.analysis.statistics.intervals import Units, numbered
from wtb.analysis.statistics.margins import BeforeAndAfter
from wtb.analysis.statistics.paired import subtract
from wtb.analysis.statistics.row_figures import FigureRows
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.provider_faults import is_waiting
from wtb.core.scoring.measure import Measure
from wtb.core.tree.looks import is_of_equal_inputs, united
from wtb.store.database import Database
from wtb.store.read import evidence, queries
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.comparison import CaseChanges, CombinationChanges

Integers = NDArray[np.int64]


class Pairs(NamedTuple):
    """Combinations and cases that two sweeps have in common.

    Attributes:
        choices: The combinations that both have.
        ids: The ids of the unchanged cases that both have.
        rows: For each sweep, combination number -> row of the tables, or -1.
        columns: For each sweep, case number -> column of the tables, or -1.
        combinations: How many combinations both, or only one of them, have.
        cases: The same of cases.
        units: The cluster of each case; None if no case has one.
    """

    choices: Sequence[Mapping[str, str]]
    ids: Sequence[str]
    rows: tuple[Integers, Integers]
    columns: tuple[Integers, Integers]
    combinations: CombinationChanges
    cases: CaseChanges
    units: Units = None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.choices), len(self.ids)

    def table(self, side: int, cell_rows: Sequence[Sequence[Any]], column: int, dtype: Any = float) -> NDArray[Any]:
        """Return a column of rows (combination, case number, ...) as combinations x cases; NaN or None if missing."""
        values = np.full(self.shape, None if dtype is object else np.nan, dtype)
        if cell_rows:
            numbers = np.array([row[:2] for row in cell_rows], dtype=np.int64)
            row, place = self.rows[side][numbers[:, 0]], self.columns[side][numbers[:, 1]]
            is_paired = (row >= 0) & (place >= 0)
            cells = np.array([cell_row[column] for cell_row in cell_rows], dtype)
            values[row[is_paired], place[is_paired]] = cells[is_paired]
        return values


def match(database: Database, before: SweepRow, after: SweepRow) -> Pairs:
    """Pair two sweeps. Grid points that differ only in the text of files are the same combination.

    Cases are the same if their input, expected value and files are.

    Raises:
        InputError: The sweeps assign a case to different clusters.
    """
    choices = [queries.choices(database, sweep.id) for sweep in (before, after)]
    renamed = renamed_variants(before.spec, after.spec)  # since only the text of a file was changed
    choices[0] = [
        {node: renamed.get(node, {}).get(name, name) for node, name in choice.items()} for choice in choices[0]
    ]
    named = [{tuple(sorted(choice.items())): number for number, choice in enumerate(side)} for side in choices]
    # In the order of the later sweep, which is the one that readers know.
    common = [key for key in named[1] if key in named[0]]
    contents = [
        {id: (number, content) for number, id, content in evidence.case_contents(database, sweep.id)}
        for sweep in (before, after)
    ]
    both = [id for id in contents[1] if id in contents[0]]
    same = [id for id in both if contents[0][id][1] == contents[1][id][1]]
    unchanged = set(same)
    return Pairs(
        [choices[1][named[1][key]] for key in common],
        same,
        _places(named, common),
        _places([{id: number for id, (number, _) in side.items()} for side in contents], same),
        {"common": len(common), "added": len(named[1]) - len(common), "removed": len(named[0]) - len(common)},
        {
            "common": len(both),
            "added": [id for id in contents[1] if id not in contents[0]],
            "removed": [id for id in contents[0] if id not in contents[1]],
            "changed": [id for id in both if id not in unchanged],
        },
        _units(database, (before, after), contents, same),
    )


def _units(
    database: Database,
    sweeps: Sequence[SweepRow],
    contents: Sequence[Mapping[str, tuple[int, Any]]],
    same: Sequence[str],
) -> Units:
    """Return the clusters of the cases. A case without a cluster in one sweep has that of the other.

    Clusters of equal inputs are merged from both sweeps, because they depend on which cases a sweep has. Clusters that
    cases name come first, and the later sweep decides whether equal inputs are independent.
    """
    named, alike = [], []
    for sweep, side in zip(sweeps, contents, strict=True):
        clusters = evidence.clusters(database, sweep.id)
        names = [clusters.get(number) for number, _ in (side[id] for id in same)]
        named.append([None if is_of_equal_inputs(name) else name for name in names])
        alike.append([f"{name} of {sweep.id}" if is_of_equal_inputs(name) else None for name in names])
    for id, old, new in zip(same, *named, strict=True):
        if old is not None and new is not None and old != new:
            raise InputError(
                f"case {id!r} is in cluster {old!r} in sweep {sweeps[0].id} and in cluster {new!r} in sweep "
                f"{sweeps[1].id}; expected the same in both, since the cases of a cluster count together"
            )
    both = [new or old for old, new in zip(*named, strict=True)]
    if sweeps[1].spec.get("equal_inputs") == "independent":
        return numbered(both)
    unnamed = [[None if name else other for name, other in zip(both, side, strict=True)] for side in alike]
    return numbered(united(both, *unnamed))


def _places(sides: Sequence[Mapping[Any, int]], common: Sequence[Any]) -> tuple[Integers, Integers]:
    """Return for each sweep, number -> place among the common ones, or -1."""
    before, after = (np.full(max(numbers.values(), default=-1) + 1, -1, dtype=np.int64) for numbers in sides)
    for places, numbers in zip((before, after), sides, strict=True):
        places[[numbers[key] for key in common]] = np.arange(len(common))
    return before, after


Booleans = NDArray[np.bool_]


@frozen
class Outcomes:
    """The share of failed repeats of each cell (NaN without an outcome) and one execution, in each sweep.

    Attributes:
        before: The shares in the earlier sweep.
        after: The shares in the later sweep.
        executions: An execution of each cell, in each sweep.
        unpaired: Cells that fail in the later sweep and have no outcome in the earlier one.
        lost: Cells that were lost to a provider, lost a score to one or wait for one, in each sweep.
    """

    before: Floats
    after: Floats
    executions: tuple[NDArray[Any], NDArray[Any]]
    unpaired: int
    lost: tuple[Booleans, Booleans]

    @property
    def lost_shares(self) -> tuple[float, float]:
        """Largest share of a combination's cells that was lost to a provider: (before, after)."""
        before, after = (float(lost.mean(axis=1).max()) if lost.size else 0.0 for lost in self.lost)
        return before, after

    @property
    def compared(self) -> int:
        return int((np.isfinite(self.before) & np.isfinite(self.after)).sum())

    @property
    def still_failing(self) -> int:
        return int(((self.before > 0) & (self.after > 0)).sum())

    @property
    def missing(self) -> tuple[int, int]:
        """Number of cells without an outcome in one sweep that have one in the other: (before, after)."""
        none = np.isnan(self.before), np.isnan(self.after)
        first, second = none[0] & ~none[1] & ~self.lost[0], none[1] & ~none[0] & ~self.lost[1]
        return int(first.sum()), int(second.sum())

    def succeeded(self, row: int) -> bool:
        """Return whether any cell of a combination succeeded in both sweeps."""
        return bool(((self.before[row] < 1) & (self.after[row] < 1)).any())


def read_outcomes(database: Database, before: SweepRow, after: SweepRow, pairs: Pairs) -> Outcomes:
    """Read how the cells of two sweeps ended."""
    ended_cells = [evidence.outcomes(database, sweep.id) for sweep in (before, after)]
    before_shares, after_shares = (
        _share_failed(pairs.table(side, rows, 2), pairs.table(side, rows, 3)) for side, rows in enumerate(ended_cells)
    )
    first, second = (pairs.table(side, rows, 4, object) for side, rows in enumerate(ended_cells))
    failing = sum(row[3] > 0 for row in ended_cells[1]) - int(((after_shares > 0) & np.isfinite(before_shares)).sum())
    unscored = [evidence.scores_lost_to_provider(database, sweep.id) for sweep in (before, after)]
    before_lost, after_lost = (
        (pairs.table(side, rows, 5) > 0)
        | (pairs.table(side, unscored[side], 2) > 0)
        # A sweep that waits for its provider has lost the cells it could not start.
        | (np.isnan(share) & is_waiting(sweep.reason))
        for side, (rows, share, sweep) in enumerate(
            zip(ended_cells, (before_shares, after_shares), (before, after), strict=True)
        )
    )
    return Outcomes(before_shares, after_shares, (first, second), failing, (before_lost, after_lost))


def _share_failed(succeeded: Floats, failed: Floats) -> Floats:
    ended = succeeded + failed
    return np.asarray(failed / np.where(ended > 0, ended, np.nan))


@frozen
class Scores:
    """The scores of two sweeps under one metric.

    Attributes:
        metric: Its name.
        measure: How it is read.
        before: The scores of the earlier sweep, combinations x cases.
        after: The scores of the later sweep.
        differences: Later minus earlier scores.
        listed: The scores by which cases are listed, in each sweep; for a figure over all cells of a row, whether cases
            are right.
        lost: Cells whose evaluator fails now but had a score before. A failure of a provider does not count.
        regained: Cells whose evaluator failed before but has a score now.
        counts_failures: True if failed cells have a score.
        figures: Differences of a figure over all cells of a row; None for other metrics.
        sides: The scores with the missing cells; None if none are missing.
    """

    metric: str
    measure: Measure
    before: Floats
    after: Floats
    differences: Floats
    listed: tuple[Floats, Floats]
    lost: Booleans
    regained: Booleans
    counts_failures: bool = False
    figures: FigureDifferences | None = None
    sides: BeforeAndAfter | None = None

    @property
    def gains(self) -> Floats:
        """Differences, positive if the later sweep is better."""
        return self.differences if self.measure.better == "higher" else -self.differences

    @property
    def changes(self) -> Floats:
        """Differences of the scores by which cases are listed."""
        return subtract(self.listed[1], self.listed[0])

    @property
    def is_typical(self) -> bool:
        """Return whether the median of the differences counts, instead of their mean."""
        return self.measure.compare == "median"

    @property
    def are_rates(self) -> bool:
        """Return whether all scores are 0 or 1."""
        return (
            not self.is_typical
            and self.measure.figure is None
            and all(bool(np.isin(table[np.isfinite(table)], (0, 1)).all()) for table in (self.before, self.after))
        )

    @property
    def were(self) -> Booleans:
        """Combinations that had any score before."""
        return np.asarray(np.isfinite(self.before).any(axis=1))


def read_scores(
    database: Database,
    before: SweepRow,
    after: SweepRow,
    pairs: Pairs,
    measures: Mapping[str, Measure],
    lost_cells: tuple[Booleans, Booleans],
) -> list[Scores]:
    """Read the scores of two sweeps by metric. In both, a failure counts as the later sweep declares.

    Args:
        database: Where both are.
        before: The row of the earlier sweep.
        after: The row of the later one.
        pairs: What they have in common.
        measures: The metrics of both.
        lost_cells: The cells lost to a provider, in each sweep.
    """
    # One rule for both sides: a changed `on_failure` would look like a change of quality.
    sides = [scores.Scores(database, sweep, by=after) for sweep in (before, after)]
    read = []
    for metric, measure in measures.items():
        side_rows = [side.rows(metric, measure).tolist() for side in sides]
        before_scores, after_scores = (pairs.table(side, rows, 2) for side, rows in enumerate(side_rows))
        listed = before_scores, after_scores
        if measure.figure is not None:
            first, second = (side.case_rows(metric, measure).tolist() for side in sides)
            listed = pairs.table(0, first, 2), pairs.table(1, second, 2)
        failed = [evidence.failed_score_counts(database, sweep.id, metric) for sweep in (before, after)]
        errors = [pairs.table(side, rows, 3) > 0 for side, rows in enumerate(failed)]
        lost, regained = (
            np.isfinite(before_scores) & np.isnan(after_scores) & errors[1],
            np.isnan(before_scores) & np.isfinite(after_scores) & errors[0],
        )
        counted = sides[1].failure_score(measure) is not None
        cells = None if measure.figure is None else _figure_rows(sides, pairs, metric, measure, Numbers(measure.figure))
        figures = None if cells is None else _figures(cells, pairs)
        behind = np.vstack([np.nan_to_num(pairs.table(side, rows, 3)) for side, rows in enumerate(side_rows)])
        repeats = np.repeat([int(sweep.spec["repeats"]) for sweep in (before, after)], len(before_scores))
        missing = _missing_cells(behind, repeats, np.vstack(lost_cells))
        both = None
        if missing is not None:
            table, seed = np.vstack([before_scores, after_scores]), int(after.spec.get("seed", 0))
            compared = TableOfPairs(table, missing, measure.scale, measure.compare, pairs.units, cells, seed)
            both = BeforeAndAfter(compared, measure.better == "higher")
        changed = subtract(after_scores, before_scores)
        read.append(
            Scores(
                metric, measure, before_scores, after_scores, changed, listed, lost, regained, counted, figures, both
            )
        )
    return read


def _missing_cells(behind: Floats, repeats: NDArray[np.int64], lost: Booleans) -> MissingCells | None:
    """Return the missing cells; None if there are none.

    Args:
        behind: How many repeats each score has.
        repeats: How many repeats each row has.
        lost: The cells lost to a provider.
    """
    missing = np.maximum(repeats[:, None] - behind, 0).astype(np.int32)
    if not missing.any():
        return None
    of_provider = np.where(lost, missing, 0).astype(np.int32)
    return MissingCells(behind.astype(np.int32), {"provider": of_provider, "failed": missing - of_provider})


def _figure_rows(
    sides: Sequence[scores.Scores], pairs: Pairs, metric: str, measure: Measure, numbers: Numbers
) -> FigureRows:
    """Return the cells of the earlier rows and, after them, of the later ones."""
    # Both sides share `numbers`, so a class has the same number in both.
    observed = (side.observed(metric, measure, numbers) for side in sides)
    earlier, later = (
        cells.rows(pairs.shape, pairs.rows[side], pairs.columns[side]) for side, cells in enumerate(observed) if cells
    )
    return FigureRows(numbers.figure, [*earlier.rows, *later.rows], pairs.shape[1])


def _figures(both: FigureRows, pairs: Pairs) -> FigureDifferences:
    """Return the differences of later and earlier rows by a figure over all of their cells."""
    count = len(both.rows) // 2
    row_differences = [differences(both, count + row, [row], pairs.units, one_sided=True) for row in range(count)]
    nothing = [np.empty((0, pairs.shape[1])), np.empty((0, 2)), np.empty((0, 2))]
    return FigureDifferences(*(np.vstack(parts) for parts in zip(nothing, *row_differences, strict=True)))


def failing(failed: Outcomes, scored: Sequence[Scores]) -> tuple[Floats, Floats]:
    """Return how much of each cell fails in each sweep, 0 to 1: the share of its repeats, or 1 if a score is lost."""
    before, after = failed.before.copy(), failed.after.copy()
    for pair_scores in scored:
        before[pair_scores.regained & np.isfinite(before)] = 1.0
        after[pair_scores.lost & np.isfinite(after)] = 1.0
    return before, after


Wrote = tuple[str, Mapping[str, str] | None, str | None]  # variant, key -> digest, snapshot
Step = Mapping[str, Sequence[Wrote | None] | str]  # node -> what its tasks wrote, or how it failed


def partings(database: Database, pairs: Sequence[Sequence[str | None]]) -> list[str | None]:
    """Return for each pair of executions the first node whose result differs.

    Several nodes of one step are separated by commas. None if nothing differs, their inputs do, or the rows were
    collected.
    """
    ends = evidence.ends(database, [id for pair in pairs for id in pair if id is not None])
    results = (tuple(_results(database, ends.get(id or "")) for id in pair) for pair in pairs)
    return [_parting(before, after) for before, after in results]


def _parting(before: Sequence[Step], after: Sequence[Step]) -> str | None:
    if not before or not after:
        return None
    nothing: Step = {}
    for step, other_step in zip_longest(before, after, fillvalue=nothing):
        if step != other_step:
            both = {**step, **other_step}
            # The empty name is a failure outside of any node, which is no place to look at.
            return ", ".join(node for node in both if node and step.get(node) != other_step.get(node)) or None
    return None


def _results(database: Database, end: evidence.End | None) -> list[Step]:
    """Return for each step after the input its nodes with their tasks' results; last, the node that failed."""
    head, failure = end or (None, None)
    line = queries.line(database, head) if head else []
    ids = [writer.node_run for checkpoint in line for writer in checkpoint.writers]
    # Digests instead of values: equal results are recognized without reading any blob.
    runs = {run.id: (run.variant, run.writes, run.workspace) for run in queries.node_runs_by_id(database, ids)}
    steps: list[dict[str, list[Wrote | None]]] = [{} for _ in line[1:]]
    for step, each in zip(steps, line[1:], strict=True):
        for task in each.writers:
            step.setdefault(task.node, []).append(runs.get(task.node_run))
    return [*steps, {failure["node"] or "": failure["type"]}] if failure else [*steps]
