"""Sweeps in a terminal: the list, the status, the summary and the table of cells."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.cells import cell_len

from wtb.core import texts
from wtb.core.documents.common import CellCounts, counts_by_status
from wtb.core.documents.sweeps import (
    CellDocument,
    QueueDocument,
    RunDocument,
    RunsDocument,
    StatusDocument,
    SummaryDocument,
    SweepDocument,
    SweepsDocument,
    SweepStanding,
)
from wtb.core.factors.factors import label_columns, labels_of
from wtb.core.ids import DEFAULT_PROJECT
from wtb.core.texts import money, printable
from wtb.display import failure_causes
from wtb.display.tables import facts, grid, wrapped
from wtb.display.text.approvals import asking_modes
from wtb.display.text.costs import budgets_on_one_line, limits

_MOST_COLUMNS = 5  # of varied nodes and metrics in the table of cells; more of them share one column


def listed(document: SweepsDocument, width: int, color: bool = False) -> str:
    """The list of sweeps, newest first."""
    sweeps = document["sweeps"]
    has_projects = any(_project(sweep) for sweep in sweeps)
    headers = ["id", "name", "workflow", *(["project"] if has_projects else []), "status", "cells", "failed", "started"]
    rows = [
        [
            sweep["id"],
            sweep["name"],
            sweep["workflow"] or "",
            *([_project(sweep)] if has_projects else []),
            sweep["status"],
            _share(sweep["cells"]),
            _or_nothing(_failed(sweep["cells"])),
            texts.brief_moment(sweep["started_at"] or sweep["created_at"], time.time()),
        ]
        for sweep in sweeps
    ]
    return grid(headers, rows, width, right={"cells", "failed"}, whole={"id", "status", "started"}, color=color)


def listed_runs(document: RunsDocument, width: int, color: bool = False) -> str:
    """The list of single executions, newest first."""
    runs = document["runs"]
    has_projects = any(_project(run) for run in runs)
    headers = ["id", "workflow", *(["project"] if has_projects else []), "status", "started", "because of"]
    rows = [
        [
            run["id"],
            run["workflow"] or "",
            *([_project(run)] if has_projects else []),
            run["status"],
            texts.brief_moment(run["started_at"] or run["created_at"], time.time()),
            (run["error"] or run["reason"] or "").partition("\n")[0],
        ]
        for run in runs
    ]
    return grid(headers, rows, width, whole={"id", "status", "started"}, color=color)


def _project(sweep: SweepDocument | SweepStanding | RunDocument) -> str:
    """Its project, unless that is the one of all that name none."""
    project = sweep["project"] or DEFAULT_PROJECT
    return "" if project == DEFAULT_PROJECT else project


def _share(cells: CellCounts) -> str:
    done = cells["succeeded"] + _failed(cells) + cells["cancelled"] + cells["skipped"]
    return f"{done:,}" if done == cells["total"] else f"{done:,} of {cells['total']:,}"


def _failed(cells: CellCounts) -> int:
    return int(cells["failed"] + cells["set_aside"])


def _or_nothing(count: int) -> str:
    return f"{count:,}" if count else ""


def _seconds(iso: str | None) -> float | None:
    return None if iso is None else datetime.fromisoformat(iso).timestamp()


def status(document: StatusDocument, width: int, color: bool = False) -> str:
    """How far a sweep is."""
    sweep = document["sweep"]
    title = f"{printable(sweep['name'])} ({sweep['id']}): {texts.colored(sweep['status'], sweep['status'], color)}"
    return title + "\n" + facts(_progress(document), width) + _hint(document, width)


def _progress(document: StatusDocument) -> list[tuple[str, str]]:
    sweep, runs, cost = document["sweep"], document["node_runs"], document["cost"]
    owners = (f"process {owner['pid']} on {owner['host']}: {owner['state']}" for owner in document["owners"])
    spent = [money(cost["usd"])] if cost["usd"] else []
    if cost.get("unknown"):
        spent = [f"{money(cost['usd'])} recorded, the rest is unknown"]
    if cost["by_forks_usd"] > 1e-9:
        spent = [f"{spent[0]}, {money(cost['by_forks_usd'])} of it by forks"]
    if cost["tokens_in"] or cost["tokens_out"]:
        spent.append(f"{cost['tokens_in']:,} tokens in, {cost['tokens_out']:,} out")
    started, finished = _seconds(sweep["started_at"]), _seconds(sweep["finished_at"])
    when = texts.moment(started, seconds=True) if started else ""
    if started and finished:
        when += f", took {texts.took(finished - started)}"
    retries = runs["attempts"] - runs["executed"]
    more = f", {texts.plural(retries, 'more attempt')}" if retries > 0 else ""
    return [
        ("workflow", _versioned(sweep)),
        ("project", _project(sweep)),
        ("reason", sweep["reason"] or ""),
        ("asks", asking_modes(document.get("approval", []))),
        ("cells", _cells(document["cells"])),
        ("node runs", f"{runs['executed']:,} executed, {runs['unshared']:,} without sharing{more}"),
        *(
            ("failed" if place == 0 else "", line)
            for place, line in enumerate(failure_causes.lines(document["failures"], sweep["id"], apart=True))
        ),
        ("cost", "; ".join(spent)),
        ("budgets", budgets_on_one_line(document["budgets"])),
        ("started", when),
        ("owner", "; ".join(owners) if document["queue"] is None else ""),
        *_queued(document["queue"], sweep["status"] in ("pending", "running", "paused")),
        *(("look", warning) for warning in document["warnings"]),
    ]


def _queued(queue: QueueDocument | None, is_open: bool) -> list[tuple[str, str]]:
    """The facts of a sweep that workers run."""
    if queue is None:
        return []
    waiting = [f"{texts.plural(one['executions'], 'execution')} ({one['why']})" for one in queue["waiting"]]
    return [
        (
            "workers",
            f"run it; {texts.plural(queue['slots'], 'slot')} at work on it just now" if is_open else "ran it",
        ),
        ("waiting", "; ".join(waiting)),
        ("priority", str(queue["priority"]) if queue["priority"] else ""),
        *(("look", warning) for warning in queue["warnings"]),
    ]


def _versioned(sweep: SweepStanding) -> str:
    version = f" (version {sweep['workflow_version']})" if sweep["workflow_version"] else ""
    return f"{sweep['workflow']}{version}"


def _cells(cells: CellCounts) -> str:
    counts = counts_by_status(cells)
    if len(counts) == 1:
        return f"{cells['total']:,}, all {next(iter(counts)).replace('_', ' ')}"
    by_status = [f"{count:,} {status.replace('_', ' ')}" for status, count in counts.items()]
    return f"{cells['total']:,}: {', '.join(by_status)}" if by_status else f"{cells['total']:,}"


def _hint(document: StatusDocument, width: int) -> str:
    hint = document["next"]
    if hint is None:
        return ""
    command = f"continue with: {hint['command']}"
    line = f"{printable(hint['why'])}; {command}"
    if cell_len(line) > width:  # the command stays on one line, so that it can be copied
        line = "\n".join([*wrapped(hint["why"], width), command])
    return f"\n{line}\n"


def summary(document: SummaryDocument, width: int, color: bool = False) -> str:
    """What a sweep was asked to do, and how far it is."""
    sweep, asked = document["sweep"], document["definition"]
    title = f"{printable(sweep['name'])} ({sweep['id']}): {texts.colored(sweep['status'], sweep['status'], color)}"
    size = (
        f"{texts.plural(asked['combinations'], 'combination')} x {texts.plural(asked['cases'], 'case')}"
        f" x {texts.plural(asked['repeats'], 'repeat')}"
    )
    vary = [f"{node}: {', '.join(variants)}" for node, variants in asked["vary"].items()]
    pairs = [
        ("size", size),
        *(("" if number else "vary", text) for number, text in enumerate(vary)),
        ("baseline", texts.describe_choices(asked["baseline"]) if asked["baseline"] else ""),
        ("metrics", ", ".join(document["metrics"])),
        ("params", texts.describe_choices(asked["params"]) if asked["params"] else ""),
        ("limits", " ".join(limits(asked["limits"]))),
    ]
    text = title + "\n" + facts([_progress(document)[0], *pairs, *_progress(document)[1:]], width)
    return text + (_hint(document, width) or "\n") + f"more: wtb matrix | show --cells | log {sweep['id']}\n"


def cells(
    found: Sequence[CellDocument], vary: Sequence[str], metrics: Sequence[str], width: int, color: bool = False
) -> str:
    """Cells with their statuses, scores and executions; what went wrong stands below."""
    repeats = any(cell["repeat"] for cell in found)
    vary = label_columns([cell["combination"] for cell in found]) or vary
    split = len(vary) + len(metrics) <= _MOST_COLUMNS
    nodes = list(vary) if split else ["combination"]
    shown = list(metrics)[: max(0, _MOST_COLUMNS - len(nodes))]
    headers = ["case", *(["repeat"] if repeats else []), *nodes, "status", *map(_short_name, shown), "execution"]
    rows = [
        [
            cell["case"],
            *([str(cell["repeat"])] if repeats else []),
            *_choices(cell, vary, split),
            cell["status"],
            *(_score(cell, metric) for metric in shown),
            cell["execution"] or "",
        ]
        for cell in found
    ]
    notes = ["" if not cell["error"] else texts.hinted(cell["error"]) for cell in found]
    right = {"repeat", *map(_short_name, shown)}
    named = None if split else {"combination": [cell["combination"] for cell in found]}
    whole = {"status", "execution"}
    return grid(headers, rows, width, right=right, whole=whole, notes=notes, combinations=named, color=color)


def _choices(cell: CellDocument, vary: Iterable[str], split: bool) -> list[str]:
    if not split:
        return [""]  # named by what differs
    labels = labels_of(cell["combination"])
    return [labels.get(key, "") for key in vary]


def _score(cell: CellDocument, metric: str) -> str:
    value = cell["scores"].get(metric)
    return texts.score(value) if metric in cell["scores"] else ""


def _short_name(metric: str) -> str:
    return texts.cut(metric.rsplit(":")[-1], 12)
