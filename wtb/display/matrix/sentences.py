"""What a matrix says in words: the answers, how much of them could be noise, and what it took."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from wtb.core.documents.matrix import is_ranked
from wtb.core.factors.factors import labels_of
from wtb.core.texts import MISSING, money, plural, printable
from wtb.display.matrix import figures, summary

if TYPE_CHECKING:
    from wtb.core.documents.common import CellCounts
    from wtb.core.documents.matrix import (
        BestDocument,
        MatrixDocument,
        MetricEstimate,
        ProviderDocument,
        RowDocument,
        TagRow,
    )


_NAMED_IN_FULL = 4  # with more nodes a sentence names a combination by what sets it apart from the baseline


def left_out(document: MatrixDocument, missing: int) -> str:
    """How many rows are not shown, and the command that shows them; empty if there are none."""
    if not missing:
        return ""
    return f"{missing} more combinations; all: wtb matrix {printable(document['sweep']['id'])} --format csv"


def answers(document: MatrixDocument) -> list[str]:
    """A sentence for each metric; one where there is none because all has failed."""
    cells = document["cells"]
    dead = not cells["succeeded"] and (cells["failed"] or cells["set_aside"])
    return [answer(document, metric) for metric in summary.metric_names(document)] or [unscored(document)] * bool(dead)


def unscored(document: MatrixDocument) -> str:
    """Why no combination can be called best, where there is no metric at all."""
    why = "Nothing was evaluated" if document["cells"]["succeeded"] else "No cell has succeeded"
    return f"{why}, so no combination can be called best."


def answer(document: MatrixDocument, metric: str) -> str:
    """One sentence: which combination is best by the metric, or why none can be named."""
    scored = [row for row in summary.ranked(document, metric) if summary.estimate(row, metric).get("mean") is not None]
    name, best = printable(metric), document["best"].get(metric)
    name += " (exploratory)" if summary.is_exploratory(document, metric) else ""
    if not scored or best is None:
        return f"Nothing is scored by {name}{summary.as_of(document)}."
    if best["combination"] is None:
        name += summary.as_of(document)
        return f"No combination can be called best by {name}: {best['because']}.{_not_ranked(best)}"
    digits = figures.decimals(document, metric)
    leader = _described(document, scored[0], metric, digits)
    if best["clear"]:
        return f"Best by {name}{summary.as_of(document)}: {leader}.{_not_ranked(best)}"
    rival = next((row for row in scored if row["combination"] == best["rival"]), None)
    if rival is None:
        return f"Only one combination is {_placed(document, best)} by {name}: {leader}.{_not_ranked(best)}"
    other = f"{_called(document, rival)} ({figures.number(summary.estimate(rival, metric)['mean'], digits)})"
    some = len(best["candidates"])
    every = "both" if some == 2 else f"all {some:,}"
    ranked_rows = sum(map(is_ranked, scored)) - len(best["unranked"])
    many = f"{every if some == ranked_rows else f'{some:,} of {ranked_rows:,}'} combinations could be best"
    if best["lead"]:
        standing = f"{leader} leads {other}, but {best['because']}"
    else:
        standing = f"{leader} and {other}: {best['because']}"
    standing = f"T{standing[1:]}" if standing.startswith("the baseline") else standing
    then = f"{next_step(document, metric)}{_not_ranked(best)}"
    return f"No clear winner by {name}{summary.as_of(document)}: {many}. {standing}.{then}"


def _placed(document: MatrixDocument, best: BestDocument) -> str:
    """What only one combination is: scored, or ranked where others have scores but are not."""
    are_added = not all(map(is_ranked, document["rows"]))
    return "ranked" if best["unranked"] or are_added else "scored"


def _not_ranked(best: BestDocument, why: str = "a score in less than 95% of the cases") -> str:
    """How many rows are not ranked, and why, as one more sentence."""
    many = len(best["unranked"])
    if not many:
        return ""
    return f" Not ranked: {many:,} with {why}."


def headline(document: MatrixDocument, metric: str) -> str:
    """The answer in a few words: the winner by its name, or that there is none."""
    name, best = printable(metric.rsplit(":")[-1]), document["best"].get(metric)
    first = next((row for row in document["rows"] if summary.is_named_best(document, row, metric)), None)
    if first is None or best is None:
        scored = any(summary.estimate(row, metric).get("mean") is not None for row in document["rows"])
        return f"Nothing can be called best by {name}" if scored else f"Nothing is scored by {name}"
    who = short_name(document, first)
    if best["clear"]:
        return f"{who} is best by {name}"
    if best["rival"] is None:
        return f"Only {who} is {_placed(document, best)} by {name}"
    return f"No clear winner by {name}: {len(best['candidates']):,} could be best"


def short_name(document: MatrixDocument, row: RowDocument, most: int = 48) -> str:
    """A combination by the variants in which it differs from the baseline, or that it is the baseline."""
    baseline, nodes = document["baseline"], summary.shown_nodes(document)
    if summary.is_baseline(document, row) and len(document["rows"]) > 1:
        return "the baseline"
    chosen = {node: summary.label(row, node, MISSING) for node in nodes}
    usual = {} if baseline is None else labels_of(baseline)
    own = {node: variant for node, variant in chosen.items() if usual.get(node) != variant}
    names = [str(variant) if variant != "default" else f"{node}={variant}" for node, variant in (own or chosen).items()]
    text = printable(" · ".join(names)) or "the workflow as it is"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def noise(document: MatrixDocument, metric: str) -> str:
    """How much of the lead of the best could be noise, in words; empty where nothing leads or nothing can be told."""
    best = document["best"].get(metric)
    if best is None:
        return ""
    lead, ci = best["lead"], best["lead_ci"]
    rival = next((row for row in document["rows"] if row["combination"] == best["rival"]), None)
    if not lead or lead < 0 or ci is None or rival is None:
        return ""
    digits = max(figures.decimals(document, metric), 1 - math.floor(math.log10(lead)) if lead < 1e6 else 0)
    low, high, size = (figures.number(value, min(digits, figures.TINY)) for value in (*ci, lead))
    cases = f"{best['n_pairs']:,} {'case' if best['n_pairs'] == 1 else 'cases'}"
    over = f"its lead of {size} over {short_name(document, rival)}"
    if not best["clear"] or ci[0] <= 0:
        sentence = f"How much could be noise: all of {over}"
    else:
        sentence = f"How much could be noise: {figures.number(lead - ci[0], min(digits, figures.TINY))} of {over}"
    return f"{sentence} (95% interval {low} to {high}, {cases}).{_expected_of_winner(document, metric)}"


def _expected_of_winner(document: MatrixDocument, metric: str) -> str:
    """What to expect of the best on new cases, where being chosen for its mean flatters it visibly."""
    best = document["best"][metric]
    winner, digits = best["winner"], figures.decimals(document, metric)
    if winner is None:
        return ""
    shrunken, ci = winner["shrunken"], winner["ci"]
    if shrunken is None or ci is None or figures.number(shrunken, digits) == figures.number(winner["mean"], digits):
        return ""
    expected, mean, low, high = (figures.number(value, digits) for value in (shrunken, winner["mean"], *ci))
    return (
        f" The best of several is partly lucky: on new cases expect about {expected} of it rather than {mean} "
        f"(95% interval {low} to {high})."
    )


def next_step(document: MatrixDocument, metric: str) -> str:
    """Return what would settle which candidate is best, and what is at stake if nothing does, as more sentences."""
    best = document["best"][metric]
    if best["clear"] or best["p"] is None or best.get("hangs_on") or best.get("unseen_one_in"):
        return ""
    return f"{_settled(document, metric)}{_at_stake(document, metric)}"


def _settled(document: MatrixDocument, metric: str) -> str:
    best = document["best"][metric]
    if not best["lead"] or best["lead"] < 0:
        return ""
    digits = max(figures.decimals(document, metric), 1 - math.floor(math.log10(best["lead"])))
    size = figures.number(best["lead"], min(digits, figures.TINY))
    if len(best["candidates"]) == 2:
        real, half = f"If the lead of {size} is real", "half of it"
    else:
        real, half = f"If the leads are real ({size} here)", "half as large"
    if best["cases_needed"] is None:
        return f" {real}, showing it takes more cases than can be run."
    cases, cases_if_half = best["cases_needed"]
    more = "more than can be run" if cases_if_half is None else f"{rounded_up(cases_if_half):,}"
    return f" {real}, about {rounded_up(cases or 0):,} cases settle it (80%); if {half}, {more}."


def _at_stake(document: MatrixDocument, metric: str) -> str:
    best, digits = document["best"][metric], figures.decimals(document, metric)
    if best["differ_at_most"] is None:
        return ""
    rows = [row for row in document["rows"] if row["combination"] in best["candidates"]]
    costs = [row["cost_per_success_usd"] for row in rows]
    known = [cost for cost in costs if cost is not None]
    cheapest = ""
    if len(known) == len(rows) and min(known) < max(known):
        cheapest = f", or the cheapest: {short_name(document, rows[costs.index(min(known))])}"
    if not (apart := best["differ_at_most"]):
        return f" The candidates do not differ: ship any of them{cheapest}."
    digits = max(digits, min(-math.floor(math.log10(apart)), figures.TINY))  # at least one figure that is not 0
    most = figures.number(apart, digits)
    return f" The candidates differ by at most {most}: if that does not matter, ship any of them{cheapest}."


def rounded_up(count: int) -> int:
    """To two figures."""
    step = int(10 ** max(0, len(str(count)) - 2))
    return math.ceil(count / step) * step


def _called(document: MatrixDocument, row: RowDocument) -> str:
    if summary.is_baseline(document, row) and len(document["rows"]) > 1:
        return f"the baseline {summary.combination_name(document, row)}"
    nodes = summary.shown_nodes(document)
    if document["baseline"] is None or len(nodes) <= _NAMED_IN_FULL:
        return summary.combination_name(document, row)
    labels, usual = labels_of(row["combination"]), labels_of(document["baseline"])
    other = (key for key in nodes if key in labels and labels[key] != usual.get(key))
    return "the baseline with " + printable(" ".join(f"{key}={labels[key]}" for key in other))


def _described(document: MatrixDocument, row: RowDocument, metric: str, digits: int) -> str:
    estimate = summary.estimate(row, metric)
    facts = [figures.number(estimate["mean"], digits)]
    delta, p = estimate.get("delta"), estimate.get("p_adjusted")
    if delta:
        facts.append(
            f"{figures.signed(delta, digits)} over" if delta > 0 else f"{figures.number(-delta, digits)} under"
        )
        facts[-1] += " the baseline"
        facts += [] if p is None else [_p(p)]
    most = max(summary.estimate(other, metric).get("n", 0) for other in document["rows"])
    if estimate["n"] < 0.9 * most:
        facts.append(f"scored in {estimate['n']} of {most} cases")
    return f"{_called(document, row)} ({', '.join(facts)})"


def others(cells: CellCounts) -> list[str]:
    """`3 failed`, of each status of cells besides success."""
    return [
        f"{count:,} {status.replace('_', ' ')}"
        for status, count in cells.items()
        if count and status not in ("total", "succeeded")
    ]


def _provider_failures(failures: ProviderDocument) -> str:
    scores = f", {plural(failures['scores'], 'score')} lost" if failures.get("scores") else ""
    attempts = "1 attempt" if failures["attempts"] == 1 else f"{failures['attempts']:,} attempts"
    if not failures["lost"]:
        return f"Provider failures: {attempts}{scores}; no cells were lost."
    cells = "1 cell was" if failures["lost"] == 1 else f"{failures['lost']:,} cells were"
    return f"Provider failures: {attempts}{scores}; {cells} lost ({failures['share']:.1%})."


def totals(document: MatrixDocument) -> list[str]:
    """Sentences on the cells, what sharing saved, and what was spent."""
    cells, runs, cost = document["cells"], document["node_runs"], document["cost"]
    sentences = [", ".join([f"Cells: {cells['succeeded']:,} of {cells['total']:,} succeeded", *others(cells)]) + "."]
    saved = f" ({1 - runs['executed'] / runs['unshared']:.0%} saved)" if runs["unshared"] else ""
    if (failures := document.get("provider")) and (failures["attempts"] or failures.get("scores")):
        sentences.append(_provider_failures(failures))
    sentences.append(f"Node runs: {runs['executed']:,} executed, {runs['unshared']:,} without sharing{saved}.")
    spent = [f"{money(cost['usd'])} spent, {money(cost['unshared_usd'])} without sharing"] if cost["usd"] else []
    if cost.get("unknown"):
        spent = [f"{money(cost['usd'])} recorded, the rest is unknown"]
    if cost["tokens_in"] or cost["tokens_out"]:
        spent.append(f"{cost['tokens_in']:,} tokens in, {cost['tokens_out']:,} out")
    return [*sentences, f"Cost: {'; '.join(spent)}."] if spent else sentences


def closing(document: MatrixDocument) -> list[str]:
    """What stands below a table: totals, what tags say, and where noise comes from."""
    return [*totals(document), *decides(document), *classes(document), *sliced(document), *noise_parts(document)]


def classes(document: MatrixDocument) -> list[str]:
    """How many cases of a class figures over all cells of a row rest on, unless a warning says it already."""
    counted = [metric["classes"] for metric in document["metrics"].values() if "classes" in metric]
    return [f"{printable(one['sentence'])}." for one in counted if one["sentence"] not in document["warnings"]]


def decides(document: MatrixDocument) -> list[str]:
    """Which metric decides where nobody has said so and several could."""
    primary, metrics = document["primary"], summary.metric_names(document)
    rivals = [name for name in metrics if name not in (primary, *summary.LOWER_IS_BETTER)]
    if primary is None or document["primary_named"] or not rivals:
        return []
    return [f"Decided by {printable(primary)} (first evaluator). Change with `primary:` in the sweep file."]


def sliced(document: MatrixDocument) -> list[str]:
    """What differs from the baseline within a tag, the worst first, where the whole does not say the same already."""
    found = document["slices"]
    if not found:
        return []
    metric = found["metric"]
    digits, sign = figures.decimals(document, metric), -1.0 if summary.better(document, metric) == "lower" else 1.0
    differ = [
        (sign * one["delta"], one["p_adjusted"], tag, document["rows"][number], one)
        for tag in found["tags"]
        for number, one in enumerate(tag["rows"])
        if one["delta"] is not None and one["p_adjusted"] is not None
        if differs(one) and not _says_the_same(summary.estimate(document["rows"][number], metric), one)
    ]
    differ.sort(key=lambda each: each[0])
    sentences = [
        f"Of the {tag['cases']:,} cases tagged {printable(tag['tag'])}: {short_name(document, row)} is "
        f"{figures.signed(one['delta'], digits)} from the baseline by {printable(metric)} "
        f"({'better' if gain > 0 else 'worse'}, {_p(p)})."
        for gain, p, tag, row, one in differ[: summary.FEW]
    ]
    more = len(differ) - summary.FEW
    return (
        [*sentences, f"{more:,} more such differences: wtb matrix {document['sweep']['id']} --format json."]
        if more > 0
        else sentences
    )


def differs(found: MetricEstimate | TagRow) -> bool:
    """True if a difference from the baseline is more than chance by its test."""
    return found["p_adjusted"] is not None and bool(found["p_adjusted"] < summary.SIGNIFICANT)


def _says_the_same(whole: MetricEstimate, part: TagRow) -> bool:
    return differs(whole) and ((whole["delta"] or 0) > 0) == ((part["delta"] or 0) > 0)


def _p(p: float) -> str:
    return f"p{'' if p < 0.001 else '='}{figures.probability(p)}"


def noise_parts(document: MatrixDocument) -> list[str]:
    """Where the noise of one score comes from, and what would narrow intervals; nothing without repeats."""
    found = document["noise"]
    whole = found and found["case"] + found["common"] + found["rest"] + sum(one["variance"] for one in found["nodes"])
    if not found or not whole:
        return []
    parts = [f"{found['case'] / whole:.0%} lies between cases"]
    parts += [
        f"{one['variance'] / whole:.0%} comes from {printable(one['node'])}"
        for one in found["nodes"]
        if one["variance"]
    ]
    if found["common"]:
        parts.insert(1, f"{found['common'] / whole:.0%} is the same for all combinations of a repeat")
    parts += [f"{found['rest'] / whole:.0%} from the rest of a run"]
    sentence = f"Of the variance of one score by {printable(found['metric'])} {', '.join(parts)}."
    if left_out := found.get("incomplete"):
        every = found["cases"] + left_out
        sentence += (
            f" This rests on {found['cases']:,} of {every:,} cases, because the others lack scores: "
            "they may vary in another way."
        )
    narrower = found["narrower"]
    if narrower["repeats"] is not None:
        sentence += (
            f" For the same money, twice the cases make the interval of a difference {narrower['cases']:.2f} times as "
            f"wide, twice the repeats {narrower['repeats']:.2f} times."
        )
    return [sentence]
