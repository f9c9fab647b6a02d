"""Words for people: what an event says, when something was, how a value looks on one line. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from rich.cells import cell_len, chop_cells

from wtb.core.tree.combinations import in_words

Data = Mapping[str, Any]

_COLORS = {
    **dict.fromkeys(("succeeded", "completed", "ok", "alive"), "32"),
    **dict.fromkeys(("failed", "set_aside", "error", "problem", "dead"), "31"),
    **dict.fromkeys(("paused", "waiting", "warning", "cancelled", "skipped", "unknown"), "33"),
    **dict.fromkeys(("running", "forked"), "36"),
    **dict.fromkeys(("pending", "debug", "info", "missing"), "2"),
}


_LONGEST_ERROR = 300
MISSING = "–"


def colored(text: str, word: str, color: bool) -> str:
    """Text in the colour of a status or severity, where colours are wanted and it has one."""
    code = _COLORS.get(word)
    return f"\x1b[{code}m{text}\x1b[0m" if color and code else text


def printable(text: object) -> str:
    """Text with what a terminal would obey (escape sequences, line breaks) made visible."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(text))


def money(usd: float | None, largest: float | None = None) -> str:
    """Dollars to three significant figures of the largest amount in the column, at least to the cent."""
    if usd is None:
        return MISSING
    scale = largest or usd
    return f"${usd:,.{2 if not scale else max(2, 2 - math.floor(math.log10(scale)))}f}"


def duration(seconds: float | None) -> str:
    """To two or three figures, in the unit that suits."""
    if seconds is None:
        return MISSING
    if seconds < 1:
        return f"{seconds * 1000:.{1 if seconds < 0.01 else 0}f} ms"
    if seconds < 120:
        return f"{seconds:.{2 if seconds < 10 else 1}f} s"
    return f"{seconds / 60:.1f} min"


def cut_one(name: str, width: int, tail: int) -> str:
    """One name in at most `width` columns, of which `tail` keep its end."""
    if cell_len(name) <= width:
        return name
    if width <= 1 + tail:
        return "…"
    end = name[len(name) - tail :]
    while cell_len(end) > tail:  # characters that are two columns wide
        end = end[1:]
    return chop_cells(name, width - 1 - tail)[0] + "…" + end


