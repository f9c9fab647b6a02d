"""Effects: main effects of factors, pairs that interact, pairwise differences of rows, and all of them as sentences.

`attribute` and `pairwise` read the scores of a sweep by one metric; their documents are part of the evidence.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from wtb.analysis.matrix.single_changes import (
    GridLevels,
    VariedFactor,
    level_codes,
    short_names,
    single_changes,
    varied_factors,
)
from wtb.analysis.scores import Scores
from wtb.analysis.statistics.claims import SIGNIFICANT, MissingCells, Pairs, span_of
from wtb.analysis.statistics.comparing import Better, Design, passes
from wtb.analysis.statistics.effect_tests import LostCells
from wtb.analysis.statistics.factor_effects import Effects, Fit, fit
from wtb.analysis.statistics.intervals import Floats, Interval, Units, is_constant
from wtb.analysis.statistics.paired import cleaned, holm, means, paired_tests, subtract
from wtb.analysis.statistics.power import PAIRS
from wtb.core.scoring.failure_scores import hangs_on
from wtb.core.scoring.measure import Measure
from wtb.core.texts import listed_names

if TYPE_CHECKING:
    from wtb.core.documents.report import (
        AttributionDocument,
        InteractionEffect,
        NodeEffect,
        PairsDocument,
        SimpleEffect,
    )

MAJORITY = 0.5
_WORTH_TELLING = 0.1  # of what is left unexplained
_MOST = 3  # single changes, of many that are more than chance


def effect_sentences(
    document: AttributionDocument,
    names: Mapping[str, str],
    silent: Sequence[str],
    hanging: Sequence[Sequence[str]] = (),
    missing: int = 0,
) -> list[str]:
    """Describe effects.

    Args:
        document: The effects.
        names: Names of factors as sentences write them.
        silent: Factors that have no effect of their own to tell.
        hanging: Factors, and pairs of them, that would have a clear effect without missing cells at their worst.
        missing: How many cells are missing.
    """
    metric, cases = document["metric"], f"{document['cases']:,} cases"
    # With fewer cases no sign-flip test can reach 5%, so "no difference" would be empty.
    if document["cases"] < PAIRS:
        return [f"{cases} are too few to show what makes a difference by {metric}, whatever they show."]
    factors = [effect for effect in document["nodes"] if effect["p_adjusted"] < SIGNIFICANT]
    pairs = [effect for effect in document["interactions"] if effect["p_adjusted"] < SIGNIFICANT]
    simple = [effect for effect in document.get("simple", []) if _is_clear(effect)]
    is_listed = len(factors) + len(pairs) > 1 and bool(factors)
    sentences = [_list(factors, pairs, metric, names)] if is_listed else []
    sentences += _simple(simple, metric, names)
    sentences += [_factor_sentence(effect, metric, names, is_listed=is_listed) for effect in factors]
    changed = {factor_of(effect) for effect in simple}
    quiet = [factor_of(effect) for effect in document["nodes"] if effect["p_adjusted"] >= SIGNIFICANT]
    quiet = [name for name in quiet if [name] not in hanging]
    quiet += [name for name in silent if name not in changed]
    if quiet:
        verb = "makes" if len(quiet) == 1 else "make"
        quiet_names = listed_names([names[name] for name in quiet])
        sentences.append(f"{quiet_names} {verb} no difference by {metric} that {cases} can show.")
    sentences += [_brings(effect, names) for effect in document["nodes"] if "brings" in effect]
    sentences += [_pair_sentence(effect, names) for effect in pairs]
    sentences += [_hanging_sentence(group, metric, missing, names) for group in hanging]
    # "No two nodes act together" would contradict a pair whose effect depends on missing cells.
    if document["interactions"] and not pairs and all(len(group) == 1 for group in hanging):
        two = "nodes" if all("factors" not in effect for effect in document["interactions"]) else "factors"
        sentences.append(f"No two {two} act together by {metric} in a way that {cases} can show.")
    return sentences + _rest(document)


def _hanging_sentence(factors: Sequence[str], metric: str, missing: int, names: Mapping[str, str]) -> str:
    what = " x ".join(names[name] for name in factors)
    return f"The effect of {what} by {metric} {hangs_on(missing)}, and is not claimed."


def factor_of(effect: NodeEffect | SimpleEffect) -> str:
    """Return the name of the factor of an effect: of a parameter, or of the node."""
    return effect.get("factor", effect["node"])


def factors_of_pair(effect: InteractionEffect) -> list[str]:
    """Return the names of the two factors of an interaction."""
    return effect.get("factors", effect["nodes"])


def percent(share: float) -> str:
    """Format a share so that it is 0% or 100% only if it is exactly that."""
    if 0 < share < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= share < 1 - 1e-9 else f"{share:.0%}"


def _is_clear(effect: SimpleEffect) -> bool:
    return effect["p_adjusted"] is not None and effect["p_adjusted"] < SIGNIFICANT


def _list(
    factors: Sequence[NodeEffect], pairs: Sequence[InteractionEffect], metric: str, names: Mapping[str, str]
) -> str:
    """Write all shares in one sentence, the largest first."""
    shares = [(effect["share"], names[factor_of(effect)]) for effect in factors]
    shares += [(effect["share"], " x ".join(names[name] for name in factors_of_pair(effect))) for effect in pairs]
    (share, first), *smaller = sorted(shares, key=lambda named_share: -named_share[0])
    more = "".join(f", {name} {percent(share)}" for share, name in smaller)
    return f"{first} explains {percent(share)} of the spread by {metric}{more}."


def _factor_sentence(effect: NodeEffect, metric: str, names: Mapping[str, str], *, is_listed: bool) -> str:
    """Write the best and the worst level, and the share unless it is written already."""
    ranked = sorted(effect["variants"], key=lambda level: -level["effect"])
    high, low = (f"{level['variant']} {level['effect']:+.3g}" for level in (ranked[0], ranked[-1]))
    name = names[factor_of(effect)]
    if "within" in effect:
        name += f" (only in {len(effect['within'])} variants of {effect['node']})"
    if is_listed:
        return f"{name}: {high}, {low}."
    much = f"{percent(effect['share'])} of the spread by {metric}"
    much = f"most of the spread by {metric} ({percent(effect['share'])})" if effect["share"] > MAJORITY else much
    return f"{name} explains {much}: {high}, {low}."


def _brings(effect: NodeEffect, names: Mapping[str, str]) -> str:
    """Name the parameters nested in a factor, whose effect is therefore not that of its level alone."""
    name = names[factor_of(effect)]
    levels: dict[tuple[str, ...], list[str]] = {}
    for level, nested in effect.get("brings", {}).items():
        levels.setdefault(tuple(names.get(parameter, parameter) for parameter in nested), []).append(f"{name}={level}")
    parts = "; ".join(f"{listed_names(nested)} in {listed_names(some)}" for nested, some in levels.items())
    return f"Nested in {name}: {parts}. A level of {name} includes the middle of what is nested in it."


def _simple(effects: Sequence[SimpleEffect], metric: str, names: Mapping[str, str]) -> list[str]:
    """Describe the effects of single changes, the largest if there are many, with the other levels."""
    largest = effects if len(effects) <= _MOST else sorted(effects, key=lambda effect: -abs(effect["effect"]))[:_MOST]
    sentences = []
    for effect in largest:
        beside = " and ".join(f"{names[name]}={level}" for name, level in effect["beside"].items())
        gains = f"{'gains' if effect['effect'] > 0 else 'loses'} {abs(effect['effect']):.3g} by {metric}"
        sentences.append(
            f"With {beside}, {names[factor_of(effect)]}={effect['variant']} {gains} over {effect['over']}."
        )
    if len(effects) > len(largest):
        sentences.append(f"{len(effects) - len(largest)} more single changes make a difference by {metric}.")
    return sentences


def _pair_sentence(effect: InteractionEffect, names: Mapping[str, str]) -> str:
    both = [names[name] for name in factors_of_pair(effect)]
    levels = " with ".join(f"{n}={v}" for n, v in zip(both, effect["strongest"]["variants"], strict=True))
    return (
        f"{' and '.join(both)} act together ({percent(effect['share'])} of the spread): {levels} is "
        f"{effect['strongest']['effect']:+.3g} off what both add up to."
    )


def _rest(document: AttributionDocument) -> list[str]:
    sentences = []
    beyond, unexplained = document["unexplained_p"], document["unexplained"]
    if beyond is not None and unexplained is not None and beyond < SIGNIFICANT and unexplained > _WORTH_TELLING:
        single = "single factors" if any("factor" in effect for effect in document["nodes"]) else "single nodes"
        sentences.append(f"{percent(unexplained)} of the spread comes from neither {single} nor these pairs of them.")
    if tested := document.get("pairs"):
        counts = f"{tested['tested']} of {tested['candidates']} pairs are tested"
        sentences.append(f"{counts}: those of the factors that explain most.")
    if document["because"]:
        sentences.append(f"C{document['because'][1:]}.")
    return sentences


_NAMED = 3  # pairs, of many that cannot be distinguished


def attribute(scored: Scores, metric: str) -> AttributionDocument:
    """Return how much of the spread of the combinations' means by `metric` comes from each factor.

    An effect is the distance of a level from the mean of its factor's levels, other factors being equal. A case without
    scores for some combinations compares the others. `because` gives the reason if nothing, or not everything, can be
    estimated. Combinations that somebody stopped are left out, because their results were the reason to stop them.
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
        scores: The scores by one metric, averaged over repeats.
        choices: The variants of each combination by node.
        metric: The name of the metric.
        seed: The seed of the random signs.
        units: The cluster of each case.
        grids: The levels of the variants that are grid points; a node without any is one factor.
        missing: The missing cells; an effect must be significant even at their worst.
        ends: The lowest and the highest possible score.
        better: Whether higher or lower scores are better.
    """
    present = np.isfinite(scores)
    rows = np.flatnonzero(present.any(axis=1))
    choices = [choices[number] for number in rows.tolist()]
    # A case with one score compares nothing, and its mean over combinations would be that score.
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
        reasons.append(f"there are too few combinations to estimate what {' and '.join(hidden)} do by themselves")
    document["because"] = f"cannot tell all: {'; '.join(reasons)}" if reasons else None
    # The second fit runs only if cells are missing, because a fit costs thousands of sign flips.
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
    """Return the factors and pairs that would be significant but for missing cells at their worst."""
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
    """Return a document without effects, because effects are not valid for repeated looks at a running sweep."""
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
    """Return the reasons why not everything can be estimated."""
    reasons = [
        f"the combinations cannot separate the effects of {' and '.join(names[number] for number in group)}"
        for group in fitted.aliased
    ]
    if fitted.untold:
        some = ", ".join(f"{names[a]} x {names[b]}" for a, b in fitted.untold[:_NAMED])
        more = f" and {len(fitted.untold) - _NAMED} more pairs" if len(fitted.untold) > _NAMED else ""
        reasons.append(f"there are too few combinations to estimate how {some}{more} act together")
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
    # The named cell must be significant itself, so that p and the interval agree.
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
    """Return paired differences between any two of the `limit` best rows by `metric` and the baseline.

    Returns:
        {"rows": row numbers, best first, "pairs": [{"a", "b", "n_pairs", "delta", "delta_ci", "p", "p_adjusted"}]}; a
        and b are row numbers, delta is a minus b, and p is corrected (Holm) over all pairs of the document.
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
