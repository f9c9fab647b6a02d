"""What a matrix says, in words and figures that every format shares.

The document is version 1 of the JSON contract, with two optional keys: `metrics`, which gives each
metric's direction, and `warnings`, a list of sentences to show.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from wtb.core.texts import MISSING, money, printable

Document = dict[str, Any]
Row = Mapping[str, Any]

ARROWS = {"higher": "↑", "lower": "↓"}
SIGNIFICANT = 0.05
MANY, TOP, FEW = 30, 20, 5  # of more rows than MANY the TOP are shown; FEW where there are several tables
_NAMED_IN_FULL = 4  # with more nodes a sentence names a combination by what sets it apart from the baseline
_LOWER_IS_BETTER = {"latency", "cost", "tokens", "node_runs"}
_BIG, _TINY = 1e9, 9  # a size, and decimals, from which on figures are written with an exponent
_OTHERWISE = {
    "n": "cells",
    "failed": "cells failed",
    "cost": "USD",
    "p": "p of Δ",
    "p50": "median time",
    "lost": "USD lost",
    "per success": "USD per success",
}


def metric_names(document: Document) -> list[str]:
    """The metrics in the order of the rows."""
    return list(dict.fromkeys(name for row in document["rows"] for name in row["metrics"]))


def tabled(document: Document) -> list[str | None]:
    """What there is a table for: each metric, or None once where nothing was evaluated."""
    return [*metric_names(document)] or [None]


def largest_cost(document: Document, rows: Sequence[Row]) -> float:
    """The highest cost of a cell among the rows; nothing where `cost` is a metric, which says it already."""
    return 0.0 if "cost" in metric_names(document) else max((row["cost_usd"] or 0.0 for row in rows), default=0.0)


def table_title(document: Document, metric: str | None) -> str:
    """`By ndcg ↑, higher is better`."""
    if metric is None:
        return "Combinations"
    return f"By {printable(metric)} {arrow(document, metric)}, {better(document, metric)} is better"


class Money(NamedTuple):
    """A column about money: its heading, the key of its figures, these as text, and what they mean."""

    name: str
    key: str
    cells: list[str]
    means: str


def costs(document: Document, rows: Sequence[Row]) -> list[Money]:
    """The columns about money, of which there are those that have any."""
    kinds = [("cost", "cost_usd", "of one cell, as if alone.")] if largest_cost(document, rows) else []
    if any(row.get("cost_failed_usd") for row in rows):
        kinds += [
            ("lost", "cost_failed_usd", "on all failed attempts and cells, as if alone."),
            ("per success", "cost_per_success_usd", "cost of a cell that succeeded, with its share of what was lost."),
        ]
    found = []
    for name, key, means in kinds:
        most = max((row[key] or 0.0 for row in rows), default=0.0)
        found.append(Money(heading(document, name), key, [money(row[key], most) for row in rows], means))
    return found


def is_exploratory(document: Document, metric: str) -> bool:
    """Return whether another metric decides."""
    return document.get("primary") not in (None, metric)


def heading(document: Document, column: str) -> str:
    """The name of a column of figures; another one where a node or a metric has that name."""
    names = [*shown_nodes(document), *(name.rsplit(":")[-1] for name in metric_names(document))]
    return _OTHERWISE[column] if column in names else column


def better(document: Document, metric: str) -> str:
    """`higher` or `lower`; where the document does not say, that of the evaluators built in."""
    default = "lower" if metric in _LOWER_IS_BETTER else "higher"
    return str(document.get("metrics", {}).get(metric, {}).get("better", default))


def arrow(document: Document, metric: str) -> str:
    """`↑` where higher values are better, `↓` where lower ones are."""
    return ARROWS[better(document, metric)]


def is_typical(document: Document, metric: str) -> bool:
    """Return whether combinations are compared by the median of their differences, else by the mean."""
    return bool(document.get("metrics", {}).get(metric, {}).get("compare") == "median")


def difference_words(document: Document, metric: str | None) -> tuple[str, str]:
    """What the difference of a metric is, and by which test its p: words for legends."""
    if metric is not None and is_typical(document, metric):
        return "the typical difference from the baseline (Hodges-Lehmann)", "Wilcoxon's signed ranks"
    return "difference from the baseline", "paired sign flips"


def shown_nodes(document: Document) -> list[str]:
    """The nodes that tell the combinations apart: all varied ones where there is but one combination."""
    variants: dict[str, set[str]] = {}
    for row in document["rows"]:
        for node, variant in row["combination"].items():
            variants.setdefault(node, set()).add(str(variant))
    return [node for node, found in variants.items() if len(found) > 1] or list(variants)


def combination_name(document: Document, row: Row) -> str:
    """`chunk=sentence retrieve=bm25`, of the nodes that tell combinations apart."""
    named = (f"{node}={row['combination'][node]}" for node in shown_nodes(document) if node in row["combination"])
    return printable(" ".join(named)) or "the workflow as it is"


def estimate(row: Row, metric: str) -> Mapping[str, Any]:
    """A row's statistics under one metric; empty where it was not evaluated."""
    found: Mapping[str, Any] = row["metrics"].get(metric, {})
    return found


