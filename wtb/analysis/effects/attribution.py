"""What makes the difference: main effects of factors and which pairs of them act together; rows pair by pair.

`attribute` and `pairwise` read the scores of a sweep by one metric; their documents are part of the evidence.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from wtb.analysis.effects.effect_sentences import effect_sentences
from wtb.analysis.effects.single_changes import single_changes
from wtb.analysis.effects.varied_factors import GridLevels, VariedFactor, level_codes, short_names, varied_factors
from wtb.analysis.scores import Scores
from wtb.analysis.statistics.comparing import Better, Design, passes
from wtb.analysis.statistics.effects.fit import Effects, Fit, fit
from wtb.analysis.statistics.effects.unshown import LostCells
from wtb.analysis.statistics.intervals import Floats, Interval, is_constant
from wtb.analysis.statistics.missing.claims import SIGNIFICANT
from wtb.analysis.statistics.missing.missing_cells import MissingCells
from wtb.analysis.statistics.missing.unseen_losses import span_of
from wtb.analysis.statistics.missing.worst_case import Pairs
from wtb.analysis.statistics.paired import cleaned, holm, means, paired_tests, subtract
from wtb.analysis.statistics.units import Units
from wtb.core.scoring.measure import Measure

if TYPE_CHECKING:
    from wtb.core.documents.report import AttributionDocument, InteractionEffect, NodeEffect, PairsDocument


_NAMED = 3  # pairs, of many that cannot be told


def attribute(scored: Scores, metric: str) -> AttributionDocument:
    """How much of the spread of the combinations' means by `metric` comes from which factor.

    An effect is how far a level lies from the middle of its factor's levels, the others being equal. A case in which
    some combinations have no score compares the others. `because` says in words why nothing, or not all, can be told.
    Combinations that somebody stopped are left out: they were stopped because of what they showed.
    """
    table = scored.planned_table(metric)
    scores = cleaned(table.scores).copy()
    scores[[number for number in scored.stopped if number < scored.planned]] = np.nan
    design = scored.design(metric, table, 1.0) if metric in scored.measures else Design()
    return attributed(
        scores,
        scored.choices[: scored.planned],
        metric,
        scored.seed,
        table.units,
        scored.grid_levels,
        missing=None if table.figure is not None else table.missing,
        ends=design.ends,
        better=design.better,
    )


def attributed(
    scores: Floats,
    choices: list[dict[str, str]],
    metric: str,
    seed: int,
    units: Units = None,
    grids: GridLevels | None = None,
    *,
    missing: MissingCells | None = None,
    ends: Interval | None = None,
    better: Better = "higher",
) -> AttributionDocument:
    """Attribute the spread of scores (combinations x cases, NaN where missing) to factors.

    Args:
        scores: By one metric, repeats averaged.
        choices: The variants of each combination by node.
        metric: Its name.
        seed: Of the random signs.
        units: The cluster of each case.
        grids: The levels of the variants that are grid points; a node without any is one factor.
        missing: The missing cells, which an effect has to survive at their worst.
        ends: The lowest and the highest score that there can be.
        better: Which scores are.
    """
    present = np.isfinite(scores)
    rows = np.flatnonzero(present.any(axis=1))
    choices = [choices[number] for number in rows.tolist()]
    compared = present[rows].sum(axis=0) >= 2
    scores, cases = scores[rows][:, compared], int(compared.sum())
    units = None if units is None else units[compared]
    document: AttributionDocument = {**_nothing(metric), "cases": cases, "missing": int(np.isnan(scores).sum())}
    factors = varied_factors(choices, grids or {})
    reason = _untellable(scores, choices, factors, metric)
    if reason is not None:
        return _untold(document, reason)
    some = missing and missing.part(rows.tolist(), compared)
    pairs = None if some is None else Pairs(scores, some, ends, units=units, seed=seed)
    lost = None if pairs is None else _lost(pairs, better)
    codes, span = level_codes(factors), span_of(ends)
    fitted = fit(scores, codes, seed, units, lost, span)
    document["nodes"] = sorted(
        (_factor(effect, factors) for effect in fitted.factors), key=lambda effect: -effect["share"]
    )
    document["interactions"] = sorted(
        (_pair(effect, factors) for effect in fitted.pairs), key=lambda effect: -effect["share"]
    )
    if fitted.apart:
        family = fitted.families[0] / len(fitted.apart)
        document["simple"] = single_changes(scores, factors, fitted.apart, seed, units, family, pairs)
    document["unexplained"], document["unexplained_p"] = fitted.unexplained, fitted.unexplained_p
    if fitted.aliased:
        document["aliased"] = [[factors[number].name for number in group] for group in fitted.aliased]
    if fitted.left_out:
        document["pairs"] = {"candidates": fitted.candidates, "tested": len(fitted.pairs)}
    names = dict(zip((factor.name for factor in factors), short_names(factors), strict=True))
    changed = {effect.get("factor", effect["node"]) for effect in document.get("simple", [])}
    apart = [factors[number].name for number in fitted.apart]
    reasons = _reasons(fitted, [names[factor.name] for factor in factors])
    if hidden := [names[name] for name in apart if name not in changed]:
        reasons.append(f"there are too few combinations to tell what {' and '.join(hidden)} do by themselves")
    document["because"] = f"cannot tell all: {'; '.join(reasons)}" if reasons else None
    hanging = _hanging(fitted, fit(scores, codes, seed, units, span=span)) if lost else []
    document["sentences"] = effect_sentences(
        document,
        names,
        [name for name in apart if name in changed],
        [[factors[number].name for number in group] for group in hanging],
        0 if some is None else int(some.total.sum()),
    )
    return document


def _hanging(fitted: Fit, without: Fit) -> list[tuple[int, ...]]:
    """Return the factors and pairs that would be clear without missing cells at their worst."""
    clear = {effect.factors for effect in [*without.factors, *without.pairs] if effect.p_adjusted < SIGNIFICANT}
    return [
        effect.factors
        for effect in [*fitted.factors, *fitted.pairs]
        if effect.factors in clear and effect.p_adjusted >= SIGNIFICANT
    ]


def _lost(pairs: Pairs, better: Better) -> LostCells | None:
    """Return the missing cells of a table of pairs, as parts of cells; None if there are none."""
    missing = pairs.missing
    if not missing.total.any():
        return None
    each = np.maximum(missing.total + missing.behind, 1)
    return LostCells({reason: (counts / each).T for reason, counts in missing.reasons.items()}, pairs.scale, better)


def unattributed(metric: str, because: str) -> AttributionDocument:
    """The same document where effects are not to be told: they would not hold for whoever looks again and again."""
    return _untold(_nothing(metric), f"{because}, and effects are shown at its end")


def _nothing(metric: str) -> AttributionDocument:
    return {
        "metric": metric,
        "cases": 0,
        "missing": 0,
        "nodes": [],
        "interactions": [],
        "unexplained": None,
        "unexplained_p": None,
        "sentences": [],
        "because": None,
    }


def _untold(document: AttributionDocument, reason: str) -> AttributionDocument:
    return {**document, "because": f"cannot tell: {reason}", "sentences": [f"Cannot tell: {reason}."]}


def _untellable(
    scores: Floats, choices: list[dict[str, str]], factors: Sequence[VariedFactor], metric: str
) -> str | None:
    if not choices:
        return f"nothing is scored by {metric}"
    if not factors:
        return f"only one combination is scored by {metric}"
    if scores.shape[1] < 2:
        cases = "one case has" if scores.shape[1] else "no case has"
        return f"{cases} scores by {metric} of several combinations"
    is_same = bool((np.nanmax(scores, axis=0) == np.nanmin(scores, axis=0)).all())
    if is_same or (np.isfinite(scores).all() and is_constant(scores.mean(axis=1))):
        return f"all combinations have the same mean by {metric}"
    return None


def _reasons(fitted: Fit, names: Sequence[str]) -> list[str]:
    """Return why not all can be told."""
    reasons = [
        f"the combinations do not tell apart what comes from {' and '.join(names[number] for number in group)}"
        for group in fitted.aliased
    ]
    if fitted.untold:
        some = ", ".join(f"{names[a]} x {names[b]}" for a, b in fitted.untold[:_NAMED])
        more = f" and {len(fitted.untold) - _NAMED} more pairs" if len(fitted.untold) > _NAMED else ""
        reasons.append(f"there are too few combinations to tell how {some}{more} act together")
    return reasons


def _factor(effects: Effects, factors: Sequence[VariedFactor]) -> NodeEffect:
    factor = factors[effects.factors[0]]
    document: NodeEffect = {
        "node": factor.node,
        "share": effects.share,
        "p": effects.p,
        "p_adjusted": effects.p_adjusted,
        "variants": [
            {"variant": factor.levels[level], "effect": mean, "ci": _interval(ci)}
            for (level,), mean, ci in zip(effects.cells, effects.means.tolist(), effects.ci.tolist(), strict=True)
        ],
    }
    if factor.is_parameter:
        document["factor"] = factor.name
    if factor.within is not None:
        document["within"] = list(factor.within)
    if factor.brings:
        document["brings"] = {level: list(names) for level, names in factor.brings.items()}
    return document


def _pair(effects: Effects, factors: Sequence[VariedFactor]) -> InteractionEffect:
    both = [factors[number] for number in effects.factors]
    sizes = np.abs(effects.means)
    if effects.p_adjusted < SIGNIFICANT:  # of those whose interval excludes 0, so that p and interval agree
        sizes = np.where((effects.ci[:, 0] <= 0) & (effects.ci[:, 1] >= 0), 0.0, sizes)
    strongest = int(np.argmax(sizes))
    document: InteractionEffect = {
        "nodes": [factor.node for factor in both],
        "share": effects.share,
        "p": effects.p,
        "p_adjusted": effects.p_adjusted,
        "strongest": {
            "variants": [factor.levels[level] for factor, level in zip(both, effects.cells[strongest], strict=True)],
            "effect": float(effects.means[strongest]),
            "ci": _interval(effects.ci[strongest].tolist()),
        },
    }
    if any(factor.is_parameter for factor in both):
        document["factors"] = [factor.name for factor in both]
    return document


def _interval(ends: list[float]) -> list[float] | None:
    return None if np.isnan(ends[0]) else ends


def pairwise(scored: Scores, metric: str, limit: int = 12) -> PairsDocument:
    """Paired differences between any two of the `limit` best rows by `metric` and the baseline.

    {"rows": numbers of rows, best first, "pairs": [{"a", "b", "n_pairs", "delta", "delta_ci", "p", "p_adjusted"}]}; a
    and b are numbers of rows, delta is a less b, and p is corrected (Holm) over all pairs of the document.
    """
    table = scored.planned_table(metric)
    scores = cleaned(table.scores)
    measure = scored.measures.get(metric, Measure())
    costs = means(scores) * (1 if measure.better == "lower" else -1)
    ranked = [row for row in np.argsort(costs, kind="stable").tolist() if np.isfinite(costs[row])]
    rows = ranked[:limit] + [row for row in ranked[limit:] if row == scored.baseline]
    pairs = list(itertools.combinations(rows, 2))
    if not pairs:
        return {"rows": rows, "pairs": []}
    first, second = (scores[[pair[side] for pair in pairs]] for side in (0, 1))
    by = measure.compare
    passing = passes(scores, measure.better) & (by == "mean" and measure.figure is None)
    rates = np.array([passing[a] and passing[b] for a, b in pairs])
    tested = paired_tests(subtract(first, second), seed=scored.seed, rates=rates, compare=by, units=table.units)
    adjusted = holm(np.array([np.nan if test.p is None else test.p for test in tested])).tolist()
    return {
        "rows": rows,
        "pairs": [
            {
                "a": a,
                "b": b,
                "n_pairs": test.n,
                "delta": test.delta,
                "delta_ci": None if test.ci is None else list(test.ci),
                "p": test.p,
                "p_adjusted": None if test.p is None else corrected,
            }
            for (a, b), test, corrected in zip(pairs, tested, adjusted, strict=True)
        ],
    }
