"""Compare tonight's sweep with a reference that does not move, together with the nights before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from wtb.analysis.comparison.compare import LOOKED_INTO, compare_sweeps
from wtb.analysis.comparison.pairing import Integers, Pairs, match
from wtb.analysis.comparison.verdicts import UNCLEAR, WORSE
from wtb.analysis.nightly.line import Line
from wtb.analysis.nightly.slide import Trend, alert, find_trend
from wtb.analysis.scores import Scores
from wtb.analysis.statistics import Floats
from wtb.analysis.statistics.intervals import intervals
from wtb.analysis.statistics.missing.claims import SIGNIFICANT
from wtb.analysis.statistics.sequential.nights import NIGHTS, NightTest, night_tests
from wtb.analysis.statistics.units import Units, by_unit, numbered
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError
from wtb.core.scoring.measure import Measure
from wtb.core.serialization.plain_json import iso
from wtb.core.tree.combinations import in_words
from wtb.planning.metric_names import primary_of
from wtb.store.database import Database
from wtb.store.read import outcomes, queries
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.comparison import (
        ComparisonDocument,
        NightDocument,
        NightPoint,
        NightTestDocument,
        SeriesDocument,
    )

MAX_NIGHTS = 30  # nights of a series that a document has, the newest
COMMON = 0.9  # of tonight's cases that a night has to have


def compare_night(
    database: Database,
    before: SweepRow,
    after: SweepRow,
    line: Line | None,
    margin: Mapping[str, float] | None = None,
    *,
    looked_into: int = LOOKED_INTO,
) -> NightDocument:
    """Compare a sweep with its baseline, as one night of a series if it is one.

    Args:
        database: Where the sweeps are.
        before: The baseline.
        after: The sweep.
        line: The nights before it; None if it is a comparison of its own.
        margin: Metric -> the loss that would matter, in place of the sweep's own.
        looked_into: As for `compare_sweeps`.

    Returns:
        The comparison. It is worse, too, if tonight or the last nights fell against the fixed reference.
    """
    if line is None:
        return cast("NightDocument", compare_sweeps(database, before, after, margin, looked_into=looked_into))
    compared = compare_sweeps(database, before, after, margin, looked_into=looked_into, level=line.level)
    series = judge_nights(database, line, {**compared["margin"]["of_later"], **compared["margin"]["given"]})
    document: NightDocument = {**compared, "series": series}
    if series["alarm"]:
        document["verdict"] = WORSE
    document["because"] = [*series["because"], *compared["because"]]
    if not series["alarm"] and compared["verdict"] != WORSE and _fell_alone(compared):
        document["because"].append(
            f"this fall could be chance: a false alarm is to come in at most 5% of any {NIGHTS} nights without new "
            f"code, so a single night needs p < {line.level:.4f} against the baseline, or several nights have to fall"
        )
    return document


def _fell_alone(compared: ComparisonDocument) -> bool:
    """Return whether a part that decides would be worse if tonight were the only night."""
    parts = [*compared["rows"], *compared["pools"]]
    figures = [part_figures for part in parts for part_figures in part["metrics"].values() if part_figures["decides"]]
    p = [
        part_figures["p_worse"]
        for part_figures in (*figures, *(part["cells"] for part in parts))
        if part_figures["verdict"] == UNCLEAR
    ]
    return any(each is not None and each < SIGNIFICANT for each in p)


def judge_nights(database: Database, line: Line, margin: Mapping[str, float]) -> SeriesDocument:
    """Test tonight, and the last nights together, against the fixed reference.

    Args:
        database: Where the sweeps are.
        line: The reference and the nights.
        margin: The metrics that decide besides the primary one.

    Returns:
        The tests, the nights by the metric that decides, and the alert.
    """
    judged = list(_judged(database, line, margin))
    alarms = [part for metric in judged for part in metric.alarms]
    because = [metric.alert(line) for metric in judged if metric.alarms]
    if not judged:
        because = [
            f"the fixed reference (sweep {line.reference.id}) has too few cases or no metric in common with "
            "this sweep, so it shows no slide: `wtb baseline set` starts a new one"
        ]
    return {
        "night": line.number,
        "reference": line.reference.heading,
        "repeats": len(line.block),
        "new_code": line.has_new_code,
        "level": line.level,
        "alarm": bool(alarms),
        "because": because,
        "tests": [document for metric in judged for document in metric.documents],
        "metric": judged[0].name if judged else None,
        "nights": judged[0].points(line) if judged else [],
    }


@frozen
class _Metric:
    """One metric that decides.

    Attributes:
        tables: By sweep its scores, combinations x cases as in tonight's sweep.
        tests: Of each combination, and after them of all together.
    """

    name: str
    measure: Measure
    tables: Mapping[str, Floats]
    tests: Sequence[Sequence[NightTest]]
    choices: Sequence[Mapping[str, str]]
    units: Units

    @property
    def sign(self) -> float:
        return 1.0 if self.measure.better == "higher" else -1.0

    @property
    def alarms(self) -> list[tuple[int, NightTest]]:
        """The place and the test of each fall, the surest first."""
        falls = [(place, test) for place, tests in enumerate(self.tests) for test in tests if test.is_fall]
        return sorted(falls, key=lambda fall: fall[1].p / fall[1].level)

    def _means(self, sweep: SweepRow, place: int) -> Floats:
        """Return the scores of a sweep by unit: of a combination, or of the mean of all."""
        table = self.tables[sweep.id]
        rows = table[np.isfinite(table).any(axis=1)] if place >= len(table) else table[[place]]
        part = rows.mean(axis=0) if len(rows) else np.full(table.shape[1], np.nan)
        values = by_unit(part[None], self.units)[0]
        return np.asarray(values[np.isfinite(values)])

    def _trend(self, line: Line, place: int, test: NightTest) -> Trend:
        sweeps = [sweep for sweep in line.accepted if sweep.id in self.tables]
        means = [float(self._means(sweep, place).mean()) for sweep in (*sweeps, line.tonight)]
        return find_trend(self.sign * test.before, means)

    def alert(self, line: Line) -> str:
        """Return the sentence of the surest fall."""
        place, test = self.alarms[0]
        displayed = replace(test, before=self.sign * test.before, after=self.sign * test.after)
        name = self.name
        if len(self.choices) > 1:
            name += f" of {in_words(self.choices[place])}" if place < len(self.choices) else " over all combinations"
        since = str(iso(line.reference.finished_at or line.reference.created_at))[:10]
        return alert(name, self.measure.better, displayed, self._trend(line, place, test), since)

    @property
    def documents(self) -> Iterator[NightTestDocument]:
        for place, tests in enumerate(self.tests):
            for test in tests:
                yield {
                    "metric": self.name,
                    "combination": dict(self.choices[place]) if place < len(self.choices) else None,
                    "nights": test.nights,
                    "before": self.sign * test.before,
                    "after": self.sign * test.after,
                    "p": test.p,
                    "level": test.level,
                    "fall": test.is_fall,
                }

    def points(self, line: Line) -> list[NightPoint]:
        """Return the reference and the nights, by the combination that fell most surely, else all together."""
        place = self.alarms[0][0] if self.alarms else len(self.choices) if len(self.choices) > 1 else 0
        past = [(night.sweep, night.is_worse) for night in line.nights if night.sweep.id in self.tables]
        sweeps = [(line.reference, False), *past[-MAX_NIGHTS:], (line.tonight, bool(self.alarms))]
        return [self._point(line, sweep, place, is_worse) for sweep, is_worse in sweeps if sweep.id in self.tables]

    def _point(self, line: Line, sweep: SweepRow, place: int, is_worse: bool) -> NightPoint:
        values = self._means(sweep, place)
        ends = intervals(values[None])[0] if len(values) else np.full(2, np.nan)
        return {
            "sweep": sweep.id,
            "at": iso(sweep.finished_at or sweep.created_at),
            "mean": float(values.mean()) if len(values) else None,
            "ci": None if np.isnan(ends).any() else [float(end) for end in ends],
            "reference": any(sweep.id == other.id for other in line.block),
            "baseline": sweep.id == line.baseline.id,
            "alarm": is_worse,
        }


def _judged(database: Database, line: Line, margin: Mapping[str, float]) -> Iterator[_Metric]:
    """Test each metric that decides; those by medians, or over all cells of a combination, have no pairs to test."""
    tonight = line.tonight
    measures = queries.measures(database, tonight.id)
    primary = primary_of(tonight.spec, measures)
    names = dict.fromkeys([*([primary] if primary else []), *margin])
    paired = [name for name in names if name in measures and _is_paired(measures[name])]
    recent = [night.sweep for night in line.nights[-MAX_NIGHTS:]]
    every = {sweep.id: sweep for sweep in (*line.block, *recent, *line.tested)}
    views = {id: view for id, sweep in every.items() if (view := _View.of(database, sweep, tonight)) is not None}
    if line.reference.id not in views:
        return
    clusters = outcomes.clusters(database, tonight.id)
    units = numbered([clusters.get(number) for number in range(views[line.reference.id].shape[1])])
    for name in paired:
        tables = {id: view.table(name, measures[name]) for id, view in views.items() if view.has(name)}
        if line.reference.id not in tables:
            continue
        block, tested = (
            [tables[sweep.id] for sweep in sweeps if sweep.id in tables] for sweeps in (line.block, line.tested)
        )
        sign = 1.0 if measures[name].better == "higher" else -1.0
        scale = measures[name].scale
        ends = None if scale is None else tuple(sorted(sign * end for end in scale))
        tests = night_tests(
            [sign * table for table in block],
            [sign * table for table in tested],
            metrics=len(paired),
            units=units,
            scale=None if ends is None else (ends[0], ends[1]),
            margin=margin.get(name),
        )
        yield _Metric(name, measures[name], tables, tests, queries.choices(database, tonight.id), units)


def _is_paired(measure: Measure) -> bool:
    return measure.figure is None and measure.compare == "mean"


@frozen
class _View:
    """A sweep whose scores are read in the order of tonight's combinations and cases.

    Attributes:
        scores: Of the sweep.
        pairs: The sweep and tonight's.
    """

    scores: Scores
    pairs: Pairs

    @classmethod
    def of(cls, database: Database, sweep: SweepRow, tonight: SweepRow) -> _View | None:
        """Pair a sweep with tonight's; None if too little of it is the same."""
        try:
            pairs = match(database, sweep, tonight)
        except InputError:  # its clusters are others
            return None
        count = pairs.cases["common"] + len(pairs.cases["added"])
        if not pairs.choices or len(pairs.ids) < COMMON * count:
            return None
        return cls(Scores(database, sweep, by=tonight), pairs)

    @property
    def shape(self) -> tuple[int, int]:
        """Return how many combinations and cases tonight's sweep has."""
        return len(self.pairs.rows[1]), len(self.pairs.columns[1])

    def has(self, metric: str) -> bool:
        return metric in self.scores.measures

    def table(self, metric: str, measure: Measure) -> Floats:
        """Return the scores by a metric as combinations x cases of tonight's sweep, NaN where there are none."""
        table = np.full(self.shape, np.nan)
        common = self.pairs.table(0, self.scores.rows(metric, measure).tolist(), 2)
        table[np.ix_(_by_place(self.pairs.rows[1]), _by_place(self.pairs.columns[1]))] = common
        return table


def _by_place(side: Integers) -> Integers:
    """Return the numbers of what is in common, in the order of their places."""
    numbers = np.flatnonzero(side >= 0)
    return np.asarray(numbers[np.argsort(side[numbers])])