def is_baseline(document: Document, row: Row) -> bool:
    return document["baseline"] is not None and row["combination"] == document["baseline"]


def is_best(document: Document, row: Row, metric: str) -> bool:
    """Return whether it could be the best: one row where that is clear, else each that could."""
    return row["combination"] in document["best"].get(metric, {}).get("candidates", ())


def _is_named_best(document: Document, row: Row, metric: str) -> bool:
    best = document["best"].get(metric)
    return best is not None and row["combination"] == best["combination"]


def mark(document: Document, row: Row, metric: str) -> str:
    """`★ best`; where it is not clear `☆ leads`, and `☆` for others that could be best; nothing without rivals."""
    if not is_best(document, row, metric):
        return ""
    best = document["best"][metric]
    if best["clear"]:
        return "★ best"
    if best["rival"] is None:
        return ""
    return "☆ leads" if _is_named_best(document, row, metric) else "☆"


def is_sure(document: Document, found: Mapping[str, Any]) -> bool:
    """True if a difference from the baseline is more than chance: by its test, or before the end by its interval."""
    p, ci = found.get("p_adjusted"), found.get("delta_ci")
    if p is not None:
        return bool(p < SIGNIFICANT)
    return is_running(document) and ci is not None and not ci[0] <= 0 <= ci[1]


def is_running(document: Document) -> bool:
    """Return whether figures are those of a look before the end, and hold however often one looks."""
    return document.get("figures") == "anytime"


def sure_words(document: Document) -> str:
    """By what a difference counts as more than chance, for legends."""
    return "its interval, which holds at any time, has no 0" if is_running(document) else "p < 0.05 (Holm-corrected)"


def as_of(document: Document) -> str:
    """`, as of 40 of 200 cases`, of figures before the end."""
    found = document.get("as_of")
    return f", as of {found['cases']:,} of {found['of']:,} cases" if found else ""


def ranked(document: Document, metric: str | None) -> list[Row]:
    """The rows, best first by the metric: the one named best, others that are ranked, those that are not, unscored."""
    rows: list[Row] = list(document["rows"])
    if metric is None:
        return rows
    sign = 1.0 if better(document, metric) == "lower" else -1.0
    unranked = document["best"].get(metric, {}).get("unranked", ())

    def place(row: Row) -> tuple[bool, bool, bool, float]:
        mean = estimate(row, metric).get("mean")
        named = _is_named_best(document, row, metric)
        return mean is None, row["combination"] in unranked, not named, 0.0 if mean is None else sign * mean

    return sorted(rows, key=place)


def shortened(document: Document, rows: list[Row], many: int = MANY, top: int = TOP) -> list[Row]:
    """The rows for a reader with one screen: all up to `many`, else the first `top` and the baseline."""
    if len(rows) <= many:
        return rows
    return rows[:top] + [row for row in rows[top:] if is_baseline(document, row)]


def left_out(document: Document, shown: int) -> str:
    """What is not shown of the rows, and the command that shows it; empty if there is nothing."""
    missing = len(document["rows"]) - shown
    if not missing:
        return ""
    return f"{missing} more combinations; all: wtb matrix {printable(document['sweep']['id'])} --format csv"


def answers(document: Document) -> list[str]:
    """A sentence for each metric; one where there is none because all has failed."""
    cells = document["cells"]
    dead = not cells["succeeded"] and (cells["failed"] or cells["set_aside"])
    return [answer(document, metric) for metric in metric_names(document)] or [unscored(document)] * bool(dead)


def unscored(document: Document) -> str:
    """Why no combination can be called best, where there is no metric at all."""
    why = "Nothing was evaluated" if document["cells"]["succeeded"] else "No cell has succeeded"
    return f"{why}, so no combination can be called best."


