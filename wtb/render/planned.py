"""What a sweep would run, as a document for scripts and as text for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wtb.plan import Count, Estimate
from wtb.prepare import Prepared
from wtb.render.costs import limits as limits_in_words
from wtb.render.summary import money
from wtb.render.words import plural, took


def document(prepared: Prepared, found: Estimate) -> dict[str, Any]:
    """The plan: combinations, cases, repeats, cells, and node runs as [low, high] by node.

    high is null where there is no bound.
    """
    spec = prepared.bound.spec
    times = prepared.cases * spec.repeats
    # What exclusions, and the part that was asked for, leave of it.
    used = {node: {choice[node] for choice in prepared.choices} for node in prepared.bound.vary}
    vary = {node: [name for name in names if name in used[node]] for node, names in prepared.bound.vary.items()}
    return {
        "version": 1,
        "sweep": spec.sweep,
        "workflow": prepared.bound.workflow.name,
        "vary": vary,
        "combinations": len(prepared.choices),
        "cases": prepared.cases,
        "repeats": spec.repeats,
        "cells": prepared.cells,
        "baseline": prepared.baseline,
        "evaluators": [one.name for one in prepared.bound.evaluators],
        "limits": {key: limit for key, limit in spec.limits.model_dump(exclude_none=True).items() if limit != {}},
        "node_runs": {
            "executed": _range(found.total("executed"), times),
            "unshared": _range(found.total("unshared"), times),
            "by_node": {
                node: {
                    "variants": len(vary.get(node, [""])),
                    "executed": _range(found.executed[node], times),
                    "unshared": _range(found.unshared[node], times),
                }
                for node in found.executed
            },
        },
    }


def _range(count: Count, times: int) -> list[int | None]:
    return [count.low * times, None if count.high is None else count.high * times]


def render(planned: dict[str, Any]) -> str:
    """The plan as text of at most 80 columns, but for long names."""
    runs = planned["node_runs"]
    lines = [
        f"{planned['sweep']}: workflow {planned['workflow']}",
        f"{planned['combinations']:,} combinations x {planned['cases']:,} cases x {planned['repeats']:,} repeats"
        f" = {planned['cells']:,} cells",
        *(f"  {node}: {', '.join(names)}" for node, names in planned["vary"].items()),
    ]
    if planned["baseline"]:
        lines.append("baseline: " + " ".join(f"{node}={name}" for node, name in planned["baseline"].items()))
    for what in ("evaluators", "limits"):
        said = planned[what]
        words = limits_in_words(said) if isinstance(said, dict) else said
        if words:
            lines.append(f"{what}: {', '.join(words)}")
    lines += ["", f"{'node':<24}{'variants':>9}{'node runs':>20}{'without sharing':>22}"]
    for node, counts in runs["by_node"].items():
        lines.append(
            f"{_fit(node, 24)}{counts['variants']:>9}{_words(counts['executed']):>20}{_words(counts['unshared']):>22}"
        )
    lines.append(f"{'total':<33}{_words(runs['executed']):>20}{_words(runs['unshared']):>22}")
    low, high = runs["executed"]
    most = runs["unshared"][1]
    if low == high and most:
        lines += ["", f"Sharing saves {most - high:,} of {most:,} node runs ({1 - high / most:.0%})."]
    else:
        lines += ["", "The path depends on the state, so node runs can only be bounded before they are done."]
    if "pilot" in planned:
        lines += ["", *_pilot(planned["pilot"])]
    return "\n".join(lines) + "\n"


def _pilot(pilot: dict[str, Any]) -> list[str]:
    """What a pilot says of the whole."""
    lines = [f"Pilot {pilot['sweep']}: {pilot['cases']:,} of {pilot['of']:,} cases ran ({pilot['status']})."]
    if pilot["status"] != "completed":
        lines.append(f"It is not at its end, so that the whole costs more: {pilot['reason'] or pilot['status']}")
    if pilot["failed_cells"]:
        lines.append(f"{plural(pilot['failed_cells'], 'cell')} failed.")
    lines += ["", f"{'the whole sweep':<24}{'expected':>14}{'95% interval':>30}"]
    shown: dict[str, tuple[str, Callable[[float], str]]] = {
        "cost": ("usd", money),
        "tokens": ("tokens", _count),
        "node runs": ("node_runs", _count),
        "time in nodes": ("work_s", took),
    }
    rows = [(name, pilot["estimate"][key], words) for name, (key, words) in shown.items()]
    rows.append((f"with {pilot['concurrency']:,} at a time", pilot["wall_s"], took))
    for name, found, said in rows:
        if found["expected"] is None:
            continue
        between = "" if found["low"] is None else f"{said(found['low'])} - {said(found['high'])}"
        lines.append(f"{name:<24}{said(found['expected']):>14}{between:>30}".rstrip())
    return [*lines, "", f"Method: {pilot['method']}."]


def _count(figure: float) -> str:
    return f"{figure:,.0f}"


def _words(bounds: list[int | None]) -> str:
    low, high = bounds
    if high is None:
        return f"{low:,} or more"
    return f"{low:,}" if low == high else f"{low:,} - {high:,}"


def _fit(name: str, width: int) -> str:
    return f"{name:<{width}}" if len(name) < width else name[: width - 2] + "… "
