"""Comparison of tonight's sweep with a fixed reference, together with the nights before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from wtb.analysis.comparison.changes import changed_code
from wtb.analysis.comparison.compare import LOOKED_INTO, compare_sweeps
from wtb.analysis.comparison.pairing import Integers, Pairs, match
from wtb.analysis.comparison.reasons import chance, direction
from wtb.analysis.comparison.verdicts import UNCLEAR, WORSE
from wtb.analysis.scores import Scores
from wtb.analysis.statistics import Floats
from wtb.analysis.statistics.anytime import BASELINE, FIRST, JOINING, NIGHTS, WINDOW, NightTest, night_tests
from wtb.analysis.statistics.claims import SIGNIFICANT
from wtb.analysis.statistics.intervals import Units, by_unit, intervals, numbered
from wtb.core.cron import BAD
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.scoring.measure import Measure
from wtb.core.serialization.plain_json import iso
from wtb.core.tree.combinations import in_words
from wtb.planning.metric_names import primary_of
from wtb.store.database import Database
from wtb.store.read import evidence, queries
from wtb.store.read.baselines import (
    KEPT_FIRST,
    LAST,
    Fire,
    Night,
    fire_of_sweep,
    fire_rows,
    nights_in_session,
    read_nights,
)
from wtb.store.read.queries import find_sweep
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.comparison import (
        ComparisonDocument,
        NightDocument,
        NightPoint,
        NightTestDocument,
        SeriesDocument,
    )


@frozen
class PastNight:
    """A night before tonight.

    Attributes:
        sweep: Its sweep.
        is_worse: True if its verdict was worse.
        was_accepted: True if it became the baseline, or is a fire of a schedule that ended well.
        is_early: True if it is one of the first nights, which may count as repeats of the reference.
    """

    sweep: SweepRow
    is_worse: bool
    was_accepted: bool
    is_early: bool


@frozen
class Line:
    """A reference and the nights after it, up to tonight.

    Attributes:
        reference: The sweep that does not move.
        baseline: The sweep that tonight is compared with, which may move every night.
        repeats: Repeats of the reference.
        nights: Nights before tonight, the oldest first.
        tonight: The sweep of tonight.
        number: Which night tonight is, from 1.
    """

    reference: SweepRow
    baseline: SweepRow
    repeats: Sequence[SweepRow]
    nights: Sequence[PastNight]
    tonight: SweepRow
    number: int

    @cached_property
    def has_new_code(self) -> bool:
        """Return whether no sweep before tonight had its code, so that this is the first look at a change."""
        earlier = [self.reference, self.baseline, *(night.sweep for night in reversed(self.nights))]
        return not any(is_same_code(sweep, self.tonight) for sweep in earlier)

    @property
    def level(self) -> float:
        """The p-value below which a fall against the baseline counts.

        The first look at new code is a question of its own, as in a pull request. Nights without new code share 5%.
        """
        if self.has_new_code:
            return SIGNIFICANT
        return FIRST if self.number == 1 else BASELINE

    @cached_property
    def block(self) -> list[SweepRow]:
        """The reference with its repeats, and the first nights of the same code that were not worse."""
        # A night that was worse, or had other code, is no repeat: as part of the reference it would hide later falls.
        joining = [
            night.sweep
            for night in self.nights
            if night.is_early and not night.is_worse and is_same_code(self.reference, night.sweep)
        ]
        return [self.reference, *self.repeats, *joining][: 1 + JOINING]

    @cached_property
    def accepted(self) -> list[SweepRow]:
        """Nights that were accepted or have tonight's code; the others were changes that were dropped."""
        return [night.sweep for night in self.nights if night.was_accepted or is_same_code(night.sweep, self.tonight)]

    @cached_property
    def tested(self) -> list[SweepRow]:
        """The last nights that belong to the line, and tonight; none that is in the block."""
        # A night cannot be both reference and test, or its own noise would be tested against itself.
        block = {sweep.id for sweep in self.block}
        return [*[sweep for sweep in self.accepted if sweep.id not in block][-WINDOW + 1 :], self.tonight]


def is_same_code(first: SweepRow, second: SweepRow) -> bool:
    """Return whether two sweeps have the same variants, of the same code."""
    names = [{node: set(variants) for node, variants in sweep.fingerprints.items()} for sweep in (first, second)]
    return names[0] == names[1] and not changed_code(first, second)


FEWEST = 3  # nights that make a slide


@frozen
class Trend:
    """The course of the means of the nights since the reference.

    Attributes:
        kind: Whether the means slide further every night, stepped down some nights ago, or fell tonight.
        nights: How many nights it has lasted, including tonight.
        end: The value of the slide tonight; for other falls, the mean since the fall.
        a_night: The change of a slide per night.
    """

    kind: Literal["slide", "step", "tonight"]
    nights: int
    end: float
    a_night: float


