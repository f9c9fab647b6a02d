"""Rows within a margin of a best that was chosen from the same data: how often one is said to be that is not.

Rows that are behind the best by just the margin are where a wrong "yes" is most likely. Cases differ in how hard they
are, rows share what they do, cheap rows lose now and then and never win, cells are missing where their answers would be
wrong, and people look early or again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from simulations.promises import Promise, counted, seed_from
from wtb.analysis.statistics import Design, Floats
from wtb.analysis.statistics.best import rank
from wtb.analysis.statistics.good_enough import Standing, standings
from wtb.analysis.statistics.missing.missing_cells import MissingCells
from wtb.analysis.statistics.sequential.running import look
from wtb.analysis.statistics.sequential.spending import EarlierLook, count_before, spendable

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
    yield from _missing()
    yield from _looks()
    yield from _power()


def _beyond(behind: Floats) -> Floats:
    """Which rows are not within the margin; those that are behind by just the margin are not."""
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


def _standings(
    scores: Floats, share: float = 1.0, missing: MissingCells | None = None, could_be_best: Sequence[int] = ()
) -> list[Standing]:
    """Compare rows; without those that could be the best none is said to be not good enough."""
    design = Design(ends=(0.0, 1.0), share=share, missing=missing)
    return standings(scores, design, MARGIN, could_be_best=could_be_best, over=range(len(scores)))


def _says(found: Sequence[Standing], within: bool) -> Floats:
    return np.array([one.within is within for one in found])


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


def _missing() -> Iterator[Promise]:
    """Rows behind by the margin lack cells where their answers would be wrong."""
    for share, (rows, cases) in itertools.product((0.02, 0.04), ((2, 300), (6, 300), (36, 300))):

        def yes(rng: Rng, share: float = share, rows: int = rows, cases: int = cases) -> bool:
            scores, behind = _at_margin(rng, rows, cases)
            lost = (rng.random(scores.shape) < share / np.mean(scores[1:] == 0)) & (scores == 0)
            lost[0] = False
            scores = np.where(lost, np.nan, scores)
            found = _standings(scores, missing=MissingCells.of(scores))
            return bool((_says(found, True) & _beyond(behind)).any())

        situation = f"pass rates, {share:.0%} of the cells of the others lost where they are wrong"
        yield Promise(WRONG_YES, situation, f"{rows} rows, {cases} cases", counted(yes), at_most=0.05, runs=300)


def _looks() -> Iterator[Promise]:
    """Somebody looks after every 20 of 200 cases, or compares the same rows three times, each time over more cases."""
    for rows in (2, 6):

        def early(rng: Rng, rows: int = rows) -> bool:
            scores, behind = _at_margin(rng, rows, 200)
            for seen in range(20, 201, 20):
                finished = np.ones((rows, seen), dtype=np.bool_)
                found = look(scores[:, :seen], finished, scale=(0.0, 1.0), margin=MARGIN).standings
                if (_says(found, True) & _beyond(behind)).any():
                    return True
            return False

        def again(rng: Rng, rows: int = rows) -> bool:
            scores, behind = _at_margin(rng, rows, 600)
            seen: list[EarlierLook] = []
            for cases in (150, 300, 600):
                earlier = [EarlierLook(one.cases / cases, one.cases, one.combinations) for one in seen]
                left = spendable(count_before(earlier, rows - 1), rows - 1)
                if (_says(_standings(scores[:, :cases], left), True) & _beyond(behind)).any():
                    return True
                seen.append(EarlierLook(1.0, cases, rows - 1))
            return False

        size = f"{rows} rows"
        yield Promise(WRONG_YES, "looking after every 20 of 200 cases", size, counted(early), at_most=0.05, runs=200)
        # All looks together may use half as much again, as with other claims.
        yield Promise(
            WRONG_YES, "three looks over 150, 300 and 600 cases", size, counted(again), at_most=0.075, runs=300
        )


def _power() -> Iterator[Promise]:
    """An equally good row is shown to be, by how many cases there are."""
    for rows, cases in itertools.product((2, 36), (100, 300, 1_000)):

        def shown(rng: Rng, rows: int = rows, cases: int = cases) -> bool:
            behind = np.full(rows, 0.3)
            behind[:2] = 0.0
            return _standings(_rates(rng, 0.85 - behind, cases, 0.6))[1].within is True

        situation = "two equal pass rates of 85% that differ in 10% of the cases"
        yield Promise(RIGHT_YES, situation, f"{rows} rows, {cases} cases", counted(shown), runs=200)