def answer(document: Document, metric: str) -> str:
    """One sentence: which combination is best by the metric, or why none can be named.

    After that of the first metric comes the combination that `best` of the sweep file asks for, where there is one.
    """
    sentence = _answer(document, metric)
    choice = document.get("choice")
    if not choice or metric != metric_names(document)[0]:
        return sentence
    chosen = next((row for row in document["rows"] if row["combination"] == choice["combination"]), None)
    found = f"no combination, {printable(choice['because'])}" if chosen is None else _called(document, chosen)
    return f"{sentence} To {printable(choice['objective'])}: {found}."


def _answer(document: Document, metric: str) -> str:
    scored = [row for row in ranked(document, metric) if estimate(row, metric).get("mean") is not None]
    name, best = printable(metric), document["best"].get(metric) or {}
    name += " (exploratory)" if is_exploratory(document, metric) else ""
    if not scored:
        return f"Nothing is scored by {name}{as_of(document)}."
    if best.get("combination") is None:
        return (
            f"No combination can be called best by {name}{as_of(document)}: {best.get('because')}.{_not_ranked(best)}"
        )
    digits = decimals(document, metric)
    leader = _described(document, scored[0], metric, digits)
    if best["clear"]:
        return f"Best by {name}{as_of(document)}: {leader}.{_not_ranked(best)}"
    rival = next((row for row in scored if row["combination"] == best["rival"]), None)
    if rival is None:
        return f"Only one combination is {_placed(best)} by {name}: {leader}.{_not_ranked(best)}"
    other = f"{_called(document, rival)} ({number(estimate(rival, metric)['mean'], digits)})"
    some = len(best["candidates"])
    every = "both" if some == 2 else f"all {some:,}"
    ranked_rows = len(scored) - len(best["unranked"])
    many = f"{every if some == ranked_rows else f'{some:,} of {ranked_rows:,}'} combinations could be best"
    if best["lead"]:
        standing = f"{leader} leads {other}, but {best['because']}{_settled(best)}"
    else:
        standing = f"{leader} and {other}: {best['because']}"
    standing = f"T{standing[1:]}" if standing.startswith("the baseline") else standing
    return f"No clear winner by {name}{as_of(document)}: {many}. {standing}.{_not_ranked(best)}"


def _placed(best: Mapping[str, Any]) -> str:
    """What only one combination is: scored, or ranked where others have too few scores for that."""
    return "ranked" if best.get("unranked") else "scored"


def _not_ranked(best: Mapping[str, Any]) -> str:
    """How many rows are not ranked, and why, as one more sentence."""
    many = len(best.get("unranked", ()))
    if not many:
        return ""
    return f" Not ranked: {many:,} with a score in less than 95% of the cases."


def headline(document: Document, metric: str) -> str:
    """The answer in a few words: the winner by its name, or that there is none."""
    name, best = printable(metric.rsplit(":")[-1]), document["best"].get(metric) or {}
    first = next((row for row in document["rows"] if _is_named_best(document, row, metric)), None)
    if first is None:
        scored = any(estimate(row, metric).get("mean") is not None for row in document["rows"])
        return f"Nothing can be called best by {name}" if scored else f"Nothing is scored by {name}"
    who = short_name(document, first)
    if best["clear"]:
        return f"{who} is best by {name}"
    if best["rival"] is None:
        return f"Only {who} is {_placed(best)} by {name}"
    return f"No clear winner by {name}: {len(best['candidates']):,} could be best"


def short_name(document: Document, row: Row, most: int = 48) -> str:
    """A combination by the variants in which it differs from the baseline, or that it is the baseline."""
    baseline, nodes = document["baseline"], shown_nodes(document)
    if is_baseline(document, row) and len(document["rows"]) > 1:
        return "the baseline"
    chosen = {node: row["combination"].get(node, MISSING) for node in nodes}
    own = {node: variant for node, variant in chosen.items() if baseline is None or baseline.get(node) != variant}
    names = [str(variant) if variant != "default" else f"{node}={variant}" for node, variant in (own or chosen).items()]
    text = printable(" · ".join(names)) or "the workflow as it is"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def noise(document: Document, metric: str) -> str:
    """How much of the lead of the best could be noise, in words; empty where nothing leads or nothing can be told."""
    best = document["best"].get(metric) or {}
    lead, ci = best.get("lead"), best.get("lead_ci")
    rival = next((row for row in document["rows"] if row["combination"] == best.get("rival")), None)
    if not lead or lead < 0 or ci is None or rival is None:
        return ""
    digits = max(decimals(document, metric), 1 - math.floor(math.log10(lead)) if lead < 1e6 else 0)
    low, high, size = (number(value, min(digits, _TINY)) for value in (*ci, lead))
    cases = f"{best['n_pairs']:,} {'case' if best['n_pairs'] == 1 else 'cases'}"
    over = f"its lead of {size} over {short_name(document, rival)}"
    if not best.get("clear") or ci[0] <= 0:
        sentence = f"How much could be noise: all of {over}"
    else:
        sentence = f"How much could be noise: {number(lead - ci[0], min(digits, _TINY))} of {over}"
    return f"{sentence} (95% interval {low} to {high}, {cases}).{_expected_of_winner(document, metric)}"


