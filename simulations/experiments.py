"""Each promise of docs/statistics.md in the situations in which it would be most likely to be false."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator

import numpy as np

from simulations import (
    data,
    factorial,
    failing,
    good_enough,
    hard_effects,
    judges,
    looks,
    missing,
    others,
    pairwise,
    power,
    rare,
    rare_losses,
    regressions,
    repeats,
    row_figures,
    running,
    series,
    sweeps,
    truths,
)
from simulations.promises import Promise, counted, seed_from
from wtb.analysis.statistics import Comparison, Design, Floats, compare, holm
from wtb.analysis.statistics.factor_effects import fit
from wtb.analysis.statistics.intervals import SKEWED, by_unit, differences_by_unit, intervals, rate_difference, wilson
from wtb.analysis.statistics.paired import mean_test, paired_tests
from wtb.analysis.statistics.power import detectable, larger
from wtb.analysis.statistics.running import look, spendable

Rng = np.random.Generator
WRONG = 0.05


def promises() -> Iterator[Promise]:
    """All of them."""
    yield from _clear()
    yield from _candidates()
    yield from _winners()
    yield from _failures()
    yield from _detectable()
    yield from power.promises()
    yield from regressions.promises()
    yield from series.promises()
    yield from _intervals()
    yield from _differences()
    yield from _tests()
    yield from _clusters()
    yield from _effects()
    yield from factorial.promises()
    yield from hard_effects.promises()
    yield from _looking()
    yield from _searching()
    yield from looks.promises()
    yield from sweeps.promises()
    yield from failing.promises()
    yield from missing.promises()
    yield from rare_losses.promises()
    yield from judges.promises()
    yield from pairwise.promises()
    yield from others.promises()
    yield from row_figures.promises()
    yield from rare.promises()
    yield from running.promises()
    yield from repeats.promises()
    yield from data.promises()
    yield from good_enough.promises()


def _clear() -> Iterator[Promise]:
    shapes = {
        "two random prefixes of equal truth": truths.prefixes,
        "random prefixes at three depths": truths.deep_prefixes,
        "one row with 30 times the spread": truths.unequal_spreads,
        "a judge of five levels": truths.judged,
        "pass rates of 90%": truths.passes,
        "half of the rows skewed one way, half the other": truths.skewed,
    }
    for (name, draw), (rows, cases) in itertools.product(shapes.items(), ((4, 20), (4, 50), (16, 50), (24, 200))):

        def wrong(rng: Rng, draw: truths.Draw = draw, rows: int = rows, cases: int = cases) -> bool:
            scores, truth = draw(rng, rows, cases)
            comparison = compare(scores, Design(seed=seed_from(rng)))
            best = truth.max()
            return comparison.clear and (truth == best).sum() > 1

        # Where nothing but the best is a clear winner there is none to be wrong about: all of these have ties.
        yield Promise(
            "a best that is clear, and is not",
            name,
            f"{rows} rows, {cases} cases",
            counted(wrong),
            at_most=WRONG,
            runs=400,
        )
    for rows, cases in ((4, 50), (4, 200), (24, 200)):

        def power(rng: Rng, rows: int = rows, cases: int = cases) -> bool:
            scores, truth = truths.one_better(rng, rows, cases)
            comparison = compare(scores, Design(seed=seed_from(rng)))
            return comparison.clear and comparison.best == int(truth.argmax())

        yield Promise(
            "a best that is clear, and is so",
            "one row better by 0.3",
            f"{rows} rows, {cases} cases",
            counted(power),
            runs=200,
        )


def _candidates() -> Iterator[Promise]:
    shapes = {
        "rows of equal truth": truths.equal,
        "random prefixes": truths.prefixes,
        "one row with 30 times the spread": truths.unequal_spreads,
        "a judge of five levels": truths.judged,
        "pass rates of 90%": truths.passes,
        "half of the rows skewed one way, half the other": truths.skewed,
        "one row better by 0.3": truths.one_better,
    }
    for (name, draw), (rows, cases) in itertools.product(shapes.items(), ((2, 20), (4, 50), (16, 50), (24, 200))):

        def holds(rng: Rng, draw: truths.Draw = draw, rows: int = rows, cases: int = cases) -> bool:
            scores, truth = draw(rng, rows, cases)
            return int(truth.argmax()) in compare(scores, Design(seed=seed_from(rng))).candidates

        yield Promise(
            "the set of the best holds the true best",
            name,
            f"{rows} rows, {cases} cases",
            counted(holds),
            at_least=0.95,
            runs=400,
        )


def _winners() -> Iterator[Promise]:
    shapes = {
        "rows of equal truth": truths.equal,
        "random prefixes": truths.prefixes,
        "pass rates of 90%": truths.passes,
        "rows from 0 to 0.5": truths.spread_out,
    }
    for (name, draw), (rows, cases) in itertools.product(shapes.items(), ((4, 50), (24, 50), (64, 200))):

        def covers(rng: Rng, draw: truths.Draw = draw, rows: int = rows, cases: int = cases) -> bool | None:
            scores, truth = draw(rng, rows, cases)
            comparison = compare(scores, Design(seed=seed_from(rng)))
            if comparison.best is None or comparison.winner is None or comparison.winner.ci is None:
                return None
            return bool(comparison.winner.ci[0] <= truth[comparison.best] <= comparison.winner.ci[1])

        yield Promise(
            "the interval of the best covers",
            name,
            f"{rows} rows, {cases} cases",
            counted(covers),
            at_least=0.93,
            runs=300,
        )


def _failures() -> Iterator[Promise]:
    for share in (0.05, 0.1, 0.3):

        def ahead(rng: Rng, share: float = share) -> bool:
            scores, _ = truths.equal(rng, 6, 50)
            scores[:1] = truths.by_difficulty(rng, scores, share)[:1]
            comparison = compare(scores, Design(seed=seed_from(rng)))
            return comparison.best == 0 and comparison.clear

        yield Promise(
            "a row gets ahead by failing where it is hard",
            f"{share:.0%} of its cells, left out",
            "6 rows, 50 cases",
            counted(ahead),
            at_most=WRONG,
            runs=400,
        )

    def nearly_all(rng: Rng) -> bool:
        scores, _ = truths.equal(rng, 6, 40)
        scores[0, 1:] = np.nan
        return compare(scores, Design(seed=seed_from(rng))).best == 0

    yield Promise(
        "a row gets ahead by failing where it is hard",
        "39 of 40 cells failed",
        "6 rows, 40 cases",
        counted(nearly_all),
        at_most=0.0,
        runs=200,
    )


def _detectable() -> Iterator[Promise]:
    for rows, cases in itertools.product((9, 24, 64), (20, 50, 200)):

        def seen(rng: Rng, rows: int = rows, cases: int = cases) -> bool | None:
            baseline = rng.normal(size=cases)
            differences = rng.normal(size=(rows, cases)) - baseline
            factor = _factor(cases, math.sqrt(2), rows)
            if math.isnan(factor):
                return None
            differences[0] += factor
            return bool(holm(mean_test(differences, seed_from(rng)))[0] < WRONG)

        yield Promise(
            "a detectable difference is seen",
            "continuous scores, one row differs",
            f"{rows} rows, {cases} cases",
            counted(seen),
            at_least=0.76,
            at_most=0.84,
            runs=400,
        )


def _factor(cases: int, spread: float, family: int) -> float:
    return larger(detectable(spread, cases, family)) or math.nan


def _intervals() -> Iterator[Promise]:
    for (name, values), cases in itertools.product(truths.SCORES.items(), (10, 20, 37, 100, 300, 1_000)):

        def covered(
            rng: Rng, runs: int, name: str = name, values: truths.Values = values, cases: int = cases
        ) -> tuple[int, int]:
            drawn = values.draw(rng, (runs, cases))
            if name.startswith("pass"):
                ends = np.array([wilson(float(row.sum()), cases) for row in drawn])
            else:
                ends = intervals(drawn)
            ends = ends[np.isfinite(ends[:, 0])]
            return int(((ends[:, 0] <= values.mean) & (values.mean <= ends[:, 1])).sum()), len(ends)

        skew, differ = truths.shape(values)
        promised = skew <= SKEWED * math.sqrt(cases) and differ * cases >= 10
        yield Promise(
            "intervals of means cover",
            name,
            f"{cases} cases",
            covered,
            at_least=0.925 if promised else None,
            runs=3_000,
        )


def _differences() -> Iterator[Promise]:
    for (up, down), cases in itertools.product(((0.25, 0.25), (0.1, 0.02), (0.05, 0.0), (0.02, 0.02)), (10, 37, 300)):

        def covered(rng: Rng, runs: int, up: float = up, down: float = down, cases: int = cases) -> tuple[int, int]:
            drawn = rng.random((runs, cases))
            ends = rate_difference(np.where(drawn < up, 1.0, np.where(drawn < up + down, -1.0, 0.0)))
            return int(((ends[:, 0] <= up - down) & (up - down <= ends[:, 1])).sum()), runs

        yield Promise(
            "intervals of differences of pass rates cover",
            f"{up:.0%} up and {down:.0%} down",
            f"{cases} cases",
            covered,
            at_least=0.925,
            runs=3_000,
        )


def _tests() -> Iterator[Promise]:
    for name in (
        "normal",
        "heavy tails (t with 3 degrees of freedom)",
        "skewed (exponential)",
        "very skewed (lognormal, sigma 1)",
    ):
        values = truths.SCORES[name]
        for cases in (10, 20, 50, 200):

            def alarm(rng: Rng, runs: int, values: truths.Values = values, cases: int = cases) -> tuple[int, int]:
                p = mean_test(values.draw(rng, (runs, cases)) - values.mean, seed_from(rng))
                return int((p < WRONG).sum()), runs

            is_skewed = "skewed" in name and cases < 50  # said where it shows: these cases are too few for such scores
            yield Promise(
                "a difference is seen between equal means",
                f"differences: {name}",
                f"{cases} cases",
                alarm,
                at_most=None if is_skewed else 0.06 if "skewed" in name else WRONG,
                runs=2_000,
            )
    for cases in (20, 50, 200):

        def family(rng: Rng, cases: int = cases) -> bool:
            scores, _ = truths.deep_prefixes(rng, 24, cases)
            comparison = compare(scores, Design(baseline=0, seed=seed_from(rng)))
            return any(row.p_adjusted is not None and row.p_adjusted < WRONG for row in comparison.rows)

        yield Promise(
            "any star among 23 rows that equal the baseline",
            "random prefixes at three depths",
            f"{cases} cases",
            counted(family),
            at_most=WRONG,
            runs=400,
        )


def _clusters() -> Iterator[Promise]:
    for correlation, groups in itertools.product((0.1, 0.3, 0.6), (8, 15, 40)):

        def drawn(
            rng: Rng, runs: int, correlation: float = correlation, groups: int = groups
        ) -> tuple[Floats, np.ndarray]:
            units = np.repeat(np.arange(groups), rng.integers(1, 10, groups))
            within = rng.normal(size=(runs, units.size))
            return math.sqrt(correlation) * rng.normal(size=(runs, groups))[:, units] + math.sqrt(
                1 - correlation
            ) * within, units

        def covered(rng: Rng, runs: int, drawn: object = drawn) -> tuple[int, int]:
            hits = 0
            for _ in range(runs // 20):
                scores, units = drawn(rng, 20)  # type: ignore[operator]
                ends = intervals(by_unit(scores, units))
                hits += int(((ends[:, 0] <= 0) & (ends[:, 1] >= 0)).sum())
            return hits, 20 * (runs // 20)

        def alarm(rng: Rng, runs: int, drawn: object = drawn) -> tuple[int, int]:
            hits = 0
            for _ in range(runs // 20):
                differences, units = drawn(rng, 20)  # type: ignore[operator]
                hits += int((mean_test(differences_by_unit(differences, units), seed_from(rng)) < WRONG).sum())
            return hits, 20 * (runs // 20)

        situation = f"1 to 9 cases a cluster, correlation {correlation:g}"
        yield Promise(
            "intervals over clusters cover",
            situation,
            f"{groups} clusters",
            covered,
            at_least=0.925 if groups >= 15 else None,
            runs=2_000,
        )
        yield Promise(
            "a difference is seen between equal means of clusters",
            situation,
            f"{groups} clusters",
            alarm,
            at_most=0.055,
            runs=2_000,
        )


def _effects() -> Iterator[Promise]:
    levels = np.array(list(itertools.product(range(3), repeat=3)), dtype=np.int64)
    step = np.array([-0.15, 0.0, 0.15])[levels[:, 0]][:, None]
    losses = {
        "none missing": (truths.at_random, 0.0),
        "10% missing": (truths.at_random, 0.1),
        "30% missing": (truths.at_random, 0.3),
        "30% missing where it is hard": (truths.by_difficulty, 0.3),
    }
    for name, (lose, share) in losses.items():

        def shows_effect(rng: Rng, lose: object = lose, share: float = share) -> bool:
            scores = lose(rng, step + truths.equal(rng, 27, 50)[0], share)  # type: ignore[operator]
            return fit(scores, levels, seed_from(rng)).factors[0].p_adjusted < WRONG

        def falsely(rng: Rng, lose: object = lose, share: float = share) -> bool:
            scores = lose(rng, truths.deep_prefixes(rng, 27, 50)[0], share)  # type: ignore[operator]
            return any(factor.p_adjusted < WRONG for factor in fit(scores, levels, seed_from(rng)).factors)

        def beyond(rng: Rng, lose: object = lose, share: float = share) -> bool:
            scores = lose(rng, truths.equal(rng, 27, 50)[0], share)  # type: ignore[operator]
            fitted = fit(scores, levels, seed_from(rng))
            return fitted.unexplained_p is not None and fitted.unexplained_p < WRONG

        size = "3 x 3 x 3, 50 cases"
        least = 0.6 if share > 0.1 else 0.7
        yield Promise("an effect of 0.3 of a node is told", name, size, counted(shows_effect), at_least=least, runs=600)
        yield Promise(
            "an effect of nodes that do nothing is told", name, size, counted(falsely), at_most=WRONG, runs=300
        )
        yield Promise(
            "a share is said to come from neither nodes nor pairs, in noise",
            name,
            size,
            counted(beyond),
            at_most=WRONG,
            runs=300,
        )
    square = np.array([pair for pair in itertools.product(range(3), repeat=2) if pair != (0, 0)], dtype=np.int64)
    crossed = np.array([[0.5, -0.5, 0.0], [-0.5, 0.5, 0.0], [0.0, 0.0, 0.0]])[square[:, 0], square[:, 1]][:, None]
    for cases in (20, 50, 200):

        def crossing(rng: Rng, cases: int = cases) -> bool:
            fitted = fit(crossed + rng.normal(size=(len(square), cases)), square, seed_from(rng))
            return any(factor.p_adjusted < WRONG for factor in fitted.factors)

        yield Promise(
            "an effect of nodes that do nothing is told",
            "a pure crossover, one combination excluded",
            f"3 x 3, {cases} cases",
            counted(crossing),
            at_most=WRONG if cases > 20 else 0.1,
            runs=300,
        )


def _looking() -> Iterator[Promise]:
    """A user looks after every ten of 200 cases, and stops at a favourable result."""
    kinds = ("pass rates of 90%", "scores of 0 to 1, random prefixes")

    def drawn(rng: Rng, kind: str, rows: int) -> Floats:
        if kind[0] == "p":
            return truths.passes(rng, rows, 200)[0]
        return np.clip(0.5 + 0.15 * truths.deep_prefixes(rng, rows, 200)[0], 0, 1)

    def looks(scores: Floats, scale: tuple[float, float] | None = (0.0, 1.0)) -> Iterator[Comparison]:
        for seen in range(10, scores.shape[1] + 1, 10):
            finished = np.ones((len(scores), seen), dtype=np.bool_)
            yield look(scores[:, :seen], finished, Design(baseline=0), scale=scale).compared

    for kind, rows in itertools.product(kinds, (2, 3, 9)):

        def starred(rng: Rng, kind: str = kind, rows: int = rows) -> bool:
            return any(not row.delta_ci[0] <= 0 <= row.delta_ci[1] for outcome in looks(drawn(rng, kind, rows))
                       for row in outcome.rows[1:] if row.delta_ci is not None)  # fmt: skip

        def best(rng: Rng, kind: str = kind, rows: int = rows) -> bool:
            return any(outcome.clear for outcome in looks(drawn(rng, kind, rows)))

        size = f"{rows} rows, a baseline among them"
        claim = "looking after every ten of 200 cases: "
        yield Promise(f"{claim}a false star", kind, size, counted(starred), at_most=WRONG, runs=200)
        yield Promise(f"{claim}a false best", kind, size, counted(best), at_most=WRONG, runs=200)

    yield from _stopping()
    for gain in (0.1, 0.2, 0.3):

        def pair(rng: Rng, gain: float) -> Floats:
            return np.stack([rng.random(200) < 0.6, rng.random(200) < 0.6 + gain]).astype(float)

        def seen_at_once(rng: Rng, gain: float = gain) -> bool:
            return compare(pair(rng, gain), Design(baseline=0, seed=seed_from(rng))).clear

        def seen_by_looking(rng: Rng, gain: float = gain) -> bool:
            return [outcome.clear for outcome in looks(pair(rng, gain))][-1]

        claim, size = "a better row is clearly best", "2 rows, 200 cases"
        situation = f"pass rate 60% against {0.6 + gain:.0%}"
        yield Promise(claim, f"{situation}, at the end", size, counted(seen_at_once), runs=200)
        yield Promise(claim, f"{situation}, by any look", size, counted(seen_by_looking), runs=200)


def _stopping() -> Iterator[Promise]:
    """Cells end at different times, and looks use the finished ones without waiting for slow ones."""
    for name, slope in (("low scores take longer", -1.0), ("high scores take longer", 1.0)):
        for rows in (2, 4):

            def stopped(rng: Rng, slope: float = slope, rows: int = rows) -> bool:
                scores = np.clip(0.5 + 0.15 * truths.deep_prefixes(rng, rows, 200)[0], 0, 1)
                took = rng.exponential(size=(rows, 200)) * (0.1 + np.exp(4 * slope * (scores - 0.5)))
                done = _finished_at(took, slots=8)
                times = np.quantile(done, np.linspace(0.05, 1, 20))
                return any(look(scores, done <= now, scale=(0.0, 1.0)).is_known() for now in times)

            yield Promise(
                "stop: when_known, where durations follow scores: a false best",
                name,
                f"{rows} rows of equal truth, 8 slots",
                counted(stopped),
                at_most=WRONG,
                runs=300,
            )


def _finished_at(took: Floats, slots: int) -> Floats:
    """Return when cells end that start in the order of cases, each as soon as a slot is free."""
    free, done = [0.0] * slots, np.empty_like(took)
    for case in range(took.shape[1]):
        for row in range(took.shape[0]):
            done[row, case] = heapq.heappop(free) + took[row, case]
            heapq.heappush(free, done[row, case])
    return done


def _searching() -> Iterator[Promise]:
    """Fifty useless variants in successive sweeps over the same cases, each corrected for the earlier ones."""

    def search(rng: Rng, ledger: bool) -> list[tuple[float, bool]]:
        """Return for each sweep the gain over the baseline, and whether it claims one."""
        gains = 0.7 * rng.normal(size=(50, 60)) + 0.7 * (rng.normal(size=60) - rng.normal(size=60))
        gains_and_claims = []
        for before, test in enumerate(paired_tests(gains, seed=seed_from(rng))):
            delta, level = test.delta or 0.0, WRONG * (spendable(before, 1) if ledger else 1)
            gains_and_claims.append((delta, delta > 0 and test.p is not None and test.p < level))
        return gains_and_claims

    claim, size = "a searcher who tries 50 useless variants claims a gain", "60 cases"
    for ledger in (True, False):

        def best_of_all(rng: Rng, ledger: bool = ledger) -> bool:
            return max(search(rng, ledger))[1]

        def ever(rng: Rng, ledger: bool = ledger) -> bool:
            return any(claims for _, claims in search(rng, ledger))

        for name, count in (("the best of all is kept", best_of_all), ("they stop at the first that claims one", ever)):
            situation = name if ledger else f"{name}, without the ledger"
            yield Promise(claim, situation, size, counted(count), at_most=WRONG if ledger else None, runs=1_000)
