"""Effects of factors where signs mislead: answers that are nearly all right, cells that fail where they are wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from simulations.factorial import Rng, has_false_effect, no_effect
from simulations.promises import Promise, counted, seed_from
from wtb.analysis.matrix.attribution import attributed
from wtb.analysis.statistics import SIGNIFICANT, Floats
from wtb.analysis.statistics.claims import MissingCells

Choices = list[dict[str, str]]
Draw = Callable[[Rng, Choices, int], Floats]
NODES = ("retrieve", "answer", "check", "route")
SIZES: Sequence[tuple[int, ...]] = ((2, 2), (3, 3), (3, 3, 2, 2))


def promises() -> Iterator[Promise]:
    """All of false effects that are easily claimed."""
    for situation, (draw, sizes) in SITUATIONS.items():
        for levels, cases in sizes:
            yield _promise(situation, draw, levels, cases)


def _promise(situation: str, draw: Draw, levels: tuple[int, ...], cases: int) -> Promise:
    choices = crossed(levels)

    def wrong(rng: Rng) -> bool:
        scores = draw(rng, choices, cases)
        missing = MissingCells.of(scores)
        attribution = attributed(scores, choices, "right", seed_from(rng), missing=missing, ends=(0.0, 1.0))
        return has_false_effect(attribution, set(), no_effect)

    size = f"{' x '.join(map(str, levels))}, {cases} cases"
    claim = "an effect of factors that is not there is claimed, in hard situations"
    bound = None if situation in UNBOUNDED else SIGNIFICANT
    return Promise(claim, situation, size, counted(wrong), at_most=bound, runs=400)


def crossed(levels: Sequence[int]) -> Choices:
    """Return all combinations of nodes with so many variants."""
    return [
        {node: str(number) for node, number in zip(NODES, numbers, strict=False)}
        for numbers in itertools.product(*map(range, levels))
    ]


def _passing(rate: float) -> Draw:
    def draw(rng: Rng, choices: Choices, cases: int) -> Floats:
        common, own = rng.random(cases), rng.random((len(choices), cases))
        return np.asarray(np.where(rng.random(cases) < 0.6, common, own) < rate, dtype=np.float64)

    return draw


def _first(choices: Choices) -> Floats:
    """Return which combinations have the first variant of the second node."""
    return np.array([choice["answer"] == "0" for choice in choices])


def _failing_where_wrong(rng: Rng, choices: Choices, cases: int) -> Floats:
    """One variant fails in a tenth of its cells, all of which its answer would have been wrong in."""
    scores = _passing(0.7)(rng, choices, cases)
    lost = (scores == 0) & _first(choices)[:, None] & (rng.random(scores.shape) < 0.1 / 0.3)
    return np.where(lost, np.nan, scores)


def _failing_where_right(rng: Rng, choices: Choices, cases: int) -> Floats:
    """One variant fails in a third of the cells in which it would have been right, and looks worse than it is."""
    scores = _passing(0.3)(rng, choices, cases)
    lost = (scores == 1) & _first(choices)[:, None] & (rng.random(scores.shape) < 0.1 / 0.3)
    return np.where(lost, np.nan, scores)


def _rare_losses(rng: Rng, choices: Choices, cases: int) -> Floats:
    """One variant gains a little in each case, but for one case of 50, in which it loses most of the scale."""
    scores = 0.6 + 0.2 * rng.random(cases) + 0.01 * rng.normal(size=(len(choices), cases))
    change = np.where(rng.random(cases) < 0.02, -0.6, 0.6 * 0.02 / 0.98)
    return np.asarray(np.clip(scores + _first(choices)[:, None] * change, 0.0, 1.0))


SITUATIONS: Mapping[str, tuple[Draw, Sequence[tuple[tuple[int, ...], int]]]] = {
    "pass rate 98%": (_passing(0.98), [(levels, cases) for levels in SIZES for cases in (20, 200)]),
    "pass rate 95%": (_passing(0.95), [((2, 2), 100), ((3, 3), 100)]),
    "pass rate 2%": (_passing(0.02), [((3, 3), 200)]),
    "a variant fails where it is wrong": (_failing_where_wrong, [(levels, 200) for levels in SIZES]),
    "a variant fails where it is right, pass rate 30%": (_failing_where_right, [((2, 2), 200), ((3, 3), 200)]),
    "a variant gains a little and rarely loses much": (
        _rare_losses,
        [((2, 2), 20), ((3, 3), 50), ((3, 3, 2, 2), 50)],
    ),
}
UNBOUNDED = {"a variant fails where it is right, pass rate 30%"}  # a level that looks worse is taken at its word
