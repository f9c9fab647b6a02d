"""Sentences about a matrix: the answers, how much of them could be noise, and what they took."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from wtb.core.documents.matrix import is_ranked
from wtb.core.factors import labels_of
from wtb.core.texts import MISSING, money, plural, printable
from wtb.display import figures, summary

if TYPE_CHECKING:
    from wtb.core.documents.matrix import (
        BestDocument,
        MatrixDocument,
        MetricEstimate,
        ProviderDocument,
        RowDocument,
        TagRow,
    )
    from wtb.core.documents.shared_types import CellCounts


_NAMED_IN_FULL = 4  # with more nodes a sentence names a combination by what sets it apart from the baseline


def left_out(document: MatrixDocument, missing: int) -> str:
    """Return how many rows are not shown, with the command that shows them; empty if there are none."""
    if not missing:
        return ""
    return f"{missing} more combinations; all: wtb matrix {printable(document['sweep']['id'])} --format csv"


def answers(document: MatrixDocument) -> list[str]:
    """A sentence for each metric; one where there is none because all has failed."""
    cells = document["cells"]
    dead = not cells["succeeded"] and (cells["failed"] or cells["set_aside"])
    return [answer(document, metric) for metric in summary.metric_names(document)] or [unscored(document)] * bool(dead)


def unscored(document: MatrixDocument) -> str:
    """Return why no combination can be called best if there is no metric."""
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
    # Not capitalize(), which would also lower the rest of the sentence, and so change names of variants.
    standing = f"T{standing[1:]}" if standing.startswith("the baseline") else standing
    then = f"{next_step(document, metric)}{_not_ranked(best)}"
    return f"No clear winner by {name}{summary.as_of(document)}: {many}. {standing}.{then}"


def _placed(document: MatrixDocument, best: BestDocument) -> str:
    """Return `scored` for an only combination, or `ranked` if others have scores but no rank."""
    are_added = not all(map(is_ranked, document["rows"]))
    return "ranked" if best["unranked"] or are_added else "scored"


def _not_ranked(best: BestDocument, why: str = "a score in less than 95% of the cases") -> str:
    """Return a sentence on how many rows are not ranked, and why; empty if all are."""
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


def short_name(document: MatrixDocument, row: RowDocument, longest: int = 48) -> str:
    """A combination by the variants in which it differs from the baseline, or that it is the baseline."""
    baseline, nodes = document["baseline"], summary.shown_nodes(document)
    if summary.is_baseline(document, row) and len(document["rows"]) > 1:
        return "the baseline"
    variants = {node: summary.label(row, node, MISSING) for node in nodes}
    usual = {} if baseline is None else labels_of(baseline)
    own = {node: variant for node, variant in variants.items() if usual.get(node) != variant}
    names = [
        # Several nodes may have a variant `default`, so the name alone identifies nothing.
        str(variant) if variant != "default" else f"{node}={variant}"
        for node, variant in (own or variants).items()
    ]
    text = printable(" · ".join(names)) or "the workflow as it is"
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def noise(document: MatrixDocument, metric: str) -> str:
    """Return how much of the best row's lead could be noise; empty if nothing leads or it is unknown."""
    best = document["best"].get(metric)
    if best is None:
        return ""
    lead, ci = best["lead"], best["lead_ci"]
    rival = next((row for row in document["rows"] if row["combination"] == best["rival"]), None)
    if not lead or lead < 0 or ci is None or rival is None:
        return ""
    # Two significant figures, because the ends of an interval around a small lead would all print as 0.
    digits = max(figures.decimals(document, metric), 1 - math.floor(math.log10(lead)) if lead < 1e6 else 0)
    low, high, size = (figures.number(figure, min(digits, figures.TINY)) for figure in (*ci, lead))
    cases = f"{best['n_pairs']:,} {'case' if best['n_pairs'] == 1 else 'cases'}"
    lead_in_words = f"its lead of {size} over {short_name(document, rival)}"
    if not best["clear"] or ci[0] <= 0:
        sentence = f"How much could be noise: all of {lead_in_words}"
    else:
        sentence = (
            f"How much could be noise: {figures.number(lead - ci[0], min(digits, figures.TINY))} of {lead_in_words}"
        )
    return f"{sentence} (95% interval {low} to {high}, {cases}).{_expected_of_winner(document, metric)}"


def _expected_of_winner(document: MatrixDocument, metric: str) -> str:
    """Return what to expect of the best on new cases; empty if that rounds to its mean."""
    best = document["best"][metric]
    winner, digits = best["winner"], figures.decimals(document, metric)
    if winner is None:
        return ""
    shrunken, ci = winner["shrunken"], winner["ci"]
    if shrunken is None or ci is None or figures.number(shrunken, digits) == figures.number(winner["mean"], digits):
        return ""
    expected, mean, low, high = (figures.number(figure, digits) for figure in (shrunken, winner["mean"], *ci))
    return (
        f" The best of several is partly lucky: on new cases expect about {expected} of it rather than {mean} "
        f"(95% interval {low} to {high})."
    )


def next_step(document: MatrixDocument, metric: str) -> str:
    """Return what would settle which candidate is best, and what is at stake if nothing does, as more sentences."""
    best = document["best"][metric]
    if best["clear"] or best["p"] is None or best.get("hangs_on") or best.get("unseen_one_in"):
        return ""
    return f"{_cases_to_settle(document, metric)}{_at_stake(document, metric)}"


