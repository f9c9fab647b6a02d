"""The scores of a sweep as tables: the one place where a failed cell gets the score that it counts as.

Everything that compares, ranks or shows scores of cases reads them here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.observations import Numbers, Observations, case_means, observations
from wtb.analysis.statistics import Design, Floats
from wtb.analysis.statistics.figures.repeats import over_repeats
from wtb.analysis.statistics.figures.row_figures import FigureRows
from wtb.analysis.statistics.missing.missing_cells import MissingCells
from wtb.analysis.statistics.units import Units, numbered
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, did_you_mean
from wtb.core.factors.factors import factors_of
from wtb.core.scoring.failure_scores import ENDS, failure_score, kind_of, results
from wtb.core.scoring.figures import OF_SCORES
from wtb.core.scoring.measure import MEASURED_NAMES, Measure
from wtb.core.scoring.passes import read_passes
from wtb.core.scoring.scales import LEFT_OUT
from wtb.core.scoring.unknown_costs import UnknownCost, is_concerned
from wtb.core.tree.added_rows import Addition, additions
from wtb.core.tree.stored_spec import StoredStop
from wtb.planning.metric_names import COST, primary_of
from wtb.store.database import Database
from wtb.store.growth.stopped import stopped_of
from wtb.store.read import aggregates, costs, evidence, outcomes, queries
from wtb.store.read.aggregates import CellGroup
from wtb.store.tables.sweeps import SweepRow


@frozen
class ScoreTable:
    """Scores of one metric as combinations x cases, repeats averaged, NaN where there is none.

    Attributes:
        scores: with those that failed cells count as.
        cases: the number of the case of each column: those that have any score, and those that have none since every
            cell failed, or its evaluator did.
        units: the cluster of each case, None where no case has one.
        behind: how many repeats each score rests on.
        failed: how many failed cells count.
        failure_score: what each of them counts as; None where they are left out.
        figure: the cells themselves, where the metric is a figure over all cells of a row.
        missing: the cells that should have a score and have none.
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
        """How many clusters the cases come from, those without one each for itself; None where none has one."""
        return None if self.units is None else int(np.unique(self.units).size)

    def bounds(self, measure: Measure, cells: int) -> list[list[float] | None]:
        """For each row, its mean were all of its missing scores as low, and as high, as the metric's scale goes.

        cells: how many cells each row has. None where nothing is missing, or no scale was declared.
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
        edited: Include cells whose state a person edited.
        by: The sweep whose settings say what a failed cell counts as, where it is not this one.
        baseline: The number of the combination that others are held against, in place of the one that the sweep names.
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
        """Of whatever is drawn to conclude from the scores."""
        return int(self._sweep.spec["seed"])

    @cached_property
    def choices(self) -> list[dict[str, str]]:
        """The combinations, by number."""
        return queries.choices(self._database, self._sweep.id)

    @cached_property
    def grid_levels(self) -> dict[tuple[str, str], dict[str, str]]:
        """The levels of variants that are points of grids: (node, variant) -> name of the factor -> label."""
        levels: dict[tuple[str, str], dict[str, str]] = {}
        by_node = factors_of(self._sweep.spec["vary"])
        for factor in (factor for factors in by_node.values() for factor in factors):
            for level in factor.levels:
                for variant in level.variants:
                    levels.setdefault((factor.node, variant), {})[factor.name] = level.label
        return levels

    @cached_property
    def added(self) -> list[Addition]:
        """The rows that were added since it was submitted; they come last."""
        return additions(self._sweep.spec)

    @cached_property
    def stopped(self) -> Mapping[int, StoredStop]:
        """The combinations that were stopped, by number."""
        return stopped_of(self._database, self._sweep.id)

    @property
    def planned(self) -> int:
        """How many rows it was submitted with: those that are ranked, and among which the best is."""
        return len(self.choices) - len(self.added)

    @cached_property
    def baseline(self) -> int | None:
        """The number of the combination that others are held against."""
        if self.chosen_baseline is not None:
            return self.chosen_baseline
        named = self._sweep.spec.get("baseline_row")
        return self.choices.index(named) if named in self.choices else None

    def check_baseline(self) -> None:
        """Refuse a baseline that is no row that was planned. Raises InputError."""
        if self.chosen_baseline is not None and self.chosen_baseline >= self.planned:
            added = ", and those that were added since are no baselines" if self.added else ""
            problem = f"baseline {self.chosen_baseline}: the sweep has the rows 0 to {self.planned - 1}{added}"
            raise InputError(problem, argument="baseline")

    @cached_property
    def measures(self) -> Mapping[str, Measure]:
        """How each metric is read, in the order in which they are listed: the one that decides is the first."""
        unordered = queries.measures(self._database, self._sweep.id)
        first = primary_of(self._spec, unordered)
        if first not in unordered:  # nothing is scored by it yet
            first = primary_of({}, unordered)
        return dict(sorted(unordered.items(), key=lambda item: item[0] != first))

    @property
    def primary(self) -> str | None:
        """The metric that decides; None where nothing is scored."""
        return next(iter(self.measures), None)

    def chosen_metric(self, named: str | None) -> str:
        """Return the metric that was named, else the one that decides. Raises InputError where the sweep has none."""
        metric = self.primary if named is None else named
        if metric is None:
            raise InputError("the sweep has no scores yet", argument="metric")
        if metric not in self.measures:
            near = did_you_mean(metric, self.measures) or f"; scored are {', '.join(self.measures) or 'no metrics'}"
            raise InputError(f"the sweep has no metric {metric!r}{near}", argument="metric")
        return metric

    def family(self, metric: str) -> int:
        """How many metrics share a correction with this one: the one that decides has its own."""
        return 1 if metric == self.primary else max(1, len(self.measures) - 1)

    def design(self, metric: str, table: ScoreTable, share: float) -> Design:
        """How rows of one of its tables are compared. share: the part of 5% that is left."""
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
        """How many cases the sweep has."""
        return evidence.case_count(self._database, self._sweep.id)

    def cells(self, metric: str) -> int:
        """How many cells each combination has whose case has an expected value for a metric."""
        return (self.cases - self.without_expected.get(metric, 0)) * int(self._sweep.spec["repeats"])

    @cached_property
    def cell_groups(self) -> Sequence[CellGroup]:
        """All cells, those that were left out included, counted by what came of them."""
        return aggregates.cell_groups(self._database, self._sweep.id)

    @cached_property
    def errors(self) -> aggregates.Rows:
        """(metric, how many scores failed, one of the reasons)."""
        return aggregates.score_errors(self._database, self._sweep.id)

    @cached_property
    def without_expected(self) -> Mapping[str, int]:
        """How many cases have no expected value for a metric, of those where any has none."""
        return aggregates.count_without_expected(self._database, self._sweep.id)

    def _failed_for(self, metric: str) -> NDArray[np.int64]:
        """(combination, case, repeat) of the failed cells that a metric would have scored."""
        ended = self._ended[0]
        if not len(ended) or metric not in self.without_expected:
            return ended
        excluded = aggregates.cases_without_expected(self._database, self._sweep.id, metric)
        return ended[~np.isin(ended[:, 1], excluded)]

    @cached_property
    def edited_cells(self) -> int:
        """How many cells have an outcome that rests on a state which a person edited."""
        return sum(group.ended for group in self.cell_groups if group.edited)

    @cached_property
    def unknown_costs(self) -> Sequence[UnknownCost]:
        """Reasons why costs are not known."""
        return costs.unknown_costs(self._database, self._sweep.id)

    @cached_property
    def without_cost(self) -> frozenset[int]:
        """The combinations whose cost is not known."""
        reasons = self.unknown_costs
        return frozenset(number for number, choice in enumerate(self.choices) if is_concerned(choice, reasons))

    def _with_cost(self, metric: str, columns: Sequence[Any]) -> list[Any]:
        """Leave out scores of `cost` that rest on calls of which the cost is not known. columns: combination first."""
        if metric != COST or not self.without_cost:
            return list(columns)
        has_cost = ~np.isin(np.array(columns[0], dtype=np.int64), list(self.without_cost))
        return [np.array(column)[has_cost] for column in columns]

    @cached_property
    def _ended(self) -> tuple[NDArray[np.int64], Counter[str], Counter[int], NDArray[np.int64]]:
        """(combination, case, repeat) of the failed cells that are results.

        Also how many are missing, by kind, how many cells of each case came to no final state, and (combination, case,
        1) of each that was lost to a provider.
        """
        counted, places, missing, by_case = results(self._spec), [], Counter[str](), Counter[int]()
        lost: list[list[int]] = []
        has_any = any(group.status in ENDS for group in self.cell_groups)
        ended_cells = (
            aggregates.ended_without_state(self._database, self._sweep.id, edited=self.edited) if has_any else []
        )
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
        """How many cells of each combination were lost to a provider."""
        return Counter(self._ended[3][:, 0].tolist())

    @property
    def failed(self) -> int:
        """How many failed cells are results."""
        return len(self._ended[0])

    def failed_of(self, metric: str) -> Mapping[int, int]:
        """How many failed cells of each combination are results by a metric."""
        return Counter(self._failed_for(metric)[:, 0].tolist())

    @property
    def missing(self) -> Mapping[str, int]:
        """How many cells ended without a result, by kind."""
        return self._ended[1]

    @cached_property
    def _clusters(self) -> Mapping[int, str]:
        return outcomes.clusters(self._database, self._sweep.id)

    def failure_score(self, measure: Measure) -> float | None:
        """What a failed cell counts as by a metric; None where it is left out."""
        return failure_score(measure.on_failure, measure.worst, self._spec)

    def leaves_out(self, measure: Measure) -> bool:
        """Return whether somebody said that a failed cell has no score by a metric."""
        return LEFT_OUT in (measure.on_failure, self._spec.get("on_failure") if measure.on_failure is None else None)

    def _missing(self, metric: str, cases: NDArray[np.int64], behind: NDArray[np.int32]) -> MissingCells | None:
        """Return the missing cells of a table, by why they are; None where every cell has a score."""
        remaining = np.where(self._counts(cases), int(self._sweep.spec["repeats"]) - behind, 0).astype(np.int32)
        if not remaining.any():
            return None
        reasons = {}
        errors = _triples([row[:3] for row in self._score_errors(metric)])
        for reason, places in (("provider", self._ended[3]), ("evaluator", errors)):
            counts = np.zeros_like(remaining)
            own_places = places[np.isin(places[:, 1], cases)]
            np.add.at(counts, (own_places[:, 0], np.searchsorted(cases, own_places[:, 1])), own_places[:, 2])
            reasons[reason] = np.minimum(counts, remaining)
            remaining = remaining - reasons[reason]
        return MissingCells(behind, {**reasons, "failed": remaining})

    def _counts(self, cases: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which cells of a table count: of a row that was added, not the case that suggested it."""
        counts = np.ones((len(self.choices), len(cases)), dtype=np.bool_)
        for addition in self.added:
            counts[addition.combination] = ~np.isin(cases, addition.left_out)
        counts[list(self.stopped)] = False  # what it did not get to is no failure
        return counts

    def check_failure_score(self, who: str) -> None:
        """Refuse what the sweep says that a failure counts as, where no scale has it. Raises InputError."""
        score = self._spec.get("on_failure")
        for name, measure in self.measures.items():
            if measure.on_failure is not None or measure.scale is None or not isinstance(score, float | int):
                continue
            low, high = measure.scale
            if not low <= score <= high:
                expected = f"expected a score on the scale of {name}, {low:g} to {high:g}, or {LEFT_OUT}"
                raise InputError(f"{who} is {score:g}; {expected}", argument="on_failure")

    def rows(self, metric: str, measure: Measure | None = None) -> Floats:
        """(combination, case, mean over repeats, repeats) wherever there is a score.

        Of a figure over all cells of a row it is what the case contributes to it. measure: how the metric is read,
        where not as this sweep says.
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
        """The same to look at cases one by one: of figures of classes it is whether they are right."""
        measure = measure or self.measures.get(metric, Measure())
        if measure.figure is None or measure.figure in OF_SCORES:
            return self.rows(metric, measure)
        return self._rows(metric, self.failure_score(measure))

    def _rows(self, metric: str, score: float | None) -> Floats:
        """The means of a metric and the cells that failed. score: what each of them counts as, None if left out."""
        means, ended = stacked(self._means(metric), 4), self._failed_for(metric)
        if score is None or not len(ended):
            return self._counted(means)
        every = np.vstack([means, np.column_stack([ended[:, :2], np.full(len(ended), score), np.ones(len(ended))])])
        return self._counted(_joined(every) if self._is_repeated else every)

    @property
    def _is_repeated(self) -> bool:
        return int(self._sweep.spec["repeats"]) > 1

    def _means(self, metric: str) -> Iterator[aggregates.Columns]:
        """(combination, case, mean over repeats, repeats) of cells that succeeded, a part at a time."""
        every = self.edited or not self.edited_cells
        repeated = self._is_repeated
        means = aggregates.mean_scores(self._database, self._sweep.id, metric, repeated=repeated, edited=every)
        return (self._with_cost(metric, columns) for columns in means)

    def observed(self, metric: str, measure: Measure, numbers: Numbers | None = None) -> Observations | None:
        """What cells tell of a figure over all cells of a row, failed ones included where they count; None of none.

        numbers: of its classes, where those of several sweeps have to be alike.
        """
        if measure.figure is None:
            return None
        numbers = numbers or Numbers(measure.figure)
        cells = observations(self._database, self._sweep.id, metric, numbers, edited=self.edited)
        if self.failure_score(measure) is not None:
            cells = cells.with_failed(self._failed_for(metric))
        if self.stopped:
            cells = cells.part(~np.isin(cells.place[:, 0], list(self.stopped)))
        for addition in self.added:
            cells = cells.part(
                ~((cells.place[:, 0] == addition.combination) & np.isin(cells.place[:, 1], addition.left_out))
            )
        return cells

    def _counted(self, rows: Floats) -> Floats:
        """Leave out what does not count: of a row that was added, the case that suggested it."""
        for addition in self.added:
            rows = rows[~((rows[:, 0] == addition.combination) & np.isin(rows[:, 1], addition.left_out))]
        return rows

    def _unscored(self, metric: str) -> Floats:
        """Cases that have no score for a reason other than that the metric is not theirs."""
        each = len(self.choices) * int(self._sweep.spec["repeats"])
        excluded = set[int]()
        if metric in self.without_expected:
            excluded.update(aggregates.cases_without_expected(self._database, self._sweep.id, metric))
        failed = [case for case, cells in self._ended[2].items() if cells == each and case not in excluded]
        return np.array([*failed, *(row[1] for row in self._score_errors(metric))], dtype=float)

    def _score_errors(self, metric: str) -> aggregates.Rows:
        """Read (combination, case, scores that failed, and those of them that no provider failed)."""
        has_errors = any(name == metric for name, *_ in self.errors)
        return outcomes.failed_scores(self._database, self._sweep.id, metric) if has_errors else []

    def by_repeat(self, metric: str) -> Floats:
        """(combination, case, repeat, score) wherever there is one."""
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
        """The scores of a metric, read once."""
        if metric not in self._tables:
            self._tables[metric] = self._table(metric)
        return self._tables[metric]

    def planned_table(self, metric: str) -> ScoreTable:
        """The same of the rows that were planned."""
        return self.table(metric).part(range(self.planned)) if self.added else self.table(metric)

    def _table(self, metric: str) -> ScoreTable:
        """Read the scores of a metric a part at a time: nothing but the table is as large as it."""
        measure = self.measures.get(metric, Measure())
        score = self.failure_score(measure)
        cases = np.array(aggregates.case_numbers(self._database, self._sweep.id), dtype=np.int64)
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
    """Return the lowest and the highest score that a metric can have: seconds, dollars and counts are not negative."""
    if measure.figure is not None:
        return None
    return measure.scale or ((0.0, math.inf) if metric in MEASURED_NAMES else None)


def _triples(rows: Iterable[Sequence[int]]) -> NDArray[np.int64]:
    return np.array(list(rows), dtype=np.int64).reshape(-1, 3)


def places(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each number among some; -1 of those that are not among them."""
    lookup = np.full(int(numbers.max(initial=-1)) + 1, -1, dtype=np.int64)
    lookup[numbers] = np.arange(len(numbers))
    return lookup


def stacked(parts: Iterable[aggregates.Columns], width: int) -> Floats:
    """The rows of a query whose columns were read a part at a time. width: how many columns it has."""
    return np.vstack([np.empty((0, width)), *(np.column_stack(part) for part in parts)])


def _add_failed(
    table: Floats, behind: NDArray[np.int32], place: tuple[NDArray[np.int64], NDArray[np.int64]], score: float
) -> None:
    """Count failed cells among the repeats of a table of means. place: row and column of each of them."""
    places = tuple(np.unique(np.column_stack(place), axis=0).T)
    sums = np.nan_to_num(table)[places] * behind[places]
    failed = np.zeros(table.shape, dtype=np.int32)
    np.add.at(failed, place, 1)
    table[places] = (sums + score * failed[places]) / (behind[places] + failed[places])
    behind += failed


def _joined(rows: Floats) -> Floats:
    """Rows of the same combination and case as one, each mean by how many repeats it is of."""
    keys, place = np.unique(rows[:, :2], axis=0, return_inverse=True)
    repeats = np.bincount(place.ravel(), rows[:, 3])
    means = np.bincount(place.ravel(), rows[:, 2] * rows[:, 3]) / repeats
    return np.column_stack([keys, means, repeats])
