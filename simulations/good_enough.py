"""Rows within a margin of a best that was chosen from the same data: how often a row is falsely claimed to be.

Rows that are behind the best by just the margin are where a wrong "yes" is most likely. Cases differ in how hard they
are, rows share what they do, cheap rows lose now and then and never win, cells are missing where their answers would be
wrong, and people look early or again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations.promises import Promise, counted, seed_from
from wtb.analysis.statistics import Design, Floats, compare
from wtb.analysis.statistics.best import rank
from wtb.analysis.statistics.claims import MissingCells
from wtb.analysis.statistics.good_enough import Standing, standings
from wtb.analysis.statistics.running import EarlierLook, count_before, look, spendable

Rng = np.random.Generator
Draw = Callable[[Rng, int, int], tuple[Floats, Floats]]  # rows, cases -> scores, by how much rows are behind the best

MARGIN = 0.05
WRONG_YES = "good enough: yes, although it is not"
WRONG_NO = "good enough: no, although it is"
RIGHT_YES = "good enough: yes, and it is"


def promises() -> Iterator[Promise]:
    """All of rows that are good enough."""
    sizes = ((2, 60), (2, 300), (6, 200), (36, 60), (36, 300), (64, 200))
    for (name, draw), (rows, cases) in itertools.product(SITUATIONS.items(), sizes):
        yield from _claims(name, draw, rows, cases)
    yield from _hard()
    yield from _missing()
    yield from _missing_where_no_is_said()
    yield from _not_allowed()
    yield from _looks()
    yield from _power()


def _beyond(behind: Floats) -> Floats:
    """Return which rows are not within the margin; those exactly at the margin are not."""
    return behind >= MARGIN * (1 - 1e-9)


def _rates(rng: Rng, truth: Floats, cases: int, share: float) -> Floats:
    """Pass or fail; rows answer alike in a share of the cases, where their rates allow it."""
    common, own = rng.random(cases), rng.random((len(truth), cases))
    drawn = np.where(rng.random((1, cases)) < share, common, own)
    return np.asarray(drawn < truth[:, None], dtype=np.float64)


def _at_margin(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """One best row, all others behind it by just the margin."""
    behind = np.full(rows, MARGIN)
    behind[0] = 0.0
    return _rates(rng, 0.85 - behind, cases, 0.6), behind


def _spread(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """Rates as sweeps have them: some equal, some a little and some far behind."""
    behind = np.resize(np.array([0.0, MARGIN, 0.0, 0.06, 0.02, 0.15, 0.4, MARGIN]), rows)
    return _rates(rng, 0.85 - behind, cases, 0.6), behind


def _rarely_worse(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """Cheap rows that answer as the best one does, but for one of 20 cases, which they get wrong."""
    best = np.ones((1, cases))
    lost = rng.random((rows - 1, cases)) < MARGIN
    behind = np.full(rows, MARGIN)
    behind[0] = 0.0
    return np.concatenate([best, np.where(lost, 0.0, best)]), behind


def _graded(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """A judge of five levels; rows behind by the margin lose one level in a fifth of the cases."""
    common = rng.choice(np.array([0.25, 0.5, 0.75, 1.0]), p=[0.1, 0.2, 0.3, 0.4], size=cases)
    scores = np.tile(common, (rows, 1))
    scores[1:] -= 0.25 * (rng.random((rows - 1, cases)) < MARGIN / 0.25)
    behind = np.full(rows, MARGIN)
    behind[0] = 0.0
    return scores, behind


def _noisy(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """Scores between 0 and 1 that share how hard a case is, with noise of their own."""
    behind = np.resize(np.array([MARGIN, 0.0, MARGIN, MARGIN]), rows)
    noise = 0.15 * rng.beta(2, 2, (rows, cases)) + 0.3 * rng.beta(1, 3, cases)
    return 0.5 + noise - behind[:, None], behind


def _skewed(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """Rows that gain a little in most cases and lose nearly all in a few."""
    behind = np.full(rows, MARGIN)
    behind[0] = 0.0
    lost = rng.random((rows, cases)) < 0.1
    lost[0] = False
    return 0.8 + np.where(lost, -0.77, 0.03)[:, :] - np.where(np.arange(rows) == 0, 0.03, 0.0)[:, None], behind


SITUATIONS: dict[str, Draw] = {
    "pass rates, all others behind by the margin": _at_margin,
    "pass rates from equal to 0.4 behind": _spread,
    "rows that are wrong in one case of 20 where the best is right": _rarely_worse,
    "a judge of five levels": _graded,
    "scores from 0 to 1 that share how hard a case is": _noisy,
    "small gains and rare large losses": _skewed,
}


def _standings(scores: Floats, could_be_best: Sequence[int] = (), **design: Any) -> list[Standing]:
    """Compare rows; without rows that could be the best, no row is claimed to be not good enough."""
    design_of_rows = Design(**{"ends": (0.0, 1.0), **design})
    return standings(scores, design_of_rows, MARGIN, could_be_best=could_be_best, compared_rows=range(len(scores)))


def _says(rows: Sequence[Standing], within: bool) -> Floats:
    return np.array([standing.within is within for standing in rows])


def _claims(name: str, draw: Draw, rows: int, cases: int) -> Iterator[Promise]:
    def yes(rng: Rng) -> bool:
        scores, behind = draw(rng, rows, cases)
        return bool((_says(_standings(scores), True) & _beyond(behind)).any())

    def no(rng: Rng) -> bool:
        scores, behind = draw(rng, rows, cases)
        best = np.flatnonzero(rank(scores, seed_from(rng)).candidates).tolist()
        return bool((_says(_standings(scores, could_be_best=best), False) & (behind <= MARGIN)).any())

    size = f"{rows} rows, {cases} cases"
    yield Promise(WRONG_YES, name, size, counted(yes), at_most=0.05, runs=400)
    if rows * cases <= 6 * 300:  # which rows could be the best takes a second of many
        yield Promise(WRONG_NO, name, size, counted(no), at_most=0.05, runs=200)


def _dearer(sigma: float, *, steady: bool) -> Draw:
    """Costs, lower is better, and no scale: all others are dearer by the margin. steady: the best costs the same."""

    def draw(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
        behind = np.where(np.arange(rows) > 0, MARGIN, 0.0)
        costs = rng.lognormal(-(sigma**2) / 2, sigma, (rows, cases)) * (4 * MARGIN + behind)[:, None]
        if steady:
            costs[0] = 4 * MARGIN
        return costs, behind

    return draw


def _timing_out(share: float) -> Draw:
    """Seconds, lower is better, and no scale: all others time out in so many cases, and are else as quick."""

    def draw(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
        behind = np.where(np.arange(rows) > 0, MARGIN, 0.0)
        seconds = 1 + 0.03 * rng.normal(size=(rows, cases))
        seconds += np.where(rng.random((rows, cases)) < share, behind[:, None] / share, 0.0)
        return seconds, behind

    return draw


def _unlimited(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """Normal scores without a scale."""
    behind = np.where(np.arange(rows) > 0, MARGIN, 0.0)
    return 0.1 * rng.normal(size=cases) + 0.4 * MARGIN * rng.normal(size=(rows, cases)) - behind[:, None], behind


def _rarely_dearer(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """Costs without a scale: all others are cheaper by the margin, but for a tenth of the cases."""
    behind = np.where(np.arange(rows) > 0, MARGIN, 0.0)
    costs = 1 + 0.01 * rng.normal(size=(rows, cases))
    costs[1:] += np.where(rng.random((rows - 1, cases)) < 0.1, 19 * MARGIN, -MARGIN)
    return costs, behind


def _in_clusters(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """Pass rates whose cases come from clusters that are wholly wrong in a row where it is wrong."""
    behind = np.where(np.arange(rows) > 0, MARGIN, 0.0)
    return _rates(rng, 0.85 - behind, CLUSTERS, 0.6)[:, _clusters(cases)], behind


def _clusters(cases: int) -> NDArray[np.int64]:
    return np.arange(cases) * CLUSTERS // cases


def _hidden(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """Some rows rarely lose to the best, among many that do much worse and whose bounds are as far up."""
    behind = np.where(np.arange(rows) < rows // 4, MARGIN, 0.4)
    behind[0] = 0.0
    best = rng.random(cases) < 0.97
    near = best & (rng.random((rows, cases)) >= MARGIN / 0.97)
    near[0] = best
    far = rng.random((rows, cases)) < 0.57
    return np.where(behind[:, None] < 0.4, near, far).astype(np.float64), behind


CLUSTERS = 40
_NO_SCALE: Mapping[str, Any] = {"ends": None}
_COSTS: Mapping[str, Any] = {"ends": (0.0, np.inf), "better": "lower"}
_FEW = ((2, 3), (2, 6), (2, 12), (2, 30), (2, 60), (6, 60))
HARD: Sequence[tuple[str, Draw, Sequence[tuple[int, int]], Mapping[str, Any], float | None]] = (
    ("no scale, normal scores", _unlimited, _FEW, _NO_SCALE, 0.05),
    ("no scale, costs, sigma 0.5", _dearer(0.5, steady=False), _FEW, _COSTS, 0.05),
    ("no scale, costs, sigma 1.5", _dearer(1.5, steady=False), _FEW, _COSTS, 0.05),
    ("no scale, costs, sigma 1.5, the best is steady", _dearer(1.5, steady=True), _FEW, _COSTS, 0.05),
    ("no scale, cheaper but for a tenth of the cases", _rarely_dearer, _FEW, _COSTS, 0.05),
    ("no scale, time-outs in 3% of the cases", _timing_out(0.03), ((2, 12), (2, 30), (2, 60), (2, 300)), _COSTS, None),
    ("pass rates, 40 clusters", _in_clusters, ((2, 200), (6, 200)), {}, 0.05),
    ("near rows among 48 far ones", _hidden, ((64, 60), (64, 300)), {}, 0.05),
)


def _hard() -> Iterator[Promise]:
    for name, draw, sizes, design, bound in HARD:
        for rows, cases in sizes:

            def yes(rng: Rng, draw: Draw = draw, design: Any = design, rows: int = rows, cases: int = cases) -> bool:
                scores, behind = draw(rng, rows, cases)
                more = {"units": _clusters(cases)} if draw is _in_clusters else {}
                return bool((_says(_standings(scores, **design, **more), True) & _beyond(behind)).any())

            yield Promise(WRONG_YES, name, f"{rows} rows, {cases} cases", counted(yes), at_most=bound, runs=400)
    for name, draw, _, design, bound in HARD:
        for rows, cases in ((2, 6), (2, 30)) if bound and name.startswith("no scale") else ():

            def no(rng: Rng, draw: Draw = draw, design: Any = design, rows: int = rows, cases: int = cases) -> bool:
                scores, behind = draw(rng, rows, cases)
                best = compare(scores, Design(**design, seed=seed_from(rng))).candidates
                return bool((_says(_standings(scores, best, **design), False) & (behind <= MARGIN)).any())

            yield Promise(WRONG_NO, name, f"{rows} rows, {cases} cases", counted(no), at_most=0.05, runs=200)


def _missing_where_no_is_said() -> Iterator[Promise]:
    """The best lacks cells where it is wrong, so that rows within the margin seem to be further behind."""
    for rows, cases in ((2, 1_000), (6, 1_000)):

        def no(rng: Rng, rows: int = rows, cases: int = cases) -> bool:
            behind = np.where(np.arange(rows) > 0, MARGIN, 0.0)
            scores = _rates(rng, 0.8 - behind, cases, 0.0)
            lost = (rng.random(cases) < 0.04 / 0.2) & (scores[0] == 0)
            scores[0, lost] = np.nan
            missing = MissingCells.of(scores)
            comparison = compare(scores, Design(ends=(0.0, 1.0), missing=missing, seed=seed_from(rng)))
            return bool(_says(_standings(scores, comparison.candidates, missing=missing), False).any())

        situation = "pass rates, 4% of the cells of the best lost where they are wrong"
        yield Promise(WRONG_NO, situation, f"{rows} rows, {cases} cases", counted(no), at_most=0.05, runs=200)


def _not_allowed() -> Iterator[Promise]:
    """A row that is not allowed is ahead of all, so that it alone could be the best of all rows."""
    for rows, cases in ((6, 200), (36, 60)):

        def no(rng: Rng, rows: int = rows, cases: int = cases) -> bool:
            behind = np.where(np.arange(rows) > 0, MARGIN, -0.14)
            scores = _rates(rng, 0.85 - behind, cases, 0.6)
            best = np.flatnonzero(rank(scores, seed_from(rng)).candidates).tolist()
            design = Design(ends=(0.0, 1.0))
            rows_found = standings(scores, design, MARGIN, could_be_best=best, compared_rows=range(1, rows))
            return bool(_says(rows_found, False)[1:].any())

        situation = "a row that is not allowed is far ahead"
        yield Promise(WRONG_NO, situation, f"{rows} rows, {cases} cases", counted(no), at_most=0.05, runs=200)


def _missing() -> Iterator[Promise]:
    """Rows behind by the margin lack cells where their answers would be wrong."""
    for share, (rows, cases) in itertools.product((0.02, 0.04), ((2, 300), (6, 300), (36, 300))):

        def yes(rng: Rng, share: float = share, rows: int = rows, cases: int = cases) -> bool:
            scores, behind = _at_margin(rng, rows, cases)
            lost = (rng.random(scores.shape) < share / np.mean(scores[1:] == 0)) & (scores == 0)
            lost[0] = False
            scores = np.where(lost, np.nan, scores)
            verdicts = _standings(scores, missing=MissingCells.of(scores))
            return bool((_says(verdicts, True) & _beyond(behind)).any())

        situation = f"pass rates, {share:.0%} of the cells of the others lost where they are wrong"
        yield Promise(WRONG_YES, situation, f"{rows} rows, {cases} cases", counted(yes), at_most=0.05, runs=300)


def _looks() -> Iterator[Promise]:
    """A user looks after every 20 of 200 cases, or compares the same rows three times, each time over more cases."""
    for rows in (2, 6):

        def early(rng: Rng, rows: int = rows) -> bool:
            scores, behind = _at_margin(rng, rows, 200)
            for seen in range(20, 201, 20):
                finished = np.ones((rows, seen), dtype=np.bool_)
                at_look = look(scores[:, :seen], finished, scale=(0.0, 1.0), margin=MARGIN).standings
                if (_says(at_look, True) & _beyond(behind)).any():
                    return True
            return False

        def across_looks(rng: Rng, rows: int = rows) -> bool:
            scores, behind = _at_margin(rng, rows, 600)
            seen: list[EarlierLook] = []
            for cases in (150, 300, 600):
                earlier = [EarlierLook(earlier.cases / cases, earlier.cases, earlier.combinations) for earlier in seen]
                share = spendable(count_before(earlier, rows - 1), rows - 1)
                if (_says(_standings(scores[:, :cases], share=share), True) & _beyond(behind)).any():
                    return True
                seen.append(EarlierLook(1.0, cases, rows - 1))
            return False

        size = f"{rows} rows"
        yield Promise(WRONG_YES, "looking after every 20 of 200 cases", size, counted(early), at_most=0.05, runs=200)
        # All looks together may use half as much again, as with other claims.
        yield Promise(
            WRONG_YES, "three looks over 150, 300 and 600 cases", size, counted(across_looks), at_most=0.075, runs=300
        )


def _power() -> Iterator[Promise]:
    """A row within the margin is shown to be, by how many cases there are and how far it is behind."""
    for behind, rows, cases in itertools.product((0.0, 0.01, 0.02, 0.03), (2, 6, 36), (100, 300, 1_000)):

        def is_within(rng: Rng, behind: float = behind, rows: int = rows, cases: int = cases) -> bool:
            gaps = np.full(rows, 0.3)
            gaps[:2] = 0.0, behind
            return _standings(_rates(rng, 0.85 - gaps, cases, 0.6))[1].within is True

        name = "equal pass rates of 85% that differ in 10% of the cases" if not behind else f"behind by {behind:g}"
        yield Promise(RIGHT_YES, name, f"{rows} rows, {cases} cases", counted(is_within), runs=200)
    for rows, cases in itertools.product((2, 6), (300, 1_000)):

        def early(rng: Rng, rows: int = rows, cases: int = cases) -> bool:
            gaps = np.full(rows, 0.3)
            gaps[:2] = 0.0
            scores = _rates(rng, 0.85 - gaps, cases, 0.6)
            finished = np.ones(scores.shape, dtype=np.bool_)
            return look(scores, finished, scale=(0.0, 1.0), margin=MARGIN).standings[1].within is True

        name = "equal pass rates of 85%, by a look before the end"
        yield Promise(RIGHT_YES, name, f"{rows} rows, {cases} cases", counted(early), runs=200)
    yield from _power_without_scale()


def _power_without_scale() -> Iterator[Promise]:
    """Rows of equal scores without a scale, by how much they differ from case to case."""
    for noise, rows, cases in itertools.product((0.6, 1.0, 1.5), (2, 6), (30, 60)):

        def is_within(rng: Rng, noise: float = noise, rows: int = rows, cases: int = cases) -> bool:
            scores = 4 * MARGIN * rng.normal(size=cases) + noise * MARGIN / 2**0.5 * rng.normal(size=(rows, cases))
            return _standings(scores, ends=None)[1].within is True

        name = f"no scale, equal scores whose differences spread by {noise:g} margins"
        bound = 0.75 if rows == 2 and noise <= 1 else None
        yield Promise(RIGHT_YES, name, f"{rows} rows, {cases} cases", counted(is_within), at_least=bound, runs=200)
    for rows, cases in itertools.product((2, 6), (30, 60)):

        def cheap(rng: Rng, rows: int = rows, cases: int = cases) -> bool:
            costs = 4 * MARGIN * rng.lognormal(-0.125, 0.5, cases) * (1 + 0.1 * rng.normal(size=(rows, cases)))
            return _standings(costs, **_COSTS)[1].within is True

        name = "no scale, equal costs that go with the size of a case and vary by 10%"
        bound = 0.75 if rows == 2 else None
        yield Promise(RIGHT_YES, name, f"{rows} rows, {cases} cases", counted(cheap), at_least=bound, runs=200)
