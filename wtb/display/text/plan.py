"""The plan of a sweep, as a document for scripts and as text for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from wtb.config.run_options import ASYNC_SLOTS
from wtb.core.documents import plan as documents
from wtb.core.factors import factors_of, split_name
from wtb.core.texts import MISSING, money, plural, printable, took
from wtb.core.tree.combinations import in_words
from wtb.core.tree.stored_spec import Limits
from wtb.display.tables import grid, paragraphs
from wtb.display.text.costs import limits as limits_in_words
from wtb.planning.estimate import Count, Estimate
from wtb.planning.prepare import Prepared

_MOST_PROBLEMS = 10  # that a terminal shows


def document(prepared: Prepared, estimate: Estimate, margins: list[documents.MarginDocument]) -> documents.PlanDocument:
    """The plan: combinations, cases, repeats, cells, and node runs as [low, high] by node.

    high is null where there is no bound. margins: how many cases each takes.
    """
    spec = prepared.bound.spec
    times, limits = prepared.cases * spec.repeats, spec.limits.model_dump(exclude_none=True)
    # Only variants that exclusions leave, in the part of the sweep that is planned.
    used = {node: {choice[node] for choice in prepared.choices} for node in prepared.bound.vary}
    vary = {node: [name for name in names if name in used[node]] for node, names in prepared.bound.vary.items()}
    planned: documents.PlanDocument = {
        "version": 1,
        "sweep": spec.sweep,
        "workflow": prepared.bound.workflow.name,
        "vary": vary,
        "combinations": len(prepared.choices),
        "cases": prepared.cases,
        "repeats": spec.repeats,
        "cells": prepared.cells,
        "baseline": None if prepared.baseline is None else dict(prepared.baseline),
        "evaluators": [evaluator.name for evaluator in prepared.bound.evaluators],
        "limits": cast("Limits", {key: limit for key, limit in limits.items() if limit != {}}),
        "node_runs": {
            "executed": _range(estimate.total("executed"), times),
            "unshared": _range(estimate.total("unshared"), times),
            "by_node": {
                node: {
                    "variants": len(vary.get(node, [""])),
                    "executed": _range(estimate.executed[node], times),
                    "unshared": _range(estimate.unshared[node], times),
                }
                for node in estimate.executed
            },
        },
        "margins": margins,
        "code": {"varying": prepared.bound.code["varying"], "not_followed": prepared.bound.code["not_followed"]},
    }
    if factors := _factors(prepared, vary):
        planned["factors"] = factors
    if prepared.notes:
        planned["notes"] = prepared.notes
    if prepared.sampled_from is not None:
        planned["sampled_from"] = prepared.sampled_from
    if prepared.findings:
        planned["data"] = list(prepared.findings)
    return planned


def _factors(prepared: Prepared, vary: Mapping[str, Sequence[str]]) -> list[documents.PlannedFactor]:
    """Return the factors, with the levels that what is planned has."""
    stored = prepared.bound.spec.as_stored()["vary"]
    return [
        {
            "node": factor.node,
            "parameter": factor.parameter,
            "levels": [level.label for level in factor.levels if not set(level.variants).isdisjoint(vary[node])],
            "is_nested": factor.is_nested,
        }
        for node, factors in factors_of(stored).items()
        for factor in factors
    ]


def _varied(planned: documents.PlanDocument) -> list[str]:
    """Lines with what is varied: of a node with factors the levels, and the variants that are no grid points."""
    lines = []
    for node, names in planned["vary"].items():
        factors = [factor for factor in planned.get("factors", ()) if factor["node"] == node]
        if not factors:
            lines.append(f"  {node}: {', '.join(names)}")
            continue
        single_variants = [name for name in names if not split_name(name)[1]]
        lines.append(
            f"  {node}: {', '.join([*single_variants, plural(len(names) - len(single_variants), 'grid point')])}"
        )
        for factor in factors:
            nested = "; not of all variants" if factor["is_nested"] else ""
            count = plural(len(factor["levels"]), "level")
            lines.append(f"    {node}.{factor['parameter']}: {', '.join(factor['levels'])} ({count}{nested})")
    return lines


def _range(count: Count, times: int) -> list[int | None]:
    return [count.low * times, None if count.high is None else count.high * times]


def render(planned: documents.PlanDocument, width: int = 80) -> str:
    """The plan as text of at most `width` columns."""
    runs = planned["node_runs"]
    sentences = [
        f"{planned['sweep']}: workflow {planned['workflow']}",
        f"{planned['combinations']:,} combinations x {planned['cases']:,} cases x {planned['repeats']:,} repeats"
        f" = {planned['cells']:,} cells",
        *_varied(planned),
    ]
    if planned["baseline"]:
        sentences.append(f"baseline: {in_words(planned['baseline'])}")
    for what, words in (("evaluators", planned["evaluators"]), ("limits", limits_in_words(planned["limits"]))):
        if words:
            sentences.append(f"{what}: {', '.join(words)}")
    rows = [
        [node, str(counts["variants"]), _words(counts["executed"]), _words(counts["unshared"])]
        for node, counts in runs["by_node"].items()
    ]
    rows.append(["total", "", _words(runs["executed"]), _words(runs["unshared"])])
    headers = ["node", "variants", "node runs", "without sharing"]
    parts = [paragraphs(sentences, width), grid(headers, rows, width, right=headers[1:])]
    low, high = runs["executed"]
    unshared_runs = runs["unshared"][1]
    sharing = "The path depends on the state, so node runs can only be bounded before they are done."
    # The saving is exact only if the number of node runs is.
    if high is not None and low == high and unshared_runs:
        sharing = (
            f"Sharing saves {unshared_runs - high:,} of {unshared_runs:,} node runs ({1 - high / unshared_runs:.0%})."
        )
    parts.append(paragraphs([sharing, *_time_and_price(planned)], width))
    if "notes" in planned:
        parts.append(paragraphs((f"Note: {note}." for note in planned["notes"]), width))
    if sentences := [*map(margin_in_words, planned["margins"]), *_last_sweep(planned)]:
        parts.append(paragraphs(sentences, width))
    if "code" in planned:
        parts += _code(planned["code"], width)
    if "pilot" in planned:
        parts += _pilot(planned["pilot"], width)
    if warnings := planned.get("warnings"):
        parts.append(paragraphs((f"Warning: {text}." for text in warnings), width))
    return "\n".join(parts)


def _time_and_price(planned: documents.PlanDocument) -> list[str]:
    """Write how long the plan takes and what it costs, as far as the plan has that."""
    sentences = []
    if "concurrency" in planned:
        sentences.append(_concurrency(planned["concurrency"], planned["node_runs"]["executed"]))
    if "price" in planned:
        sentences.append(_price(planned["price"]))
    return sentences


def _concurrency(concurrency: documents.PlannedConcurrency, node_runs: list[int | None]) -> str:
    """Write how many node runs are made at a time, and how long all of them take."""
    at_once = concurrency["at_once"]
    default = " (default of async nodes)" if concurrency["is_default"] and at_once == ASYNC_SLOTS else ""
    much = f"Concurrency: {plural(at_once, 'node run')} at a time{default}"
    if "seconds" not in concurrency:
        # Without times of earlier sweeps, only the number of node runs in a row is known.
        rounds = [None if count is None else math.ceil(count / at_once) for count in node_runs]
        return f"{much}, so that they take as long as {_words(rounds)} in a row."
    low, high = concurrency["seconds"]
    # For mypy: only the upper bound can be unknown.
    assert low is not None
    if high is None:
        return f"{much}, so that nodes take at least {took(low)}, by earlier sweeps."
    upper_end = "" if took(high) == took(low) else f" - {took(high)}"
    return f"{much}, so that nodes take about {took(low)}{upper_end}, by earlier sweeps."


def _price(price: documents.PlannedPrice) -> str:
    """Write what the plan will cost, and by what that is measured; or why it is not known."""
    if price["usd"] is None:
        return printable(f"Price: not known, because {price['because']}; `wtb pilot` measures it.")
    low, high = price["usd"]
    assert low is not None
    much = f"at least {money(low)}" if high is None else f"{money(low)} - {money(high)}"
    # Bounds that print alike are shown as one figure.
    if high is not None and money(low) == money(high):
        much = money(low)
    measured = f"{plural(price['node_runs'], 'node run')} of {plural(price['sweeps'], 'earlier sweep')}"
    return f"Price: about {much}, by what {measured} cost, without retries and evaluators."


def _last_sweep(planned: documents.PlanDocument) -> list[str]:
    """Return what the last sweep of the same name leaves open."""
    if "last_sweep" not in planned:
        return []
    last, has = planned["last_sweep"], plural(planned["cases"], "case")
    names = f"sweep {last['sweep']}, {plural(last['cases'], 'case')}"
    return [printable(f"No clear winner by {last['metric']} so far ({names}). {last['next_step']} The plan has {has}.")]


def _code(code: documents.PlannedCode, width: int) -> list[str]:
    """Return paragraphs on the parts of the code that fingerprints leave out."""
    parts = []
    if code["varying"]:
        names = ", ".join(code["varying"])
        parts.append([f"Left out of fingerprints, because the value differs between processes: {names}."])
    if code["not_followed"]:
        more = len(code["not_followed"]) - _MOST_PROBLEMS
        rest = [f"  and {more:,} more"] if more > 0 else []
        head = "Not followed, so that a change of it is no change of the code:"
        parts.append([head, *(f"  {problem}" for problem in code["not_followed"][:_MOST_PROBLEMS]), *rest])
    return [paragraphs(lines, width) for lines in parts]


def margin_in_words(margin: documents.MarginDocument) -> str:
    """Return a sentence on the number of cases that a margin needs, from an entry of `margins`."""
    what = f"Margin of {margin['margin']:g} in {margin['metric']}"
    if margin["needed"] is None:
        return f"{what}: {margin['because']}."
    spread = f"the differences have a standard deviation of {margin['sd']:.3g}, {margin['because']}"
    who = "less was lost" if margin["rows"] == 1 else f"none of {margin['rows']:,} combinations lost as much"
    return (
        f"{what}: about {plural(margin['needed'], 'case')} show that {who}, 80 times of 100 where nothing was lost; "
        f"the sweep has {margin['cases']:,} ({spread})."
    )


def _interval(amount: documents.EstimatedAmount, words: Callable[[float], str]) -> str:
    return (
        "" if amount["low"] is None or amount["high"] is None else f"{words(amount['low'])} - {words(amount['high'])}"
    )


def _pilot(pilot: documents.PilotDocument, width: int) -> list[str]:
    """Return paragraphs on a pilot and its estimates for the whole sweep."""
    sentences = [f"Pilot {pilot['sweep']}: {pilot['cases']:,} of {pilot['of']:,} cases ran ({pilot['status']})."]
    if pilot["status"] != "completed":
        sentences.append(f"It is not at its end, so that the whole costs more: {pilot['reason'] or pilot['status']}")
    if pilot["failed_cells"]:
        sentences.append(f"{plural(pilot['failed_cells'], 'cell')} failed.")
    estimate = pilot["estimate"]
    amounts: list[tuple[str, documents.EstimatedAmount, Callable[[float], str]]] = [
        ("cost", estimate["usd"], money),
        ("tokens", estimate["tokens"], _count),
        ("node runs", estimate["node_runs"], _count),
        ("time in nodes", estimate["work_s"], took),
        (f"with {pilot['concurrency']:,} at a time", pilot["wall_s"], took),
    ]
    rows = [
        [name, MISSING if amount["expected"] is None else words(amount["expected"]), _interval(amount, words)]
        for name, amount, words in amounts
        # The cost always has a row, because a missing one would read as no cost.
        if amount["expected"] is not None or name == "cost"
    ]
    headers = ["the whole sweep", "expected", "95% interval"]
    table = grid(headers, rows, width, right=headers[1:])
    return [paragraphs(sentences, width), table, paragraphs([f"Method: {pilot['method']}."], width)]


def _count(figure: float) -> str:
    return f"{figure:,.0f}"


def _words(bounds: list[int | None]) -> str:
    low, high = bounds
    if high is None:
        return f"{low:,} or more"
    return f"{low:,}" if low == high else f"{low:,} - {high:,}"
