"""Reasons for the verdict of a comparison, as sentences. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from wtb.analysis.comparison.verdicts import BETTER, CANNOT_TELL, NOT_WORSE, UNCLEAR, WORSE
from wtb.analysis.statistics.claims import SIGNIFICANT
from wtb.core.frozen import frozen
from wtb.core.scoring.failure_scores import hangs_on
from wtb.core.texts import plural
from wtb.core.tree.combinations import in_words

if TYPE_CHECKING:
    from wtb.core.documents.comparison import (
        ChangesDocument,
        ComparedPool,
        ComparedRow,
        ComparisonDocument,
        ContrastFigures,
        OutcomeFigures,
    )


POOLS = 3  # that are told of one metric, the surest first
CAUSES = 3  # changes of code that are named


@frozen
class Facts:
    """The facts of a comparison that its sentences use.

    Attributes:
        rows: Rows of the comparison's document.
        pools: Pools of the comparison's document.
        metrics: Metric -> direction, for the metrics of both sweeps.
        primary: The deciding metric.
        cells: How many cells are compared.
        later: How many cells the later sweep has.
        missing: How many cells have no outcome in the earlier sweep, and in the later.
        unpaired: How many failed cells of the later sweep are compared with nothing.
        unscored: How many scores failed that did not before.
        changed: The changes between the sweeps.
        unknown: Metrics with a margin that not both sweeps have.
        stopped: For each sweep that did not end as planned, how it ended.
        lost_shares: The largest share of a combination's cells lost to a provider, in the earlier and later sweep.
    """

    rows: Sequence[ComparedRow]
    pools: Sequence[ComparedPool]
    metrics: Mapping[str, str]
    primary: str | None
    cells: int
    later: int
    missing: tuple[int, int]
    unpaired: int
    unscored: int
    changed: ChangesDocument
    unknown: Sequence[str] = ()
    stopped: Sequence[str] = ()
    lost_shares: tuple[float, float] = (0.0, 0.0)


def sentences(facts: Facts) -> list[str]:
    """Return the reasons, worst first; empty if nothing differs and nothing is left out."""
    deciding = [name for name in facts.metrics if any(row["metrics"][name]["decides"] for row in facts.rows)]
    exploratory = [name for name in facts.metrics if name not in deciding]
    return [
        *(
            f"{sentence}: tests are not valid for a sweep that may have been stopped because of its results"
            for sentence in facts.stopped
        ),
        *_lost_to_provider(facts),
        *_nothing_in_common(facts),
        *_failing(facts),
        *(sentence for name in deciding for sentence in _worse(facts, name)),
        *_cells_without_verdict(facts),
        *(sentence for name in deciding for sentence in _not_worse(facts, name)),
        *(
            f"exploratory: {sentence}"
            for name in exploratory
            for sentence in (*_worse(facts, name), *_not_worse(facts, name, briefly=True))
        ),
        *_left_out(facts),
    ]


def origins(document: ComparisonDocument) -> list[str]:
    """Return where a loss may come from: the node at which most cells first differ, and the code that changed."""
    worse = [cell for cell in document["cells"] if cell["what"] in ("failed", "worse") and cell["diverged"]]
    reasons = []
    if worse:
        ((node, count),) = Counter(cell["diverged"] for cell in worse).most_common(1)
        share = "" if count == len(worse) else f" in {count} of {len(worse)} cells"
        reasons.append(f"first differs at {node}{share}")
    code = document["changed"]["code"]
    causes = dict.fromkeys(cause for change in code for cause in change.get("causes", ()))
    changed = list(causes) or [f"code of {change['node']}={change['variant']} changed" for change in code]
    if changed:
        more = f" and {len(changed) - CAUSES} more" if len(changed) > CAUSES else ""
        reasons.append(f"{', '.join(changed[:CAUSES])}{more}")
    return reasons


def _lost_to_provider(facts: Facts) -> Iterator[str]:
    for side, share in zip(("earlier", "later"), facts.lost_shares, strict=True):
        if share:
            which = "cells" if len(facts.rows) == 1 else "cells of one combination"
            yield f"{share:.0%} of {which} lost to the provider in the {side} sweep"


def _nothing_in_common(facts: Facts) -> Iterator[str]:
    cases = facts.changed["cases"]
    if not facts.changed["combinations"]["common"]:
        yield "the two sweeps have no combination in common"
    if not cases["common"]:
        yield "the two sweeps have no case in common"
    elif len(cases["changed"]) == cases["common"]:
        yield "every case that both sweeps have was changed"
    if facts.changed["metrics"]["removed"] and not facts.metrics:
        yield "the two sweeps have no metric in common"
    elif facts.primary is not None and facts.primary not in facts.metrics:
        yield f"not both sweeps are scored by {facts.primary}, which decides"
    if 0 < facts.cells < facts.later / 2:
        yield f"{facts.later - facts.cells:,} of {plural(facts.later, 'cell')} are compared with nothing"


def _failing(facts: Facts) -> Iterator[str]:
    """Yield sentences on newly failing cells and scores, and whether that could be chance."""
    failed = sum(row["cells"]["newly_failed"] for row in facts.rows) - facts.unscored
    # A loss may be shown by a pool of rows although no single row shows it.
    parts = [row["cells"] for row in (*facts.rows, *facts.pools)]
    worse = [part for part in parts if part["verdict"] == WORSE]
    why = _chance_of(worse) if worse else "could be chance"
    if failed:
        yield f"{plural(failed, 'cell')} that succeeded {'fails' if failed == 1 else 'fail'} now ({why})"
    if facts.unscored:
        were = "was" if facts.unscored == 1 else "were"
        yield f"{plural(facts.unscored, 'score')} failed that {were} there before ({why})"


def _chance_of(worse: Sequence[OutcomeFigures]) -> str:
    least = min(worse, key=lambda figures: 1.0 if figures["p_worse"] is None else figures["p_worse"])
    return least["because"] or chance(least["p_worse"])


def _worse(facts: Facts, metric: str) -> Iterator[str]:
    """Yield sentences on where a metric got worse: in which combinations, and over which pools."""
    fell = direction(facts.metrics[metric], worse=True)
    fallen = [row for row in facts.rows if row["metrics"][metric]["verdict"] == WORSE]
    if fallen:
        row = max(fallen, key=lambda figures: abs(figures["metrics"][metric]["delta"] or 0.0))
        figures = row["metrics"][metric]
        before, after = (figure(end or 0.0, figures["delta"]) for end in (figures["before"], figures["after"]))
        loss = f"by {figure(abs(figures['delta'] or 0.0))}, from {before} to {after}"
        why = figures["because"] or chance(figures["p_worse"])
        if len(fallen) == 1:
            yield f"{metric} of {in_words(row['combination'])} {fell} {loss} ({why})"
        else:
            where = f"{len(fallen):,} of {plural(len(facts.rows), 'combination')}"
            yield f"{metric} {fell} in {where}, most in {in_words(row['combination'])}: {loss} ({why})"
    # Where any fall counts, that of a pool is one of its rows, of which all is said.
    pools = [pool for pool in facts.pools if pool["metrics"][metric]["verdict"] == WORSE]
    pools = [pool for pool in pools if not pool["metrics"][metric]["because"]]
    for pool in sorted(pools, key=lambda pool: pool["metrics"][metric]["p_worse"] or 0.0)[:POOLS]:
        figures = pool["metrics"][metric]
        why = _bound(figures, facts.metrics[metric]) + chance(figures["p_worse"])
        yield f"{metric} {fell} by {figure(abs(figures['delta'] or 0.0))} ({why}) over {pool['what']}"


def _bound(figures: ContrastFigures, better: str) -> str:
    """Return the 95% bound of the loss: a lower bound, or an upper one if lower is better."""
    if figures["gain_low"] is None:
        return ""
    side, end = ("lower", figures["gain_low"]) if better == "higher" else ("upper", -figures["gain_low"])
    return f"95% {side} bound {figure(end)}, "


def _cells_without_verdict(facts: Facts) -> Iterator[str]:
    nothing = sum(row["verdict"] == CANNOT_TELL and not row["metrics"] for row in facts.rows)
    if nothing and facts.cells:
        yield f"in {plural(nothing, 'combination')} no cell succeeded in both sweeps"
    if facts.unpaired:
        yield f"{plural(facts.unpaired, 'cell')} that fail{'s' if facts.unpaired == 1 else ''} cannot be compared"
    fixed = sum(row["cells"]["fixed"] for row in facts.rows)
    if fixed:
        yield f"{plural(fixed, 'cell')} that failed {'succeeds' if fixed == 1 else 'succeed'} now"


def _not_worse(facts: Facts, metric: str, *, briefly: bool = False) -> Iterator[str]:
    """Yield sentences on one metric where it is not worse: counts of combinations by verdict, and pools."""
    if not facts.cells:
        return
    figures = [row["metrics"][metric] for row in facts.rows]
    rose = direction(facts.metrics[metric], worse=False)
    phrases = {BETTER: f"{rose} in", NOT_WORSE: "is not worse in", CANNOT_TELL: "cannot be compared in"}
    for verdict, phrase in phrases.items():
        kind = [row_figures for row_figures in figures if row_figures["verdict"] == verdict]
        if kind:
            more = f": it lost less than its margin of {kind[0]['margin']:g} (5% error)" if verdict == NOT_WORSE else ""
            yield f"{metric} {phrase} {plural(len(kind), 'combination')}{more}"
    yield from _not_claimed(figures, metric, briefly=briefly)
    unclear = [row_figures for row_figures in figures if row_figures["verdict"] == UNCLEAR]
    unclear = [each for each in unclear if not (each.get("hangs_on") or each.get("unseen_one_in"))]
    if unclear:
        where = plural(len(unclear), "combination")
        yield f"{metric} differs in {where} by what could be chance{'' if briefly else _could_show(unclear)}"
    for pool in facts.pools if unclear else ():
        of_pool = pool["metrics"][metric]
        if of_pool["verdict"] == BETTER:
            gain = figure(abs(of_pool["delta"] or 0.0))
            yield f"{metric} {rose} by {gain} ({chance(of_pool['p_better'])}) over {pool['what']}"
        elif of_pool["verdict"] == NOT_WORSE:
            yield f"{metric} lost less than its margin of {of_pool['margin']:g} (5% error) over {pool['what']}"


def _not_claimed(figures: Sequence[ContrastFigures], metric: str, *, briefly: bool) -> Iterator[str]:
    """Yield reasons why differences of one metric are not claimed, or are less certain."""
    unclear = [row_figures for row_figures in figures if row_figures["verdict"] == UNCLEAR]
    counts = [count for row_figures in unclear if (count := row_figures.get("hangs_on"))]
    if counts:
        yield f"{metric} in {plural(len(counts), 'combination')} {hangs_on(sum(counts))}: run these again"
    cancelled = [row_figures for row_figures in unclear if row_figures.get("unseen_one_in")]
    if cancelled:
        yield f"{metric} in {plural(len(cancelled), 'combination')}: {cancelled[0]['because']}"
    uneven = sum(bool(row_figures.get("uneven")) for row_figures in figures)
    if uneven and not briefly:
        yield f"few cases make much of the difference of {metric} in {plural(uneven, 'combination')}: p is less sure"


def _could_show(unclear: Sequence[ContrastFigures]) -> str:
    """Return the margin that so many cases could have shown, and how many would suffice."""
    cases = max(figures["n_pairs"] for figures in unclear)
    widest = max((figures["margin_shown"] for figures in unclear if figures["margin_shown"] is not None), default=None)
    if widest is None:
        return f": {plural(cases, 'case')} can show no more" if cases < 2 else ""
    margin = unclear[0]["margin"]
    text = f": {plural(cases, 'case')} can show that it lost less than {figure(widest)}"
    needed = max((figures["cases_needed"] or 0 for figures in unclear), default=0)
    if margin and needed:
        return f"{text}; its margin of {margin:g} takes about {needed:,}, so {needed - cases:,} more"
    return f"{text}, and no less" if margin is None else text


def _left_out(facts: Facts) -> Iterator[str]:
    combinations, cases = facts.changed["combinations"], facts.changed["cases"]
    for side, some, ids in (
        ("later", combinations["added"], cases["added"]),
        ("earlier", combinations["removed"], cases["removed"]),
    ):
        parts = [plural(count, noun) for count, noun in ((some, "combination"), (len(ids), "case")) if count]
        if parts:
            yield f"left out: {' and '.join(parts)} of the {side} sweep only"
    if cases["changed"]:
        yield f"left out: {plural(len(cases['changed']), 'case')} of which the input or what is expected was changed"
    for side, count in zip(("earlier", "later"), facts.missing, strict=True):
        if count:
            yield f"left out: {plural(count, 'cell')} without an outcome in the {side} sweep"
    metrics = facts.changed["metrics"]
    for side, names in (("earlier", metrics["removed"]), ("later", metrics["added"])):
        if names:
            yield f"only the {side} sweep is scored by {', '.join(names)}"
    if facts.unknown:
        yield f"a margin is given for {', '.join(facts.unknown)}, by which not both sweeps are scored"


def direction(better: str, *, worse: bool) -> str:
    """Return the direction of a change: `rose` or `fell`."""
    return "fell" if (better == "higher") == worse else "rose"


def chance(p: float | None) -> str:
    """Return a p-value as text."""
    if p is None:
        return "untested"
    if p < 0.001:
        return "p < 0.001"
    # Three digits below 5%, or 0.046 would be shown as if it were not significant.
    return f"p = {p:.3f}" if p < SIGNIFICANT else f"p = {p:.2f}"


def figure(number: float, difference: float | None = None) -> str:
    """Format a value with four significant figures, or with enough that a difference from it is visible."""
    smallest = min(abs(number), abs(difference)) if difference else abs(number)
    if not 1e-6 <= smallest <= abs(number) < 1e15:
        return f"{number:.4g}"
    digits = 3 - math.floor(math.log10(abs(number)))
    if difference:
        digits = max(digits, 1 - math.floor(math.log10(smallest)))
    return f"{number:,.{max(0, digits)}f}".rstrip("0").rstrip(".") if digits > 0 else f"{number:,.0f}"