def find_trend(reference: float, means: Sequence[float]) -> Trend:
    """Find the slide, or the step, that fits the means of the nights best.

    Args:
        reference: The mean of the reference.
        means: Those of the nights after it, the oldest first.
    """
    values = np.asarray(means, dtype=float) - reference
    fits: list[tuple[float, Trend]] = []
    for start in range(len(values)):
        before, since = float((values[:start] ** 2).sum()), values[start:]
        count, mean = len(since), float(since.mean())
        step = Trend("tonight" if count == 1 else "step", count, reference + mean, 0.0)
        fits.append((before + float(((since - mean) ** 2).sum()), step))
        # Two points always fit a line, so a slide needs more nights than a step does.
        if count >= FEWEST:
            steps = np.arange(1, count + 1)
            slope = float((steps @ since) / (steps @ steps))
            slide = Trend("slide", count, reference + slope * count, slope)
            fits.append((before + float(((since - slope * steps) ** 2).sum()), slide))
    return min(fits, key=lambda fit: fit[0])[1]


def alert(metric: str, better: str, test: NightTest, trend: Trend, since: str) -> str:
    """Return the sentence about a night that fell, which every output shows.

    Args:
        metric: The metric, with its combination.
        better: Whether higher or lower is better.
        test: The test that shows the fall, with means in the unit of the metric.
        trend: The course of the nights, in the same unit.
        since: The date of the reference.
    """
    reference = f"(fixed reference), {chance(test.p)}"
    if trend.kind == "slide":
        ends = f"{test.before:.3g} -> {trend.end:.3g} since {since}"
        return f"{metric}: night {trend.nights} of a slide: {ends} {reference}, {trend.a_night:+.2g} a night"
    ends = f"{test.before:.3g} -> {trend.end:.3g}"
    if trend.kind == "step":
        fall = "fall" if better == "higher" else "rise"
        return f"{metric}: night {trend.nights} of a {fall}: {ends} against {since} {reference}"
    return f"{metric}: {direction(better, worse=True)} in this run: {ends} against {since} {reference}"


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
    deciding = (figures for part in parts for figures in part["metrics"].values() if figures["decides"])
    unclear = (each for each in (*deciding, *(part["cells"] for part in parts)) if each["verdict"] == UNCLEAR)
    return any(each["p_worse"] is not None and each["p_worse"] < SIGNIFICANT for each in unclear)


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
        """Place and test of each fall, the surest first."""
        falls = [(place, test) for place, tests in enumerate(self.tests) for test in tests if test.is_fall]
        # Levels differ between tests, so falls are ranked by p as a share of the level that it had to pass.
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
        """Return the reference and the nights for the combination with the surest fall, else for all together."""
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
    """Test each deciding metric. Metrics by medians, or over all cells of a combination, have no pairs to test."""
    tonight = line.tonight
    measures = queries.measures(database, tonight.id)
    primary = primary_of(tonight.spec, measures)
    names = dict.fromkeys([*([primary] if primary else []), *margin])
    paired = [name for name in names if name in measures and _is_paired(measures[name])]
    recent = [night.sweep for night in line.nights[-MAX_NIGHTS:]]
    every = {sweep.id: sweep for sweep in (*line.block, *recent, *line.tested)}
    # Nights with other cases are dropped instead of compared over the rest: their means would differ by the cases
    # alone.
    views = {id: view for id, sweep in every.items() if (view := _View.of(database, sweep, tonight)) is not None}
    if line.reference.id not in views:
        return
    clusters = evidence.clusters(database, tonight.id)
    units = numbered([clusters.get(number) for number in range(views[line.reference.id].shape[1])])
    for name in paired:
        tables = {id: view.table(name, measures[name]) for id, view in views.items() if view.has(name)}
        if line.reference.id not in tables:
            continue
        block, tested = (
            [tables[sweep.id] for sweep in sweeps if sweep.id in tables] for sweeps in (line.block, line.tested)
        )
        sign = 1.0 if measures[name].better == "higher" else -1.0
        # Tests look for falls of what is better when higher, so a metric that is better when lower is negated with its
        # scale.
        ends = sorted(sign * end for end in measures[name].scale or ())
        tests = night_tests(
            [sign * table for table in block],
            [sign * table for table in tested],
            metrics=len(paired),
            units=units,
            scale=(ends[0], ends[1]) if ends else None,
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
        """Number of combinations and cases of tonight's sweep."""
        return len(self.pairs.rows[1]), len(self.pairs.columns[1])

    def has(self, metric: str) -> bool:
        return metric in self.scores.measures

    def table(self, metric: str, measure: Measure) -> Floats:
        """Return the scores by a metric as combinations x cases of tonight's sweep, NaN for missing scores."""
        table = np.full(self.shape, np.nan)
        common = self.pairs.table(0, self.scores.rows(metric, measure).tolist(), 2)
        table[np.ix_(_by_place(self.pairs.rows[1]), _by_place(self.pairs.columns[1]))] = common
        return table


def _by_place(side: Integers) -> Integers:
    """Return the common numbers, in the order of their places."""
    numbers = np.flatnonzero(side >= 0)
    return np.asarray(numbers[np.argsort(side[numbers])])


def line_of_baseline(database: Database, name: str, tonight: SweepRow) -> Line | None:
    """Return the nights of a baseline of a sweep's session up to that sweep; None if there is no such baseline."""
    stored = read_nights(database, tonight.session, name)
    if stored is None:
        return None
    reference = _find(database, stored.reference_id)
    baseline = _find(database, stored.baseline_id)
    if reference is None or baseline is None or reference.id == tonight.id:
        return None
    before = [night for night in stored.nights if night.sweep_id != tonight.id]
    repeats = [sweep for id in stored.repeats if (sweep := _find(database, id)) is not None]
    # Tonight counts once, whether or not it was recorded as a night before it was judged.
    number = stored.count + (len(before) == len(stored.nights))
    return Line(reference, baseline, repeats, list(_past(database, before)), tonight, number)


def line_of_schedule(database: Database, fire: Fire, baseline: SweepRow, tonight: SweepRow) -> Line | None:
    """Return the nights of a schedule that compares with its last good fire; its reference is the first good one."""
    # Fires are listed newest first; a repeated comparison of an old fire must not see the nights after it.
    earlier = [other for other in reversed(fire_rows(database, fire.schedule_id)) if other.fire_at < fire.fire_at]
    ended = [other for other in earlier if other.sweep_status == "completed" and other.sweep_id != tonight.id]
    good = next((number for number, other in enumerate(ended) if other.verdict not in (None, *BAD)), None)
    if good is None:
        return None
    reference = _find(database, ended[good].sweep)
    if reference is None:
        return None
    judged = [other for other in ended[good + 1 :] if other.verdict]
    after = [Night(other.sweep, other.verdict in BAD, other.verdict not in BAD) for other in judged]
    return Line(reference, baseline, [], list(_past(database, after)), tonight, len(after) + 1)


def line_of_fire(database: Database, fire: Fire, baseline: SweepRow, tonight: SweepRow) -> Line | None:
    """Return the nights that a fire of a schedule is compared with."""
    if fire.baseline == LAST:
        return line_of_schedule(database, fire, baseline, tonight)
    return None if fire.baseline is None else line_of_baseline(database, fire.baseline, tonight)


@frozen
class NightSeries:
    """The nights that one reference belongs to.

    Attributes:
        reference: The sweep that does not move.
        worse: Ids of the nights that were called worse.
    """

    reference: SweepRow
    worse: Set[str]


def series_of(database: Database, night: SweepRow) -> NightSeries | None:
    """Return the series that a night belongs to.

    Args:
        database: Where it is.
        night: A fire of a schedule, or a sweep that was compared with a baseline.

    Returns:
        The series of the schedule, else of the first baseline by name; None if there is none, or its reference was
        deleted.
    """
    fire = fire_of_sweep(database, night.id)
    if fire is None:
        for nights in nights_in_session(database, night.session):
            if any(past.sweep_id == night.id for past in nights.nights):
                reference = _find(database, nights.reference_id)
                worse = {past.sweep_id for past in nights.nights if past.is_worse}
                return None if reference is None else NightSeries(reference, worse)
        return None
    baseline = None if fire.baseline_id is None else _find(database, fire.baseline_id)
    line = None if baseline is None else line_of_fire(database, fire, baseline, night)
    if line is None:
        return None
    return NightSeries(line.reference, {past.sweep.id for past in line.nights if past.is_worse})


def _past(database: Database, nights: Sequence[Night]) -> Iterable[PastNight]:
    for number, night in enumerate(nights):
        if (sweep := _find(database, night.sweep_id)) is not None:
            yield PastNight(sweep, night.is_worse, night.was_accepted, number < KEPT_FIRST)


def _find(database: Database, sweep_id: str) -> SweepRow | None:
    """Return a sweep; None if it was deleted."""
    try:
        return find_sweep(database, sweep_id)
    except InputError:
        return None
