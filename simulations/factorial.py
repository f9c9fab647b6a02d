"""Effects of factors: sweeps of 3 x 3 x 2 x 2 whose true means are known, with cells that failed, as people run them.

Cases differ in difficulty, each case has its own effect of each level, scores of a case go together, and hard cases
and one of the levels fail more often.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simulations.promises import Promise, counted, seed_from
from wtb.analysis.matrix.attribution import attributed
from wtb.analysis.matrix.single_changes import GridLevels, level_codes, varied_factors
from wtb.analysis.statistics import SIGNIFICANT, Floats
from wtb.analysis.statistics.claims import MissingCells
from wtb.analysis.statistics.factor_effects import fit
from wtb.analysis.statistics.intervals import Units
from wtb.core.documents.report import AttributionDocument

Rng = np.random.Generator
Row = dict[str, str]  # the level of each factor
CASES = 200
_DIFFICULTY = 2.0  # standard deviation of the logits of cases
_OWN = 0.5  # of the logits of the effect that a level has on a case beside its true one
_FAILED = 0.1


@dataclass(frozen=True)
class Layout:
    """Combinations as a sweep has them.

    Attributes:
        rows: For each combination the level of each factor; nested factors only where they are.
        choices: For each combination the variant of each node.
        grids: The levels of variants.
    """

    rows: Sequence[Row]
    choices: Sequence[dict[str, str]]
    grids: GridLevels

    def part(self, numbers: Sequence[int]) -> Layout:
        """Return a layout of some of the combinations."""
        return Layout([self.rows[n] for n in numbers], [self.choices[n] for n in numbers], self.grids)


def laid_out(rows: Sequence[Row]) -> Layout:
    """Put factors such as "answer.model" on their nodes; a factor without a dot is a node."""
    choices, grids = [], {}
    for row in rows:
        choice: dict[str, str] = {}
        for node in dict.fromkeys(name.split(".")[0] for name in row):
            levels = {name: level for name, level in row.items() if name.startswith(f"{node}.")}
            choice[node] = ", ".join([*([row[node]] if node in row else []), *levels.values()])
            if levels:
                grids[node, choice[node]] = levels
        choices.append(choice)
    return Layout(rows, choices, grids)


CROSSING = {
    "retrieve": ("bm25", "dense", "both"),
    "answer.model": ("mini", "large", "huge"),
    "answer.prompt": ("short", "long"),
    "answer.temperature": ("0", "0.7"),
}
FULL = laid_out([dict(zip(CROSSING, levels, strict=True)) for levels in itertools.product(*CROSSING.values())])
MIXED = laid_out(  # the default answer has no prompt and no temperature
    [
        {"retrieve": retrieve, **answer}
        for retrieve in CROSSING["retrieve"]
        for answer in (
            {"answer": "default"},
            *(
                {"answer.model": model, "answer.prompt": prompt}
                for model, prompt in itertools.product(CROSSING["answer.model"], CROSSING["answer.prompt"])
            ),
            *({"answer.style": style} for style in ("terse", "chatty")),
        )
    ]
)
ONE_AT_A_TIME = FULL.part(
    [n for n, row in enumerate(FULL.rows) if sum(row[name] != levels[0] for name, levels in CROSSING.items()) <= 1]
)
EXCLUDED = FULL.part(
    [n for n, row in enumerate(FULL.rows) if (row["answer.model"], row["answer.prompt"]) != ("huge", "long")]
)
MAIN, PAIR = ("answer.model", "large", 0.08), (("retrieve", "dense"), ("answer.prompt", "long"), 0.10)
CROSSED = (("retrieve", "dense"), ("answer.model", "large"), 0.10)  # a pair of three levels each

Mean = Callable[[Row], float]


def no_effect(row: Row) -> float:
    """Every combination has the same mean."""
    return 0.0


def main_effect(row: Row) -> float:
    """One level of a factor is better by 0.08 than the others."""
    factor, level, size = MAIN
    return size * (row.get(factor) == level)


def both_effects(row: Row) -> float:
    """The same, and two levels of other factors gain 0.10 together."""
    (a, x), (b, y), size = PAIR
    return main_effect(row) + size * (row.get(a) == x and row.get(b) == y)


def crossed_effects(row: Row) -> float:
    """Two levels of factors with three levels gain 0.10 together."""
    (a, x), (b, y), size = CROSSED
    return size * (row.get(a) == x and row.get(b) == y)


@functools.cache
def _logit(mean: float, spread: float) -> float:
    """Return the logit whose mean over normal noise is a mean."""
    points, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        rate = float(weights @ (1 / (1 + np.exp(-(middle + spread * points)))))
        low, high = (middle, high) if rate < mean else (low, middle)
    return (low + high) / 2


def drawn(
    rng: Rng, layout: Layout, mean: Mean, *, steps: int, cases: int = CASES, own: float = _OWN, units: Units = None
) -> Floats:
    """Draw scores from 0 to 1: the share of so many tries that pass, whose mean is 0.6 and what `mean` adds.

    Cases of a unit are alike in difficulty and in the effects that levels have on them.
    """
    alike = np.arange(cases) if units is None else units
    logits = _DIFFICULTY * rng.normal(size=cases)[alike] + np.zeros((len(layout.rows), 1))
    names = list(dict.fromkeys(name for row in layout.rows for name in row))
    deviations = {
        (name, row[name]): own * rng.normal(size=cases)[alike]
        for name in names
        for row in {row[name]: row for row in layout.rows if name in row}.values()
    }
    for number, row in enumerate(layout.rows):
        spread = math.sqrt(_DIFFICULTY**2 + own**2 * len(row))
        logits[number] += _logit(round(0.6 + mean(row), 6), spread) + sum(deviations[factor] for factor in row.items())
    return rng.binomial(steps, 1 / (1 + np.exp(-logits))) / steps


def with_failures(rng: Rng, layout: Layout, scores: Floats) -> Floats:
    """Leave out 10% of the cells: more of hard cases, and more of one model."""
    hard = scores.mean(axis=0) < np.median(scores.mean(axis=0))
    often = np.array([1.6 if row.get("answer.model") == "huge" else 0.7 for row in layout.rows])
    chance = _FAILED * often[:, None] * np.where(hard, 1.6, 0.4)[None, :]
    return np.where(rng.random(scores.shape) < chance, np.nan, scores)


def attributed_to(
    rng: Rng, layout: Layout, mean: Mean, *, steps: int, cases: int = CASES, own: float = _OWN, units: Units = None
) -> AttributionDocument:
    """Draw a sweep and attribute its spread."""
    scores = with_failures(rng, layout, drawn(rng, layout, mean, steps=steps, cases=cases, own=own, units=units))
    missing, choices = MissingCells.of(scores), list(layout.choices)
    return attributed(scores, choices, "right", seed_from(rng), units, layout.grids, missing=missing, ends=(0.0, 1.0))


def clear_effects(attribution: AttributionDocument) -> set[tuple[str, ...]]:
    """Return the factors and pairs with a claimed effect, by name; an unexplained rest is ()."""
    clear: set[tuple[str, ...]] = {
        (effect.get("factor", effect["node"]),) for effect in attribution["nodes"] if effect["p_adjusted"] < SIGNIFICANT
    }
    clear |= {
        tuple(sorted(effect.get("factors", effect["nodes"])))
        for effect in attribution["interactions"]
        if effect["p_adjusted"] < SIGNIFICANT
    }
    return clear | (
        {()} if attribution["unexplained_p"] is not None and attribution["unexplained_p"] < SIGNIFICANT else set()
    )


def has_false_effect(attribution: AttributionDocument, true: set[tuple[str, ...]], mean: Mean) -> bool:
    """Return whether any false effect is claimed, including single changes."""
    return bool(clear_effects(attribution) - true) or any(
        simple["p_adjusted"] is not None
        and simple["p_adjusted"] < SIGNIFICANT
        and (mean(_row(simple, "variant")) - mean(_row(simple, "over"))) * simple["effect"] <= 0
        for simple in attribution.get("simple", [])
    )


def _row(simple: Mapping[str, object], side: str) -> Row:
    beside = simple["beside"]
    assert isinstance(beside, dict)
    return {**beside, str(simple.get("factor", simple["node"])): str(simple[side])}


def true_effects(layout: Layout, mean: Mean) -> set[tuple[str, ...]]:
    """Return the factors and pairs that have an effect over whole crossings, by the same fit without any noise."""
    factors = varied_factors(layout.choices, layout.grids)
    means = np.array([mean(row) for row in layout.rows])
    if not means.any():
        return set()
    fitted = fit(np.stack([means, means], axis=1), level_codes(factors), seed=0)
    return {
        tuple(sorted(factors[number].name for number in effect.factors))
        for effect in [*fitted.factors, *fitted.pairs]
        if np.abs(effect.means).max() > 1e-9
    }


KINDS: Mapping[str, int] = {"pass or fail": 1, "a judge of five levels": 4}


def promises() -> Iterator[Promise]:
    """All of effects of factors."""
    for kind, steps in KINDS.items():
        yield from _measured(kind, steps)
    for kind, steps in KINDS.items():
        yield from _false(kind, steps)


def _measured(kind: str, steps: int) -> Iterator[Promise]:
    size = "3 x 3 x 2 x 2, 200 cases"

    def finds(layout: Layout, mean: Mean, effect: tuple[str, ...], own: float = _OWN) -> Callable[[Rng], bool]:
        return lambda rng: effect in clear_effects(attributed_to(rng, layout, mean, steps=steps, own=own))

    pair, crossed = (tuple(sorted((effect[0][0], effect[1][0]))) for effect in (PAIR, CROSSED))
    main = (MAIN[0],)
    situations: Sequence[tuple[str, str, Callable[[Rng], bool], float | None]] = (
        ("a main effect of 0.08 is found", "", finds(FULL, both_effects, main), 0.9),
        ("a main effect of 0.08 is found", ", cases differ much in it", finds(FULL, both_effects, main, 1.5), None),
        ("an interaction of 0.10 is found", ", of 3 x 2 levels", finds(FULL, both_effects, pair), 0.9),
        ("an interaction of 0.10 is found", ", of 3 x 3 levels", finds(FULL, crossed_effects, crossed), 0.9),
    )
    for claim, more, happens, bound in situations:
        yield Promise(claim, f"{kind}{more}", size, counted(happens), at_least=bound, runs=200)
    nested = finds(MIXED, main_effect, main)
    yield Promise(
        "a main effect of 0.08 is found", f"{kind}, nested", "27 combinations, 200 cases", counted(nested), runs=200
    )

    def sampled(rng: Rng) -> bool:
        some = FULL.part(rng.choice(len(FULL.rows), 24, replace=False).tolist())
        return main in clear_effects(attributed_to(rng, some, main_effect, steps=steps))

    yield Promise(
        "a main effect of 0.08 is found", f"{kind}, random", "24 of 36, 200 cases", counted(sampled), runs=200
    )


def _false(kind: str, steps: int) -> Iterator[Promise]:
    claim, whole = "an effect of factors that is not there is claimed", "3 x 3 x 2 x 2, 200 cases"
    layouts: Mapping[str, tuple[str, Callable[[Rng], Layout]]] = {
        "": (whole, lambda rng: FULL),
        ", mixed and nested": ("27 combinations, 200 cases", lambda rng: MIXED),
        ", one-at-a-time": ("7 of 36, 200 cases", lambda rng: ONE_AT_A_TIME),
        ", one pair excluded": ("30 of 36, 200 cases", lambda rng: EXCLUDED),
        ", random, 12 of 36": ("12 of 36, 200 cases", lambda rng: _sample(rng, 12)),
        ", random, 24 of 36": ("24 of 36, 200 cases", lambda rng: _sample(rng, 24)),
        ", random, 30 of 36": ("30 of 36, 200 cases", lambda rng: _sample(rng, 30)),
    }
    if steps > 1:
        layouts = {where: layouts[where] for where in ("", ", mixed and nested", ", random, 24 of 36")}
    means: Mapping[str, Mean] = {"nothing matters": no_effect, "others do": both_effects}
    for (where, (size, layout)), (what, mean) in itertools.product(layouts.items(), means.items()):
        true = true_effects(MIXED if layout(np.random.default_rng(0)) is MIXED else FULL, mean)

        def wrong(rng: Rng, layout: Callable[[Rng], Layout] = layout, mean: Mean = mean, true: object = true) -> bool:
            assert isinstance(true, set)
            return has_false_effect(attributed_to(rng, layout(rng), mean, steps=steps), true, mean)

        yield Promise(
            claim, f"{kind}{where}, {what}", size, counted(wrong), at_most=SIGNIFICANT, runs=200 if where else 400
        )

    def differing(rng: Rng) -> bool:
        return has_false_effect(attributed_to(rng, FULL, no_effect, steps=steps, own=1.5), set(), no_effect)

    def clustered(rng: Rng) -> bool:
        units = np.repeat(np.arange(40), rng.multinomial(CASES - 40, np.full(40, 1 / 40)) + 1)
        return has_false_effect(attributed_to(rng, FULL, no_effect, steps=steps, units=units), set(), no_effect)

    for what, happens in (("cases differ much in effects", differing), ("40 clusters of 1 to 12 cases", clustered)):
        yield Promise(claim, f"{kind}, {what}", whole, counted(happens), at_most=SIGNIFICANT, runs=200)


def _sample(rng: Rng, size: int) -> Layout:
    return FULL.part(sorted(rng.choice(len(FULL.rows), size, replace=False).tolist()))
