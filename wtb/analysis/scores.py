"""Score tables of a sweep: the one place where a failed cell gets the score that it counts as.

Everything that compares, ranks or shows scores of cases reads them here.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.observations import Numbers, Observations, case_means, observations
from wtb.analysis.statistics import Design, Floats
from wtb.analysis.statistics.claims import MissingCells
from wtb.analysis.statistics.intervals import Units, numbered
from wtb.analysis.statistics.row_figures import FigureRows, over_repeats
from wtb.core.errors import InputError, did_you_mean
from wtb.core.factors import factors_of
from wtb.core.frozen import frozen
from wtb.core.scoring.failure_scores import ENDS, failure_score, kind_of, results
from wtb.core.scoring.measure import MEASURED_NAMES, OF_SCORES, Measure, read_passes
from wtb.core.scoring.scores import LEFT_OUT
from wtb.core.scoring.unknown_costs import UnknownCost, is_concerned
from wtb.core.tree.stored_spec import Addition, StoredStop, additions
from wtb.planning.metric_names import COST, primary_of
from wtb.store.control.stopped import stopped_of
from wtb.store.database import Database
from wtb.store.read import aggregates, costs, evidence, queries
from wtb.store.read.aggregates import CellGroup
from wtb.store.tables.sweeps import SweepRow


@frozen
class ScoreTable:
    """Scores of one metric as combinations x cases, averaged over repeats, NaN where there is no score.

    Attributes:
        scores: The scores, including those that failed cells count as.
        cases: The number of the case of each column: cases with any score, and cases without one because every cell or
            its evaluator failed.
        units: The cluster of each case; None if no case has one.
        behind: How many repeats each score is averaged over.
        failed: How many failed cells count.
        failure_score: The score of each failed cell; None if failed cells are left out.
        figure: The cells themselves, if the metric is a figure over all cells of a row.
        missing: The cells that should have a score and have none.
    """

    scores: Floats
    cases: NDArray[np.int64]
    units: Units
    behind: NDArray[np.int32]
    failed: int
    failure_score: float | None
    figure: FigureRows | None = None
    missing: MissingCells | None = None

    def part(self, rows: Sequence[int], selected: NDArray[np.bool_] | None = None) -> ScoreTable:
        """Return the table of some rows, over the cases that are kept."""
        columns = slice(None) if selected is None else selected
        units = None if self.units is None else self.units[columns]
        parts = (self.scores[rows][:, columns], self.cases[columns], units, self.behind[rows][:, columns])
        figure, missing = (
            self.figure and self.figure.part(rows, selected),
            self.missing and self.missing.part(rows, selected),
        )
        return ScoreTable(*parts, self.failed, self.failure_score, figure, missing)

    def count_units(self) -> int | None:
        """Return the number of clusters, counting each case without one as its own; None if no case has one."""
        return None if self.units is None else int(np.unique(self.units).size)

    def bounds(self, measure: Measure, cells: int) -> list[list[float] | None]:
        """Return for each row its mean if all missing scores were at the lowest, and at the highest, of the scale.

        Args:
            measure: How the metric is read.
            cells: How many cells each row has.

        Returns:
            A pair for each row; None if no score is missing, or the metric has no scale.
        """
        if measure.scale is None or measure.figure is not None or measure.passes is not None:
            return [None] * len(self.scores)
        low, high = measure.scale
        total = np.array([np.nan_to_num(row) @ behind for row, behind in zip(self.scores, self.behind, strict=True)])
        missing = cells - self.behind.sum(axis=1)
        return [
            [float(scored_sum + lost * low) / cells, float(scored_sum + lost * high) / cells] if lost else None
            for scored_sum, lost in zip(total, missing, strict=True)
        ]


class Scores:
    """The scores of a sweep.

    Args:
        database: Where the sweep is.
        sweep: Its row.
        edited: Include cells whose state a person edited.
        by: The sweep whose settings define the score of a failed cell, if it is not this one.
        baseline: The number of the combination that others are compared with, instead of the sweep's own.
    """

    def __init__(
        self,
        database: Database,
        sweep: SweepRow,
        *,
        edited: bool = False,
        by: SweepRow | None = None,
        baseline: int | None = None,
    ) -> None:
        self._database, self._sweep, self.edited = database, sweep, edited
        self.chosen_baseline = baseline
        self._spec = (by or sweep).spec
        self._tables: dict[str, ScoreTable] = {}

    @property
    def sweep_id(self) -> str:
        return self._sweep.id

    @property
    def seed(self) -> int:
        """Seed of all random draws that conclusions from the scores use."""
        return int(self._sweep.spec["seed"])

    @cached_property
    def choices(self) -> list[dict[str, str]]:
        """The combinations, by number."""
        return queries.choices(self._database, self._sweep.id)

    @cached_property
    def grid_levels(self) -> dict[tuple[str, str], dict[str, str]]:
        """Levels of variants that are points of grids: (node, variant) -> name of the factor -> label."""
        levels: dict[tuple[str, str], dict[str, str]] = {}
        for factor in itertools.chain.from_iterable(factors_of(self._sweep.spec["vary"]).values()):
            for level in factor.levels:
                for variant in level.variants:
                    levels.setdefault((factor.node, variant), {})[factor.name] = level.label
        return levels

    @cached_property
    def added(self) -> list[Addition]:
        """Rows that were added after the submission; they come last."""
        return additions(self._sweep.spec)

    @cached_property
    def stopped(self) -> Mapping[int, StoredStop]:
        """The combinations that were stopped, by number."""
        return stopped_of(self._database, self._sweep.id)

    @property
    def planned(self) -> int:
        """Number of rows at submission: those that are ranked, and among which the best is."""
        return len(self.choices) - len(self.added)

    @cached_property
    def baseline(self) -> int | None:
        """Number of the combination that others are compared with; None without one."""
        if self.chosen_baseline is not None:
            return self.chosen_baseline
        named = self._sweep.spec.get("baseline_row")
        return self.choices.index(named) if named in self.choices else None

    def check_baseline(self) -> None:
        """Reject a baseline that is no planned row.

        Raises:
            InputError: There is no such row, or it was added after the submission.
        """
        if self.chosen_baseline is not None and self.chosen_baseline >= self.planned:
            added = ", and those that were added since are no baselines" if self.added else ""
            problem = f"baseline {self.chosen_baseline}: the sweep has the rows 0 to {self.planned - 1}{added}"
            raise InputError(problem, argument="baseline")

    @cached_property
    def measures(self) -> Mapping[str, Measure]:
        """Measures of the metrics in display order: the deciding metric comes first."""
        unordered = queries.measures(self._database, self._sweep.id)
        first = primary_of(self._spec, unordered)
        if first not in unordered:  # nothing is scored by it yet
            first = primary_of({}, unordered)
        return dict(sorted(unordered.items(), key=lambda pair: pair[0] != first))

    @property
    def primary(self) -> str | None:
        """Deciding metric; None if nothing is scored."""
        return next(iter(self.measures), None)

    def chosen_metric(self, named: str | None) -> str:
        """Return the named metric, else the deciding one.

        Raises:
            InputError: The sweep has no such metric, or no scores yet.
        """
        metric = self.primary if named is None else named
        if metric is None:
            raise InputError("the sweep has no scores yet", argument="metric")
        if metric not in self.measures:
            near = did_you_mean(metric, self.measures) or f"; scored are {', '.join(self.measures) or 'no metrics'}"
            raise InputError(f"the sweep has no metric {metric!r}{near}", argument="metric")
        return metric

    def family(self, metric: str) -> int:
        """Return how many metrics share a correction with this one; the deciding metric is corrected alone."""
        return 1 if metric == self.primary else max(1, len(self.measures) - 1)

    def design(self, metric: str, table: ScoreTable, share: float) -> Design:
        """Return how the rows of a table are compared. `share` is the part of the 5% that is left."""
        measure = self.measures[metric]
        return Design(
            self.baseline,
            measure.better,
            measure.compare,
            table.units,
            self.seed,
            self.family(metric),
            share,
            figure=table.figure,
            ends=_ends(metric, measure),
            missing=table.missing,
        )

    @cached_property
    def cases(self) -> int:
        """Number of cases of the sweep."""
        return evidence.case_count(self._database, self._sweep.id)

    def cells(self, metric: str) -> int:
        """Return how many cells each combination has for cases with an expected value for a metric."""
        return (self.cases - self.without_expected.get(metric, 0)) * int(self._sweep.spec["repeats"])

    @cached_property
    def cell_groups(self) -> Sequence[CellGroup]:
        """All cells, counted by outcome, including cells that are left out."""
        return aggregates.cell_groups(self._database, self._sweep.id)

    @cached_property
    def errors(self) -> aggregates.Rows:
        """Failed scores: (metric, count, one of the reasons)."""
        return aggregates.score_errors(self._database, self._sweep.id)

    @cached_property
    def without_expected(self) -> Mapping[str, int]:
        """Number of cases without an expected value, for each metric for which any case lacks one."""
        return aggregates.count_without_expected(self._database, self._sweep.id)

    def _failed_for(self, metric: str) -> NDArray[np.int64]:
        """Return (combination, case, repeat) of the failed cells that a metric would have scored."""
        ended = self._ended[0]
        if not len(ended) or metric not in self.without_expected:
            return ended
        excluded = aggregates.cases_without_expected(self._database, self._sweep.id, metric)
        return ended[~np.isin(ended[:, 1], excluded)]

    @cached_property
    def edited_cells(self) -> int:
        """Number of cells whose outcome depends on a state that a person edited."""
        return sum(group.ended for group in self.cell_groups if group.edited)

    @cached_property
    def unknown_costs(self) -> Sequence[UnknownCost]:
        """Reasons why costs are unknown."""
        return costs.unknown_costs(self._database, self._sweep.id)

    @cached_property
    def without_cost(self) -> frozenset[int]:
        """Combinations whose cost is unknown."""
        reasons = self.unknown_costs
        return frozenset(number for number, choice in enumerate(self.choices) if is_concerned(choice, reasons))

    def _with_cost(self, metric: str, columns: Sequence[Any]) -> list[Any]:
        """Leave out scores of `cost` from calls whose cost is unknown. `columns` begins with the combination."""
        if metric != COST or not self.without_cost:
            return list(columns)
        has_cost = ~np.isin(np.array(columns[0], dtype=np.int64), list(self.without_cost))
        return [np.array(column)[has_cost] for column in columns]

    @cached_property
    def _ended(self) -> tuple[NDArray[np.int64], Counter[str], Counter[int], NDArray[np.int64]]:
        """Failed cells that are results, as (combination, case, repeat), and what is missing.

        The other parts count missing cells by kind, count cells of each case without a final state, and list
        (combination, case, 1) for each cell that was lost to a provider.
        """
        counted, places, missing, by_case = results(self._spec), [], Counter[str](), Counter[int]()
        lost: list[list[int]] = []
        ended_cells: aggregates.Rows = []
        # `cell_groups` is read anyway; without any failed cell it saves a scan of all cells.
        if any(group.status in ENDS for group in self.cell_groups):
            ended_cells = aggregates.ended_without_state(self._database, self._sweep.id, edited=self.edited)
        for *place, status, kind, type_ in ended_cells:
            ended = kind_of(status, kind, type_)
            by_case[place[1]] += 1
            if ended == "provider":
                lost.append([*place[:2], 1])
            if ended in counted:
                places.append(place)
            else:
                missing[ended] += 1
        return _triples(places), missing, by_case, _triples(lost)

    @property
    def lost_of(self) -> Mapping[int, int]:
        """Number of cells of each combination that were lost to a provider."""
        return Counter(self._ended[3][:, 0].tolist())

    @property
    def failed(self) -> int:
        """Number of failed cells that are results."""
        return len(self._ended[0])

    def failed_of(self, metric: str) -> Mapping[int, int]:
        """Return how many failed cells of each combination are results for a metric."""
        return Counter(self._failed_for(metric)[:, 0].tolist())

    @property
    def missing(self) -> Mapping[str, int]:
        """Number of cells that ended without a result, by kind."""
        return self._ended[1]

    @cached_property
    def _clusters(self) -> Mapping[int, str]:
        return evidence.clusters(self._database, self._sweep.id)

    def failure_score(self, measure: Measure) -> float | None:
        """Return the score of a failed cell for a metric; None if failed cells are left out."""
        return failure_score(measure.on_failure, measure.worst, self._spec)

    def leaves_out(self, measure: Measure) -> bool:
        """Return whether the evaluator or the sweep declares that failed cells have no score for a metric."""
        return LEFT_OUT in (measure.on_failure, self._spec.get("on_failure") if measure.on_failure is None else None)

    def _missing(self, metric: str, cases: NDArray[np.int64], behind: NDArray[np.int32]) -> MissingCells | None:
        """Return the missing cells of a table by reason; None if every cell has a score."""
        remaining = np.where(self._counts(cases), int(self._sweep.spec["repeats"]) - behind, 0).astype(np.int32)
        if not remaining.any():
            return None
        reasons = {}
        errors = _triples([row[:3] for row in self._score_errors(metric)])
        # Each missing repeat has one reason: providers and evaluators take theirs first, and the rest counts as failed.
        for reason, places in (("provider", self._ended[3]), ("evaluator", errors)):
            counts = np.zeros_like(remaining)
            own_places = places[np.isin(places[:, 1], cases)]
            np.add.at(counts, (own_places[:, 0], np.searchsorted(cases, own_places[:, 1])), own_places[:, 2])
            reasons[reason] = np.minimum(counts, remaining)
            remaining = remaining - reasons[reason]
        return MissingCells(behind, {**reasons, "failed": remaining})

    def _counts(self, cases: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which cells of a table count. For an added row, the case that suggested it does not."""
        counts = np.ones((len(self.choices), len(cases)), dtype=np.bool_)
        for addition in self.added:
            counts[addition.combination] = ~np.isin(cases, addition.left_out)
        counts[list(self.stopped)] = False  # what it did not get to is no failure
        return counts

    def check_failure_score(self) -> None:
        """Reject a score of failures that is outside the scale of a metric.

        Raises:
            InputError: The score is outside a scale.
        """
        score = self._spec.get("on_failure")
        for name, measure in self.measures.items():
            if measure.on_failure is not None or measure.scale is None or not isinstance(score, float | int):
                continue
            low, high = measure.scale
            if not low <= score <= high:
                expected = f"expected a score on the scale of {name}, {low:g} to {high:g}, or {LEFT_OUT}"
                raise InputError(f"on_failure is {score:g}; {expected}", argument="on_failure")

    def rows(self, metric: str, measure: Measure | None = None) -> Floats:
        """Return (combination, case, mean over repeats, repeats) for every score.

        For a figure over all cells of a row, the mean is the contribution of the case.

        Args:
            metric: The metric.
            measure: How the metric is read, if not as this sweep declares it.
        """
        measure = measure or self.measures.get(metric, Measure())
        if (observed := self.observed(metric, measure)) is not None:
            return case_means(observed.contributions())
        scores, passes = self._rows(metric, self.failure_score(measure)), read_passes(measure.passes)
        if passes is None:
            return scores
        scores[:, 2] = over_repeats(passes, scores[:, 2], scores[:, 3])
        return scores[np.isfinite(scores[:, 2])]

    def case_rows(self, metric: str, measure: Measure | None = None) -> Floats:
        """Return the same for a look at single cases: for figures of classes, whether they are right."""
        measure = measure or self.measures.get(metric, Measure())
        if measure.figure is None or measure.figure in OF_SCORES:
            return self.rows(metric, measure)
        return self._rows(metric, self.failure_score(measure))

    def _rows(self, metric: str, score: float | None) -> Floats:
        """Return the means of a metric together with failed cells. `score` is theirs; None leaves them out."""
        means, ended = stacked(self._means(metric), 4), self._failed_for(metric)
        if score is None or not len(ended):
            return self._counted(means)
        every = np.vstack([means, np.column_stack([ended[:, :2], np.full(len(ended), score), np.ones(len(ended))])])
        # Without repeats no cell both succeeded and failed, so nothing has to be merged.
        return self._counted(_joined(every) if self._is_repeated else every)

    @property
    def _is_repeated(self) -> bool:
        return int(self._sweep.spec["repeats"]) > 1

    def _means(self, metric: str) -> Iterator[aggregates.Columns]:
        """Yield parts of (combination, case, mean over repeats, repeats) of succeeded cells."""
        every = self.edited or not self.edited_cells
        repeated = self._is_repeated
        means = aggregates.mean_scores(self._database, self._sweep.id, metric, repeated=repeated, edited=every)
        return (self._with_cost(metric, columns) for columns in means)

    def observed(self, metric: str, measure: Measure, numbers: Numbers | None = None) -> Observations | None:
        """Return the observations of a figure over all cells of a row; None if the metric is no such figure.

        Failed cells are included if they count.

        Args:
            metric: The metric.
            measure: How it is read.
            numbers: Numbers of its classes, if several sweeps must share them.
        """
        if measure.figure is None:
            return None
        numbers = numbers or Numbers(measure.figure)
        cells = observations(self._database, self._sweep.id, metric, numbers, edited=self.edited)
        if self.failure_score(measure) is not None:
            cells = cells.with_failed(self._failed_for(metric))
        if self.stopped:
            cells = cells.part(~np.isin(cells.place[:, 0], list(self.stopped)))
        return cells.part(self._is_counted(cells.place)) if self.added else cells

    def _counted(self, rows: Floats) -> Floats:
        """Leave out scores that do not count: for an added row, the case that suggested it."""
        return rows[self._is_counted(rows)] if self.added else rows

    def _is_counted(self, places: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which rows of (combination, case, ...) count."""
        counted = np.ones(len(places), dtype=np.bool_)
        # A row that was added because of a case would look good on it by selection alone.
        for addition in self.added:
            counted &= ~((places[:, 0] == addition.combination) & np.isin(places[:, 1], addition.left_out))
        return counted

    def _unscored(self, metric: str) -> Floats:
        """Return cases that lack a score although the metric applies to them."""
        each = len(self.choices) * int(self._sweep.spec["repeats"])
        excluded = set[int]()
        if metric in self.without_expected:
            excluded.update(aggregates.cases_without_expected(self._database, self._sweep.id, metric))
        failed = [case for case, cells in self._ended[2].items() if cells == each and case not in excluded]
        return np.array([*failed, *(row[1] for row in self._score_errors(metric))], dtype=float)

    def _score_errors(self, metric: str) -> aggregates.Rows:
        """Read (combination, case, failed scores, and how many of these were not a provider's fault)."""
        has_errors = any(name == metric for name, *_ in self.errors)
        return evidence.failed_score_counts(self._database, self._sweep.id, metric) if has_errors else []

    def by_repeat(self, metric: str) -> Floats:
        """Return (combination, case, repeat, score) for every score."""
        measure = self.measures.get(metric, Measure())
        if (observed := self.observed(metric, measure)) is not None:
            return observed.contributions()
        score, ended = self.failure_score(measure), self._failed_for(metric)
        parts = aggregates.scores_by_repeat(self._database, self._sweep.id, metric)
        rows = stacked((self._with_cost(metric, columns) for columns in parts), 4)
        if score is not None:
            rows = np.vstack([rows, np.column_stack([ended, np.full(len(ended), score)])])
        return self._counted(rows)

    def table(self, metric: str) -> ScoreTable:
        """Return the scores of a metric, which are read once."""
        if metric not in self._tables:
            self._tables[metric] = self._table(metric)
        return self._tables[metric]

    def planned_table(self, metric: str) -> ScoreTable:
        """Return the same for planned rows only."""
        return self.table(metric).part(range(self.planned)) if self.added else self.table(metric)

    def _table(self, metric: str) -> ScoreTable:
        """Read the scores of a metric in parts, so that the table is the largest object in memory."""
        measure = self.measures.get(metric, Measure())
        score = self.failure_score(measure)
        cases = np.array(aggregates.case_numbers(self._database, self._sweep.id), dtype=np.int64)
        # At least one column, because the statistics reduce over cases and numpy has no maximum of nothing.
        table = np.full((len(self.choices), max(1, len(cases))), np.nan)
        behind = np.zeros(table.shape, dtype=np.int32)
        observed = self.observed(metric, measure)
        means = self._means(metric) if observed is None else iter([list(case_means(observed.contributions()).T)])
        for combination, case, mean, repeats in means:
            place = np.array(combination, dtype=np.int64), np.searchsorted(cases, np.array(case))
            table[place], behind[place] = mean, repeats
        ended = self._failed_for(metric)
        if score is not None and len(ended) and measure.figure is None:
            _add_failed(table, behind, (ended[:, 0], np.searchsorted(cases, ended[:, 1])), score)
        if (passes := read_passes(measure.passes)) is not None:
            table = over_repeats(passes, table, behind)
            behind[np.isnan(table)] = 0
        for addition in self.added:
            hidden = np.flatnonzero(np.isin(cases, addition.left_out))
            table[addition.combination, hidden], behind[addition.combination, hidden] = np.nan, 0
        # A case that no cell could score stays as a column, so that failures count; a case to which the metric does not
        # apply goes.
        is_scored = np.asarray(behind.any(axis=0))[: len(cases)] | np.isin(cases, self._unscored(metric))
        if not is_scored.all():
            columns = np.flatnonzero(is_scored) if is_scored.any() else [0]
            cases, table, behind = cases[is_scored], table[:, columns], behind[:, columns]
        clusters = self._clusters
        units = numbered([clusters.get(case) for case in cases.tolist()])
        figure = None if observed is None else observed.rows(table.shape, np.arange(len(table)), places(cases))
        missing = self._missing(metric, cases, behind)
        return ScoreTable(table, cases, units, behind, 0 if score is None else len(ended), score, figure, missing)


def _ends(metric: str, measure: Measure) -> tuple[float, float] | None:
    """Return the lowest and highest possible score of a metric: seconds, dollars and counts are never negative."""
    if measure.figure is not None:
        return None
    return measure.scale or ((0.0, math.inf) if metric in MEASURED_NAMES else None)


def _triples(rows: Iterable[Sequence[int]]) -> NDArray[np.int64]:
    return np.array(list(rows), dtype=np.int64).reshape(-1, 3)


def places(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a lookup from each number to its index; -1 for numbers that are not among them."""
    lookup = np.full(int(numbers.max(initial=-1)) + 1, -1, dtype=np.int64)
    lookup[numbers] = np.arange(len(numbers))
    return lookup


def stacked(parts: Iterable[aggregates.Columns], width: int) -> Floats:
    """Stack the parts of a query that is read column by column. `width` is its number of columns."""
    return np.vstack([np.empty((0, width)), *(np.column_stack(part) for part in parts)])


def _add_failed(
    table: Floats, behind: NDArray[np.int32], place: tuple[NDArray[np.int64], NDArray[np.int64]], score: float
) -> None:
    """Count failed cells as repeats in a table of means. `place` has the row and column of each."""
    # Assignment with repeated indexes keeps one of them only, so each place is updated once and `np.add.at` counts.
    places = tuple(np.unique(np.column_stack(place), axis=0).T)
    sums = np.nan_to_num(table)[places] * behind[places]
    failed = np.zeros(table.shape, dtype=np.int32)
    np.add.at(failed, place, 1)
    table[places] = (sums + score * failed[places]) / (behind[places] + failed[places])
    behind += failed


def _joined(rows: Floats) -> Floats:
    """Merge rows of the same combination and case, each mean weighted by its repeats."""
    keys, place = np.unique(rows[:, :2], axis=0, return_inverse=True)
    repeats = np.bincount(place.ravel(), rows[:, 3])
    means = np.bincount(place.ravel(), rows[:, 2] * rows[:, 3]) / repeats
    return np.column_stack([keys, means, repeats])