def _expected_of_winner(document: Document, metric: str) -> str:
    """What to expect of the best on new cases, where being chosen for its mean flatters it visibly."""
    best = document["best"][metric]
    winner, digits = best.get("winner") or {}, decimals(document, metric)
    shrunken, ci = winner.get("shrunken"), winner.get("ci")
    if shrunken is None or ci is None or number(shrunken, digits) == number(winner["mean"], digits):
        return ""
    low, high = (number(value, digits) for value in ci)
    return (
        f" The best of several is partly lucky: on new cases expect about {number(shrunken, digits)} of it rather than "
        f"{number(winner['mean'], digits)} (95% interval {low} to {high})."
    )


def _settled(best: Mapping[str, Any]) -> str:
    """How many more cases would settle it, to two figures."""
    if best["p"] is None:
        return ""
    if best.get("cases_needed") is None:
        return "; no number of cases that you could run is sure to settle it"
    fewest, most = best["cases_needed"]
    fewest = _rounded_up(fewest - best["n_pairs"])
    if most is None:
        return f"; settling it takes at least {_more_cases(fewest)}, and may take more than can be run"
    return f"; {fewest:,} to {_more_cases(_rounded_up(most - best['n_pairs']))} would settle it"


def _more_cases(cases: int) -> str:
    return f"{cases:,} more {'case' if cases == 1 else 'cases'}"


def _rounded_up(count: int) -> int:
    """To two figures."""
    step = int(10 ** max(0, len(str(count)) - 2))
    return math.ceil(count / step) * step


def _called(document: Document, row: Row) -> str:
    if is_baseline(document, row) and len(document["rows"]) > 1:
        return f"the baseline {combination_name(document, row)}"
    nodes = shown_nodes(document)
    if document["baseline"] is None or len(nodes) <= _NAMED_IN_FULL:
        return combination_name(document, row)
    other = (node for node in nodes if row["combination"].get(node) != document["baseline"].get(node))
    return "the baseline with " + printable(" ".join(f"{node}={row['combination'].get(node)}" for node in other))


def _described(document: Document, row: Row, metric: str, digits: int) -> str:
    found = estimate(row, metric)
    facts = [number(found["mean"], digits)]
    delta, p = found.get("delta"), found.get("p_adjusted")
    if delta:
        facts.append(f"{signed(delta, digits)} over" if delta > 0 else f"{number(-delta, digits)} under")
        facts[-1] += " the baseline"
        facts += [] if p is None else [_p(p)]
    most = max(estimate(other, metric).get("n", 0) for other in document["rows"])
    if found["n"] < 0.9 * most:
        facts.append(f"scored in {found['n']} of {most} cases")
    return f"{_called(document, row)} ({', '.join(facts)})"


def others(cells: Mapping[str, int]) -> list[str]:
    """`3 failed`, of each status of cells besides success."""
    return [
        f"{count:,} {status.replace('_', ' ')}"
        for status, count in cells.items()
        if count and status not in ("total", "succeeded")
    ]


def totals(document: Document) -> list[str]:
    """Sentences on the cells, what sharing saved, and what was spent."""
    cells, runs, cost = document["cells"], document["node_runs"], document["cost"]
    sentences = [", ".join([f"Cells: {cells['succeeded']:,} of {cells['total']:,} succeeded", *others(cells)]) + "."]
    saved = f" ({1 - runs['executed'] / runs['unshared']:.0%} saved)" if runs["unshared"] else ""
    sentences.append(f"Node runs: {runs['executed']:,} executed, {runs['unshared']:,} without sharing{saved}.")
    spent = [f"{money(cost['usd'])} spent, {money(cost['unshared_usd'])} without sharing"] if cost["usd"] else []
    if cost["tokens_in"] or cost["tokens_out"]:
        spent.append(f"{cost['tokens_in']:,} tokens in, {cost['tokens_out']:,} out")
    return [*sentences, f"Cost: {'; '.join(spent)}."] if spent else sentences