def plural(count: int, noun: str) -> str:
    """`1 cell`, `2,000 cells`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def moment(at: float | str | None, *, seconds: bool = False) -> str:
    """A time on this machine's clock, to the minute.

    Args:
        at: Seconds since 1970, or ISO 8601; None is a dash.
        seconds: Show the seconds, too.
    """
    if at is None:
        return MISSING
    return _local(at).strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def _local(at: float | str) -> datetime:
    return datetime.fromtimestamp(datetime.fromisoformat(at).timestamp() if isinstance(at, str) else at)


def brief_moment(at: float | str | None, now: float) -> str:
    """A time to the minute, without the year where it is this one."""
    text = moment(at)
    return text[5:] if text[:4] == moment(now)[:4] else text


def clock(at: float | str) -> str:
    """The time of day to the millisecond. at: seconds since 1970, or ISO 8601."""
    return _local(at).isoformat(sep=" ", timespec="milliseconds").partition(" ")[2]


def took(seconds: float | None) -> str:
    """A duration, in hours and days where it is long."""
    if seconds is None or seconds < 7200:
        return duration(seconds)
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86400:.1f} d"


def bytes_of(count: float) -> str:
    """`512 B`, `1.5 MB`."""
    power = 0 if count < 1000 else min(4, int(math.log10(count) // 3))
    return f"{count / 1000**power:.{1 if power else 0}f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def chosen(choices: Mapping[str, str]) -> str:
    """`retrieve=bm25 answer=terse`."""
    return printable(in_words(choices))


def chosen_by_all(combinations: Sequence[Mapping[str, str]]) -> str:
    """What several combinations choose: the variant where they agree, else how many there are."""
    found: dict[str, list[str]] = {}
    for choices in combinations:
        for node, variant in choices.items():
            if variant not in found.setdefault(node, []):
                found[node].append(variant)
    return chosen({node: v[0] if len(v) == 1 else f"({len(v)} variants)" for node, v in found.items()})


def short(value: Any, width: int = 60) -> str:
    """A value on one line of at most `width` columns; its size stands at the end where it was cut."""
    text = printable(json.dumps(value, ensure_ascii=False, default=str))
    if cell_len(text) <= width:
        return text
    size = ""
    if isinstance(value, str):
        size = f" ({plural(len(value), 'character')})"
    elif isinstance(value, list | dict):
        size = f" ({plural(len(value), 'item' if isinstance(value, list) else 'key')})"
    room = width - cell_len(size)
    return cut_one(text, room, 0) + size if room > 8 else cut_one(text, width, 0)


def cut(text: str, width: int) -> str:
    """One line of at most `width` columns, with its end cut off where it is longer."""
    return cut_one(printable(text), width, 0)


def hinted(problem: str) -> str:
    """The first line of an error, for a table."""
    return printable(problem.strip().partition("\n")[0])


# What each kind of event says, given its data. Kinds that are not here say their data as it is.
_SAYS: dict[str, Callable[[Data], str]] = {
    "sweep.submitted": lambda d: (
        f"sweep {d['name']} submitted: {plural(d['cells'], 'cell')} of {plural(d['combinations'], 'combination')}"
    ),
    "sweep.row_added": lambda d: (
        f"{d['by']} added a row of {plural(d['cells'], 'cell')}, which case {d['case']} suggested{_because(d)}"
    ),
    "sweep.running": lambda d: f"sweep running{_because(d)}",
    "sweep.paused": lambda d: f"sweep paused{_because(d)}",
    "sweep.completed": lambda d: f"sweep completed{_because(d)}",
    "sweep.disk_full": lambda d: f"waiting for room{_by_worker(d)}: {d['reason']}",
    "sweep.disk_has_room": lambda d: f"there is room again{_by_worker(d)}: continuing",
    "sweep.failed": lambda d: f"sweep failed{_because(d)}",
    "sweep.collected": lambda d: f"`wtb gc` removed {plural(d['checkpoints'], 'superseded checkpoint')}",
    "sweep.pinned": lambda d: "sweep pinned: retention keeps it",
    "sweep.unpinned": lambda d: "sweep unpinned",
    "baseline.set": lambda d: f"now the baseline {d['name']}: retention keeps it",
    "baseline.removed": lambda d: f"no longer the baseline {d['name']}",
    "checkpoint.pinned": lambda d: "checkpoint pinned: retention keeps it",
    "checkpoint.unpinned": lambda d: "checkpoint unpinned",
    "sweep.cancelled": lambda d: f"sweep cancelled{_because(d)}",
    "execution.started": lambda d: "execution started",
    "execution.forked": lambda d: f"forked into {d['children']} by the variants of {_names(d['by'])}",
    "execution.completed": lambda d: (
        f"execution completed: {plural(d['cells'], 'cell')}"
        if "cells" in d
        else f"fork completed{_scored(d['scores'])}"
    ),
    "execution.failed": lambda d: (
        f"execution failed: {plural(d['cells'], 'cell')}" if "cells" in d else f"fork failed: {_error(d)}"
    ),
    "rollback.begun": lambda d: (
        f"{d['by']} undoes its last rollback" if d.get("redo") else f"{d['by']} rolls it back to checkpoint {d['to']}"
    ),
    "execution.rolled_back": lambda d: (
        f"rolled back to {d['words']} by {d['by']}{_because(d)}"
        + (f"; left: {_names(d['nodes'])}" if d["nodes"] else "")
        + _tools(d)
    ),
    "execution.redone": lambda d: f"its rollback was undone by {d['by']}{_because(d)}{_tools(d)}",
    "execution.superseded": lambda d: f"superseded by a rollback of execution {d['by_rollback_of']}",
    "fork.made": lambda d: (
        f"forked by {d['by']} from execution {d['from']}{_because(d)}"
        + (f"; changed: {_names(d['set'])}" if d["set"] else "")
    ),
    "execution.retried": lambda d: f"{plural(d['cells'], 'cell')} tried again",
    "execution.rewound": lambda d: (
        f"stored values were damaged: {plural(d['cells'], 'cell')} back at an earlier checkpoint"
    ),
    "execution.imported": lambda d: f"imported from an archive made on {printable(d['host'])} by {d['by']}",
    "execution.taken_back": lambda d: "reclaimed: the lease of its worker expired",
    "execution.stalled": lambda d: f"{under(d)} has reported nothing for {took(d['silent_s'])}",
    "execution.unstalled": lambda d: f"{under(d)} reports progress again",
    "execution.paused": lambda d: f"execution paused{_because(d)}",
    "execution.pausing": lambda d: f"asked to pause before its next step{_because(d)}",
    "execution.resumed": lambda d: (
        f"resumed by {d['by']}" + (f"; changed: {_names(d['changed'])}" if d["changed"] else "")
    ),
    "sweep.breakpoints": lambda d: f"breakpoints set by {d['by']}: {'; '.join(d['breakpoints']) or 'none'}",
    "execution.waiting": lambda d: f"waits for a person{_because(d)}",
    "execution.cancelled": lambda d: (
        f"execution cancelled{_because(d)}" + (f" ({plural(d['cells'], 'cell')})" if "cells" in d else "")
    ),
    "cell.cancelled": lambda d: f"cell {d['combination']} cancelled: {_error(d) if 'error' in d else d['reason']}",
    "approval.asked": lambda d: f"question {d['approval']}: {d['question']}",
    "approval.answered": lambda d: (
        f"question {d['approval']} answered by {d['by']}: {d['choice'] or d['action']}"
        + (f" ({_names(d['keys'])})" if d["keys"] else "")
        + (f" with {d['value']}" if d.get("value") else "")
        + (f": {d['feedback']}" if d["feedback"] else "")
    ),
    "approval.expired": lambda d: (
        f"nobody answered question {d['approval']} in time" + (f": {d['choice']} counts" if d["choice"] else "")
    ),
    "approval.withdrawn": lambda d: f"question {d['approval']} withdrawn: nobody waits for it any more",
    "worker.refused": lambda d: f"refused by {d['worker']}: {d['reason']}",
    "cell.succeeded": lambda d: f"cell {d['combination']} succeeded{_scored(d.get('scores'))}",
    "cell.failed": lambda d: f"cell {d['combination']} failed: {_error(d)}",
    "cell.set_aside": lambda d: f"cell {d['combination']} set aside: {_error(d)}",
    "checkpoint.created": lambda d: (
        f"{under(d)}: checkpoint inside it, {d['name']}"
        if "node" in d
        else f"checkpoint after step {d['step']}, next: {_names(d['next']) or 'the end'}"
    ),
    "join.unmet": lambda d: f"ended while {_names(d['joins'])} still waited for some of its sources",
    "node_run.started": lambda d: f"{under(d)} started",
    "node_run.succeeded": lambda d: f"{under(d)} done in {_spent(d)}",
    "node_run.failed": lambda d: f"{under(d)} failed in attempt {d['attempt']} after {_spent(d)}: {_error(d)}",
    "node_run.skipped": lambda d: f"{under(d)} failed and was skipped: {_error(d)}",
    "attempt.failed": lambda d: f"{under(d)} failed in attempt {d['attempt']} of {d['of']}: {_error(d)}",
    "attempt.lost": lambda d: f"{under(d)} lost attempt {d['attempt']}: {_error(d)}",
    "budget.threshold": lambda d: f"{d['share']:.0%} of {_budget(d)}",
    "budget.reached": lambda d: f"reached: {_budget(d)}" + (f", {d['wanted']:g} wanted" if d["wanted"] else ""),
    "node.log": lambda d: f"{under(d)}: {d['message']}{_others(d, 'message', 'level', 'node', 'task', 'variant')}",
    "node.progress": lambda d: f"{under(d)}: {_done(d)}",
    "node.metric": lambda d: f"{under(d)}: {d['name']} = {d['value']:g}",
    "node.stream": lambda d: f"{under(d)}: {d['name']}: {short(d['data'], _LONGEST_ERROR)}",
    "node.sample": lambda d: f"{under(d)}: {d['rss'] / 1e6:,.0f} MB, {d['cpu']:.0f}% of a core, {d['files']} files",
}


def event_text(kind: str, data: Data, choices: Sequence[Mapping[str, str]] = ()) -> str:
    """What an event says, on one line. `choices`: the combinations of the sweep by number."""
    number = data.get("combination")
    if isinstance(number, int) and 0 <= number < len(choices):
        data = {**data, "combination": chosen(choices[number])}
    say = _SAYS.get(kind)
    try:
        text = say(data) if say is not None else f"{kind}{_others(data)}"
    except (LookupError, AttributeError, TypeError, ValueError):  # of another version of WTB, or from an archive
        text = f"{kind}{_others(data)}"
    return printable(" ".join(text.split()))


def _budget(data: Data) -> str:
    name = f"nodes.{data['node']}.{data['kind']}" if data["node"] else data["kind"]
    return f"the budget of {data['scope']} {data['name']}: {name} = {data['most']:g} (spent {data['spent']:g})"


def _tools(data: Data) -> str:
    """What a rollback did to tools."""
    labels = {"undone": "undone", "redone": "made again", "irreversible": "no reverse", "failed": "failed"}
    counts = {label: len(data.get(key, ())) for key, label in labels.items()}
    return "".join(f"; {label}: {plural(count, 'call')}" for label, count in counts.items() if count)


def _error(data: Data) -> str:
    """An error on one line, without the node, which stands before it."""
    text = " ".join(str(data["error"]).removeprefix(f"node {data.get('node')!r}: ").split())
    return cut(text, _LONGEST_ERROR)


def _by_worker(data: Mapping[str, Any]) -> str:
    return f" on {data['worker']}" if "worker" in data else ""


def _because(data: Data) -> str:
    return f": {data['reason']}" if data.get("reason") else ""


def under(run: Data) -> str:
    """A node under its variant: `grade=terse`, or `grade=terse (1 of 3)` where the node has several tasks."""
    of = f" of {run['tasks']}" if "tasks" in run else ""
    task = f" ({int(run['task'].rpartition('|')[2]) + 1}{of})" if run.get("task") else ""
    return f"{run['node']}={run['variant']}{task}"


def line(nodes: Sequence[str]) -> list[str]:
    """Nodes one after another, each with how often it comes where it comes again at once."""
    counts = [(node, len(list(same))) for node, same in groupby(nodes)]
    return [node if count == 1 else f"{node} x{count}" for node, count in counts]


def _names(names: Sequence[str]) -> str:
    return ", ".join(names)


def _spent(data: Data) -> str:
    return took(data["duration_s"]) + (f" for {money(data['usd'])}" if data.get("usd") else "")


def _done(data: Data) -> str:
    of = f" of {data['total']:g} ({data['done'] / data['total']:.0%})" if data.get("total") else ""
    return f"{data['done']:g}{of}" + (f" {data['note']}" if data.get("note") else "")


def _scored(scores: Mapping[str, Any] | None) -> str:
    return f": {', '.join(f'{name} {score(value)}' for name, value in scores.items())}" if scores else ""


def score(value: Any) -> str:
    """A score to four figures; the first line of the reason where there is none."""
    if isinstance(value, float | int):
        return f"{value:.4g}"
    return "–" if value is None else hinted(str(value))


def _others(data: Data, *known: str) -> str:
    others = {key: value for key, value in data.items() if key not in known}
    return " " + " ".join(f"{key}={short(value, 40)}" for key, value in others.items()) if others else ""