def _cases_to_settle(document: MatrixDocument, metric: str) -> str:
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
    recorded = [cost for cost in costs if cost is not None]
    cheapest = ""
    # A candidate without a recorded cost could be the cheapest, so none is named if one is missing.
    if len(recorded) == len(rows) and min(recorded) < max(recorded):
        cheapest = f", or the cheapest: {short_name(document, rows[costs.index(min(recorded))])}"
    if not (apart := best["differ_at_most"]):
        return f" The candidates do not differ: ship any of them{cheapest}."
    digits = max(digits, min(-math.floor(math.log10(apart)), figures.TINY))  # at least one figure that is not 0
    largest_gap = figures.number(apart, digits)
    return f" The candidates differ by at most {largest_gap}: if that does not matter, ship any of them{cheapest}."


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
    largest_n = max(summary.estimate(other, metric).get("n", 0) for other in document["rows"])
    if estimate["n"] < 0.9 * largest_n:
        facts.append(f"scored in {estimate['n']} of {largest_n} cases")
    return f"{_called(document, row)} ({', '.join(facts)})"


def unsuccessful_counts(cells: CellCounts) -> list[str]:
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
    sentences = [
        ", ".join([f"Cells: {cells['succeeded']:,} of {cells['total']:,} succeeded", *unsuccessful_counts(cells)]) + "."
    ]
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
    """Return the sentences below a table: totals, what tags say, and where noise comes from."""
    return [*totals(document), *decides(document), *classes(document), *sliced(document), *noise_parts(document)]


def classes(document: MatrixDocument) -> list[str]:
    """Return on how many cases of a class the figures of a row rest, unless a warning has it already."""
    counted = [metric["classes"] for metric in document["metrics"].values() if "classes" in metric]
    return [
        f"{printable(class_counts['sentence'])}."
        for class_counts in counted
        if class_counts["sentence"] not in document["warnings"]
    ]


def decides(document: MatrixDocument) -> list[str]:
    """Which metric decides where nobody has said so and several could."""
    primary, metrics = document["primary"], summary.metric_names(document)
    rivals = [name for name in metrics if name not in (primary, *summary.LOWER_IS_BETTER)]
    if primary is None or document["primary_named"] or not rivals:
        return []
    return [f"Decided by {printable(primary)} (first evaluator). Change with `primary:` in the sweep file."]


def sliced(document: MatrixDocument) -> list[str]:
    """Return differences from the baseline within a tag, the worst first, unless the whole has the same."""
    slices = document["slices"]
    if not slices:
        return []
    metric = slices["metric"]
    digits, sign = figures.decimals(document, metric), -1.0 if summary.better(document, metric) == "lower" else 1.0
    differ = [
        (sign * tag_row["delta"], tag_row["p_adjusted"], tag, document["rows"][number], tag_row)
        for tag in slices["tags"]
        for number, tag_row in enumerate(tag["rows"])
        if tag_row["delta"] is not None and tag_row["p_adjusted"] is not None
        if differs(tag_row) and not _says_the_same(summary.estimate(document["rows"][number], metric), tag_row)
    ]
    differ.sort(key=lambda each: each[0])
    sentences = [
        f"Of the {tag['cases']:,} cases tagged {printable(tag['tag'])}: {short_name(document, row)} is "
        f"{figures.signed(tag_row['delta'], digits)} from the baseline by {printable(metric)} "
        f"({'better' if gain > 0 else 'worse'}, {_p(p)})."
        for gain, p, tag, row, tag_row in differ[: summary.FEW]
    ]
    more = len(differ) - summary.FEW
    return (
        [*sentences, f"{more:,} more such differences: wtb matrix {document['sweep']['id']} --format json."]
        if more > 0
        else sentences
    )


def differs(estimate: MetricEstimate | TagRow) -> bool:
    """True if a difference from the baseline is more than chance by its test."""
    return estimate["p_adjusted"] is not None and bool(estimate["p_adjusted"] < summary.SIGNIFICANT)


def _says_the_same(whole: MetricEstimate, part: TagRow) -> bool:
    return differs(whole) and ((whole["delta"] or 0) > 0) == ((part["delta"] or 0) > 0)


def _p(p: float) -> str:
    return f"p{'' if p < 0.001 else '='}{figures.probability(p)}"


def noise_parts(document: MatrixDocument) -> list[str]:
    """Return the sources of the noise of one score, and what would narrow intervals; empty without repeats."""
    variance = document["noise"]
    whole = variance and variance["case"] + variance["common"] + variance["rest"] + sum(
        node["variance"] for node in variance["nodes"]
    )
    if not variance or not whole:
        return []
    parts = [f"{variance['case'] / whole:.0%} lies between cases"]
    parts += [
        f"{node['variance'] / whole:.0%} comes from {printable(node['node'])}"
        for node in variance["nodes"]
        if node["variance"]
    ]
    if variance["common"]:
        parts.insert(1, f"{variance['common'] / whole:.0%} is the same for all combinations of a repeat")
    parts += [f"{variance['rest'] / whole:.0%} from the rest of a run"]
    sentence = f"Of the variance of one score by {printable(variance['metric'])} {', '.join(parts)}."
    if left_out := variance.get("incomplete"):
        every = variance["cases"] + left_out
        sentence += (
            f" This rests on {variance['cases']:,} of {every:,} cases, because the others lack scores: "
            "they may vary in another way."
        )
    narrower = variance["narrower"]
    if narrower["repeats"] is not None:
        sentence += (
            f" For the same money, twice the cases make the interval of a difference {narrower['cases']:.2f} times as "
            f"wide, twice the repeats {narrower['repeats']:.2f} times."
        )
    return [sentence]