def closing(document: Document) -> list[str]:
    """What stands below a table: totals, what tags say, and where noise comes from."""
    return [*totals(document), *decides(document), *sliced(document), *noise_parts(document)]


def decides(document: Document) -> list[str]:
    """Which metric decides where nobody has said so and several could."""
    primary, metrics = document.get("primary"), metric_names(document)
    rivals = [name for name in metrics if name not in (primary, *_LOWER_IS_BETTER)]
    if primary is None or document.get("primary_named") or not rivals:
        return []
    return [f"{printable(primary)} decides, and the others are exploratory: `primary` in the sweep file names another."]


def sliced(document: Document) -> list[str]:
    """What differs from the baseline within a tag, the worst first, where the whole does not say the same already."""
    found = document.get("slices")
    if not found:
        return []
    metric = found["metric"]
    digits, sign = decimals(document, metric), -1.0 if better(document, metric) == "lower" else 1.0
    differ = [
        (sign * one["delta"], tag, document["rows"][number], one)
        for tag in found["tags"]
        for number, one in enumerate(tag["rows"])
        if differs(one) and not _says_the_same(estimate(document["rows"][number], metric), one)
    ]
    differ.sort(key=lambda each: each[0])
    sentences = [
        f"Of the {tag['cases']:,} cases tagged {printable(tag['tag'])}: {short_name(document, row)} is "
        f"{signed(one['delta'], digits)} from the baseline by {printable(metric)} "
        f"({'better' if gain > 0 else 'worse'}, {_p(one['p_adjusted'])})."
        for gain, tag, row, one in differ[:FEW]
    ]
    more = len(differ) - FEW
    return (
        [*sentences, f"{more:,} more such differences: wtb matrix {document['sweep']['id']} --format json."]
        if more > 0
        else sentences
    )


def differs(found: Mapping[str, Any]) -> bool:
    """True if a difference from the baseline is more than chance by its test."""
    return found["p_adjusted"] is not None and bool(found["p_adjusted"] < SIGNIFICANT)


def _says_the_same(whole: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    return differs(whole) and (whole["delta"] > 0) == (part["delta"] > 0)


def _p(p: float) -> str:
    return f"p{'' if p < 0.001 else '='}{probability(p)}"


def noise_parts(document: Document) -> list[str]:
    """Where the noise of one score comes from, and what would narrow intervals; nothing without repeats."""
    found = document.get("noise")
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
    narrower = found["narrower"]
    if narrower["repeats"] is not None:
        sentence += (
            f" For the same money, twice the cases make the interval of a difference {narrower['cases']:.2f} times as "
            f"wide, twice the repeats {narrower['repeats']:.2f} times."
        )
    return [sentence]


def decimals(document: Document, metric: str) -> int:
    """Decimals for a metric: three significant figures of its largest mean; none where all are whole.

    From `_TINY` on `number` and `signed` write an exponent instead.
    """
    found = [estimate(row, metric) for row in document["rows"]]
    means = [abs(each["mean"]) for each in found if each.get("mean") is not None]
    others = [each["delta"] for each in found if each.get("delta") is not None]
    others += [end for each in found for end in each.get("ci") or ()]
    if all(value == round(value) for value in means + others):
        return 0
    exponent = math.floor(math.log10(max(means) or 1.0))
    return min(_TINY, max(0, 2 - exponent + (exponent >= 0)))


def number(value: float | None, digits: int) -> str:
    if value is None:
        return MISSING
    return scientific(value) if _is_extreme(value, digits) else f"{value:.{digits}f}"


def _is_extreme(value: float, digits: int) -> bool:
    return digits >= _TINY or abs(value) >= _BIG


def scientific(value: float, digits: int = 3) -> str:
    """`5.500e-9`: with an exponent without zeros to fill it up."""
    if not value:
        return "0"
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def signed(value: float | None, digits: int) -> str:
    """A difference with its sign; none on what rounds to zero."""
    if value is None:
        return MISSING
    if _is_extreme(value, digits):
        return f"{'+' * (value > 0)}{scientific(value)}"
    return f"{value:+.{digits}f}" if round(value, digits) else f"{0:.{digits}f}"


def probability(p: float | None) -> str:
    if p is None:
        return MISSING
    return "<0.001" if p < 0.001 else f"{p:.3f}"
