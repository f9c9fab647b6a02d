"""What makes the difference: the main effect of each varied node, and which pairs of nodes act together.

`attribute` and `pairwise` read the scores of a sweep by one metric; their documents are part of the evidence.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.scores import Scores
from wtb.analysis.statistics.comparing import passes
from wtb.analysis.statistics.effects import Effects, fit
from wtb.analysis.statistics.intervals import Floats, is_constant
from wtb.analysis.statistics.missing.claims import SIGNIFICANT
from wtb.analysis.statistics.paired import cleaned, holm, means, paired_tests, subtract
from wtb.analysis.statistics.power.pairs import PAIRS
from wtb.analysis.statistics.units import Units
from wtb.core.scoring.measure import Measure

if TYPE_CHECKING:
    from wtb.core.documents.report import (
        AttributionDocument,
        InteractionEffect,
        NodeEffect,
        PairsDocument,
        SimpleEffect,
    )


MOST = 0.5
_WORTH_TELLING = 0.1  # of what is left unexplained


def attribute(scored: Scores, metric: str) -> AttributionDocument:
    """How much of the spread of the combinations' means by `metric` comes from which node.

    An effect is how far a variant lies from the middle of its node's variants, the others being equal. A case in which
    some combinations have no score compares the others. `because` says in words why nothing, or not all, can be told.
    """
    table = scored.planned_table(metric)
    choices = scored.choices[: scored.planned]
    return attributed(cleaned(table.scores), choices, metric, scored.seed, table.units)


def attributed(
    scores: Floats, choices: list[dict[str, str]], metric: str, seed: int, units: Units = None
) -> AttributionDocument:
    present = np.isfinite(scores)
    kept = np.flatnonzero(present.any(axis=1))
    choices = [choices[number] for number in kept.tolist()]
    compared = present[kept].sum(axis=0) >= 2
    scores, cases = scores[kept][:, compared], int(compared.sum())
    units = None if units is None else units[compared]
    document: AttributionDocument = {**_nothing(metric), "cases": cases, "missing": int(np.isnan(scores).sum())}
    variants = _variants(choices)
    reason = _untellable(scores, choices, variants, metric)
    if reason is not None:
        return _untold(document, reason)
    levels = np.array([[found.index(row[node]) for node, found in variants.items()] for row in choices], dtype=np.int64)
    found = fit(scores, levels, seed, units)
    names = list(variants)
    document["nodes"] = [_node(effects, names, variants) for effects in found.nodes]
    document["nodes"].sort(key=lambda node: -node["share"])
    apart = {names[node] for pair in found.untold if _is_incomplete(levels, pair) for node in pair}
    if apart:
        document["simple"] = _simple(scores, choices, variants, apart, seed, units)
    document["interactions"] = [_interaction(effects, names, variants) for effects in found.pairs]
    document["interactions"].sort(key=lambda pair: -pair["share"])
    document["unexplained"], document["unexplained_p"] = found.unexplained, found.unexplained_p
    reasons = []
    if found.aliased:
        aliased = " and ".join(names[node] for node in found.aliased)
        reasons.append(f"the combinations do not tell apart what comes from {aliased}")
    if found.untold:
        unattributable = ", ".join(f"{names[a]} x {names[b]}" for a, b in found.untold[:3])
        more = f" and {len(found.untold) - 3} more pairs" if len(found.untold) > 3 else ""
        reasons.append(f"there are too few combinations to tell how {unattributable}{more} act together")
    document["because"] = f"cannot tell all: {'; '.join(reasons)}" if reasons else None
    document["sentences"] = _sentences(document)
    return document


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


def _variants(choices: list[dict[str, str]]) -> dict[str, list[str]]:
    """Of the nodes that vary, the variants in the order in which they come."""
    nodes = dict.fromkeys(node for row in choices for node in row)
    found = {node: list(dict.fromkeys(row[node] for row in choices)) for node in nodes}
    return {node: variants for node, variants in found.items() if len(variants) > 1}


def _untellable(
    scores: Floats, choices: list[dict[str, str]], variants: Mapping[str, list[str]], metric: str
) -> str | None:
    if not choices:
        return f"nothing is scored by {metric}"
    if not variants:
        return f"only one combination is scored by {metric}"
    if scores.shape[1] < 2:
        cases = "one case has" if scores.shape[1] else "no case has"
        return f"{cases} scores by {metric} of several combinations"
    is_same = bool((np.nanmax(scores, axis=0) == np.nanmin(scores, axis=0)).all())
    if is_same or (np.isfinite(scores).all() and is_constant(scores.mean(axis=1))):
        return f"all combinations have the same mean by {metric}"
    return None


def _node(effects: Effects, names: list[str], variants: Mapping[str, list[str]]) -> NodeEffect:
    (number,) = effects.factors
    found = zip(variants[names[number]], effects.means.tolist(), effects.ci.tolist(), strict=True)
    return {
        "node": names[number],
        "share": min(effects.share, 1.0),
        "p": effects.p,
        "p_adjusted": effects.p_adjusted,
        "variants": [{"variant": name, "effect": mean, "ci": _interval(ci)} for name, mean, ci in found],
    }


def _is_incomplete(levels: NDArray[np.int64], pair: tuple[int, int]) -> bool:
    """Return whether some variants of two nodes do not occur together."""
    some = levels[:, list(pair)]
    return len(np.unique(some, axis=0)) < int(np.prod(some.max(axis=0) + 1))


def _simple(
    scores: Floats,
    choices: list[dict[str, str]],
    variants: Mapping[str, list[str]],
    apart: Set[str],
    seed: int,
    units: Units,
) -> list[SimpleEffect]:
    """Compare combinations that differ in one of these nodes, each with the first one that has the same others."""
    effects: list[SimpleEffect] = []
    pairs: list[tuple[int, int]] = []
    for node in (node for node in variants if node in apart):
        first: dict[tuple[str, ...], int] = {}
        for number, choice in enumerate(choices):
            beside = {other: choice[other] for other in variants if other != node}
            base = first.setdefault(tuple(beside.values()), number)
            if base != number:
                pairs.append((number, base))
                effects.append(
                    {
                        "node": node,
                        "variant": choice[node],
                        "over": choices[base][node],
                        "beside": beside,
                        "effect": 0.0,
                        "ci": None,
                        "p": None,
                        "p_adjusted": None,
                    }
                )
    if not pairs:
        return []
    rows, bases = (scores[[pair[side] for pair in pairs]] for side in (0, 1))
    rates = passes(rows, "higher") & passes(bases, "higher")
    tested = paired_tests(subtract(rows, bases), seed=seed, rates=rates, units=units)
    adjusted = holm(np.array([np.nan if one.p is None else one.p for one in tested])).tolist()
    for effect, one, corrected in zip(effects, tested, adjusted, strict=True):
        effect["effect"], effect["ci"] = one.delta or 0.0, None if one.ci is None else list(one.ci)
        effect["p"], effect["p_adjusted"] = one.p, None if one.p is None else corrected
    return effects


def _simple_sentences(effects: Sequence[SimpleEffect], metric: str) -> list[str]:
    """What single changes do, of those that are more than chance, with what stands beside them."""
    sentences = []
    for one in effects:
        if one["p_adjusted"] is None or one["p_adjusted"] >= SIGNIFICANT:
            continue
        beside = " and ".join(f"{node}={variant}" for node, variant in one["beside"].items())
        gains = f"{'gains' if one['effect'] > 0 else 'loses'} {abs(one['effect']):.3g} by {metric}"
        sentences.append(f"With {beside}, {one['node']}={one['variant']} {gains} over {one['over']}.")
    return sentences


def _interaction(effects: Effects, names: list[str], variants: Mapping[str, list[str]]) -> InteractionEffect:
    a, b = (names[number] for number in effects.factors)
    strongest = int(np.argmax(np.abs(effects.means)))
    return {
        "nodes": [a, b],
        "share": effects.share,
        "p": effects.p,
        "p_adjusted": effects.p_adjusted,
        "strongest": {
            "variants": list(list(itertools.product(variants[a], variants[b]))[strongest]),
            "effect": float(effects.means[strongest]),
            "ci": _interval(effects.ci[strongest].tolist()),
        },
    }


def _interval(ends: list[float]) -> list[float] | None:
    return None if np.isnan(ends[0]) else ends


def _sentences(document: AttributionDocument) -> list[str]:
    metric, cases = document["metric"], f"{document['cases']:,} cases"
    if document["cases"] < PAIRS:
        return [f"{cases} cannot tell what makes a difference by {metric}, whatever they show."]
    sentences, silent = [], []
    simple = document.get("simple", [])
    apart = {one["node"] for one in simple}
    known = {one["node"] for one in simple if one["p_adjusted"] is not None and one["p_adjusted"] < SIGNIFICANT}
    sentences += _simple_sentences(simple, metric)
    for node in document["nodes"]:
        if node["node"] in known:
            continue
        if node["node"] in apart or node["p_adjusted"] >= SIGNIFICANT:
            silent.append(node["node"])
            continue
        ranked = sorted(node["variants"], key=lambda one: -one["effect"])
        much = f"{_percent(node['share'])} of the spread by {metric}"
        much = f"most of the spread by {metric} ({_percent(node['share'])})" if node["share"] > MOST else much
        high, low = (f"{one['variant']} {one['effect']:+.3g}" for one in (ranked[0], ranked[-1]))
        sentences.append(f"{node['node']} explains {much}: {high}, {low}.")
    if silent:
        verb = "makes" if len(silent) == 1 else "make"
        sentences.append(f"{' and '.join(silent)} {verb} no difference by {metric} that {cases} can show.")
    together = [pair for pair in document["interactions"] if pair["p_adjusted"] < SIGNIFICANT]
    for pair in together:
        with_ = " with ".join(f"{n}={v}" for n, v in zip(pair["nodes"], pair["strongest"]["variants"], strict=True))
        sentences.append(
            f"{' and '.join(pair['nodes'])} act together ({_percent(pair['share'])} of the spread): {with_} is "
            f"{pair['strongest']['effect']:+.3g} off what both add up to."
        )
    if document["interactions"] and not together:
        sentences.append(f"No two nodes act together by {metric} in a way that {cases} can show.")
    beyond, unexplained = document["unexplained_p"], document["unexplained"]
    if beyond is not None and unexplained is not None and beyond < SIGNIFICANT and unexplained > _WORTH_TELLING:
        sentences.append(
            f"{_percent(unexplained)} of the spread comes from neither single nodes nor these pairs of them."
        )
    if document["because"]:
        sentences.append(f"C{document['because'][1:]}.")
    return sentences


def _percent(share: float) -> str:
    if 0 < share < 0.005:
        return "<1%"
    return ">99%" if 0.995 <= share < 1 - 1e-9 else f"{share:.0%}"


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
    adjusted = holm(np.array([np.nan if one.p is None else one.p for one in tested])).tolist()
    return {
        "rows": rows,
        "pairs": [
            {
                "a": a,
                "b": b,
                "n_pairs": one.n,
                "delta": one.delta,
                "delta_ci": None if one.ci is None else list(one.ci),
                "p": one.p,
                "p_adjusted": None if one.p is None else corrected,
            }
            for (a, b), one, corrected in zip(pairs, tested, adjusted, strict=True)
        ],
    }
