"""What makes the difference, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wtb.analysis.statistics.missing.claims import SIGNIFICANT
from wtb.analysis.statistics.power.pairs import PAIRS
from wtb.core.scoring.missing_words import hangs_on
from wtb.core.texts import listed_names

if TYPE_CHECKING:
    from wtb.core.documents.report import AttributionDocument, InteractionEffect, NodeEffect, SimpleEffect

MAJORITY = 0.5
_WORTH_TELLING = 0.1  # of what is left unexplained
_NAMED = 3  # single changes, of many that are more than chance


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
    if document["cases"] < PAIRS:
        return [f"{cases} cannot tell what makes a difference by {metric}, whatever they show."]
    factors = [effect for effect in document["nodes"] if effect["p_adjusted"] < SIGNIFICANT]
    pairs = [effect for effect in document["interactions"] if effect["p_adjusted"] < SIGNIFICANT]
    simple = [effect for effect in document.get("simple", []) if _is_clear(effect)]
    is_listed = len(factors) + len(pairs) > 1 and bool(factors)
    sentences = [_list(factors, pairs, metric, names)] if is_listed else []
    sentences += _simple(simple, metric, names)
    sentences += [_factor(effect, metric, names, is_listed=is_listed) for effect in factors]
    changed = {factor_of(effect) for effect in simple}
    quiet = [factor_of(effect) for effect in document["nodes"] if effect["p_adjusted"] >= SIGNIFICANT]
    quiet = [name for name in quiet if [name] not in hanging]
    quiet += [name for name in silent if name not in changed]
    if quiet:
        verb = "makes" if len(quiet) == 1 else "make"
        quiet_names = listed_names([names[name] for name in quiet])
        sentences.append(f"{quiet_names} {verb} no difference by {metric} that {cases} can show.")
    sentences += [_brings(effect, names) for effect in document["nodes"] if "brings" in effect]
    sentences += [_pair(effect, names) for effect in pairs]
    sentences += [_hanging(group, metric, missing, names) for group in hanging]
    if document["interactions"] and not pairs and all(len(group) == 1 for group in hanging):
        two = "nodes" if all("factors" not in effect for effect in document["interactions"]) else "factors"
        sentences.append(f"No two {two} act together by {metric} in a way that {cases} can show.")
    return sentences + _rest(document)


def _hanging(factors: Sequence[str], metric: str, missing: int, names: Mapping[str, str]) -> str:
    what = " x ".join(names[name] for name in factors)
    return f"The effect of {what} by {metric} {hangs_on(missing)}, and is not claimed."


def factor_of(effect: NodeEffect | SimpleEffect) -> str:
    """Return the name of the factor of an effect: of a parameter, or of the node."""
    return effect.get("factor", effect["node"])


def factors_of_pair(effect: InteractionEffect) -> list[str]:
    """Return the names of the two factors of an interaction."""
    return effect.get("factors", effect["nodes"])


def percent(share: float) -> str:
    """Write a share so that it is neither 0% nor 100% unless it is so."""
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


def _factor(effect: NodeEffect, metric: str, names: Mapping[str, str], *, is_listed: bool) -> str:
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
    """Write what is nested in a factor, whose effect therefore is not of its level alone."""
    name = names[factor_of(effect)]
    levels: dict[tuple[str, ...], list[str]] = {}
    for level, nested in effect.get("brings", {}).items():
        levels.setdefault(tuple(names.get(parameter, parameter) for parameter in nested), []).append(f"{name}={level}")
    parts = "; ".join(f"{listed_names(nested)} in {listed_names(some)}" for nested, some in levels.items())
    return f"Nested in {name}: {parts}. A level of {name} includes the middle of what is nested in it."


def _simple(effects: Sequence[SimpleEffect], metric: str, names: Mapping[str, str]) -> list[str]:
    """Write what single changes do, the largest first if there are many, with what stands beside them."""
    largest = effects if len(effects) <= _NAMED else sorted(effects, key=lambda effect: -abs(effect["effect"]))[:_NAMED]
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


def _pair(effect: InteractionEffect, names: Mapping[str, str]) -> str:
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
