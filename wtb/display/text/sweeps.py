"""Sweeps in a terminal: the list, the status, the summary, the table of cells, and the screen of `wtb watch`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from rich.cells import cell_len

from wtb.core import texts
from wtb.core.documents import sweeps as documents
from wtb.core.documents.shared_types import CellCounts, CellStatus, counts_by_status
from wtb.core.factors import label_columns, labels_of
from wtb.core.ids import DEFAULT_PROJECT
from wtb.core.texts import money, printable
from wtb.display import failure_causes
from wtb.display.tables import facts, grid, wrapped
from wtb.display.text.approvals import asking_modes
from wtb.display.text.costs import budgets_on_one_line, limits

_ENDED: Final[tuple[CellStatus, ...]] = ("succeeded", "failed", "cancelled", "skipped", "set_aside")


def watched(document: documents.WatchDocument, width: int, color: bool = False) -> str:
    """The whole of it, on at most `width` columns."""
    sweep = document.get("sweep")
    parts = [_sweep(sweep, width, color) if sweep is not None else _sweeps(document["sweeps"], width, color)]
    # Workers and queues have no part in a sweep that `wtb run` executes itself.
    if sweep is None or sweep["queued"]:
        parts += [_workers(document["workers"], width, color), _queues(document, width)]
    return "\n".join(part for part in parts if part)


def line(document: documents.WatchDocument) -> str:
    """Return what `watched` shows as one line, for a log."""
    at = datetime.fromisoformat(document["at"]).astimezone().strftime("%H:%M:%S")
    sweep = document.get("sweep")
    if sweep is not None:
        parts = [
            f"{sweep['status']}: {_done(sweep['cells'])} cells, {_failures(sweep['cells']):,} failed",
            _runs(sweep),
        ]
        parts += [money(sweep["usd"])] if sweep["usd"] else []
        parts += sweep["warnings"]
    else:
        sweeps = document["sweeps"]
        parts = [texts.plural(len(sweeps), "open sweep")]
        parts += [f"{each['name']} ({each['status']}) {_done(each['cells'])}" for each in sweeps]
    if sweep is None or sweep["queued"]:
        slots, busy = (sum(worker[key] for worker in document["workers"]) for key in ("slots", "busy"))
        parts.append(
            f"{texts.plural(len(document['workers']), 'worker')}, {busy:,} of {texts.plural(slots, 'slot')} busy"
        )
        if document["broker"] is not None and not document["broker"]["reached"]:
            parts.append("broker out of reach")
    return f"{at} {printable('; '.join(parts))}"


def _sweep(sweep: documents.WatchedOneSweep, width: int, color: bool) -> str:
    title = f"{printable(sweep['name'])} ({sweep['id']}): {texts.colored(sweep['status'], sweep['status'], color)}\n"
    cells = sweep["cells"]
    by_status = [f"{count:,} {status.replace('_', ' ')}" for status, count in counts_by_status(cells).items()]
    best = [_leader(sweep, metric, leader) for metric, leader in sweep["best"].items() if leader is not None]
    pairs = [
        ("cells", f"{cells['total']:,}: {', '.join(by_status)}"),
        ("node runs", _runs(sweep).removesuffix(" node runs")),
        ("spent", money(sweep["usd"]) if sweep["usd"] else ""),
        ("budgets", budgets_on_one_line(sweep["budgets"])),
        *best,
        ("slots", f"{sweep['slots']:,} at work on it" if sweep["slots"] else ""),
        ("priority", str(sweep["priority"]) if sweep["priority"] else ""),
        *(("look", warning) for warning in sweep["warnings"]),
    ]
    return title + facts(pairs, width)


def _leader(sweep: documents.WatchedOneSweep, metric: str, leader: documents.LeaderDocument) -> tuple[str, str]:
    """Return the leader by a metric, the number of its cases, and whether it is clear."""
    as_of, many = sweep["as_of"], len(leader["candidates"])
    basis = f"{leader['n']:,} cases" if as_of is None else f"as of {as_of['cases']:,} of {as_of['of']:,} cases"
    sure = "clear" if leader["clear"] else f"{many:,} could be best" if many > 1 else ""
    choices = texts.describe_choices(leader["combination"] or {})
    text = f"{leader['mean']:.6g} by {choices} ({', '.join(filter(None, [basis, sure]))})"
    return f"{'best' if leader['clear'] else 'leads'} {metric}", text


def _sweeps(sweeps: Sequence[documents.WatchedSweep], width: int, color: bool) -> str:
    if not sweeps:
        return "no sweep is open\n"
    rows = [
        [
            sweep["id"],
            sweep["name"],
            sweep["status"],
            "workers" if sweep["queued"] else "wtb run",
            _done(sweep["cells"]),
            f"{_failures(sweep['cells']):,}" if _failures(sweep["cells"]) else "",
            _rate(sweep["node_runs_per_s"]),
            money(sweep["usd"]) if sweep["usd"] else "",
        ]
        for sweep in sweeps
    ]
    headers = ["id", "name", "status", "run by", "cells", "failed", "runs/s", "spent"]
    right = {"cells", "failed", "runs/s", "spent"}
    notes = [f"{sweep['reason']}" if sweep["reason"] else "" for sweep in sweeps]
    return grid(headers, rows, width, right=right, whole={"id", "status"}, notes=notes, color=color)


def _workers(workers: Sequence[documents.WorkerDocument], width: int, color: bool) -> str:
    if not workers:
        return "no worker is there; start one with: wtb worker\n"
    rows = [
        [
            worker["name"],
            f"{worker['busy']:,} of {worker['slots']:,}",
            f"{worker['seen_s']:.0f} s ago",
            ",".join(worker["queues"]),
        ]
        for worker in workers
    ]
    headers = ["worker", "busy", "seen", "queues"]
    return grid(headers, rows, width, right={"busy", "seen"}, color=color)


def _queues(document: documents.WatchDocument, width: int) -> str:
    broker = document["broker"]
    reached = broker is not None and broker["reached"]
    rows = [
        [
            queue["name"],
            f"{queue['pending']:,}",
            f"{queue['messages']:,}" if queue["messages"] is not None else "",
            f"{queue['workers']:,}",
        ]
        for queue in document["queues"]
    ]
    table = grid(["queue", "waiting", "messages", "workers"], rows, width, right={"waiting", "messages", "workers"})
    if broker is None:
        return (table if rows else "") + "no broker is named (WTB_BROKER_URL)\n"
    if not reached:
        return (table if rows else "") + "\n".join(wrapped(f"broker out of reach: {broker['problem']}", width)) + "\n"
    return table if rows else ""


def _done(cells: CellCounts) -> str:
    return f"{sum(cells[status] for status in _ENDED):,} of {cells['total']:,}"


def _failures(cells: CellCounts) -> int:
    return int(cells["failed"] + cells["set_aside"])


def _runs(sweep: documents.WatchedSweep) -> str:
    rate = _rate(sweep["node_runs_per_s"])
    return f"{sweep['node_runs']:,}{f' ({rate} a second)' if rate else ''} node runs"


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


_MOST_COLUMNS = 5  # of varied nodes and metrics in the table of cells; more of them share one column


def listed(document: documents.SweepsDocument, width: int, color: bool = False) -> str:
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
            _or_nothing(_failures(sweep["cells"])),
            texts.brief_moment(sweep["started_at"] or sweep["created_at"], time.time()),
        ]
        for sweep in sweeps
    ]
    return grid(headers, rows, width, right={"cells", "failed"}, whole={"id", "status", "started"}, color=color)


def listed_runs(document: documents.RunsDocument, width: int, color: bool = False) -> str:
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


def _project(sweep: documents.SweepDocument | documents.SweepStanding | documents.RunDocument) -> str:
    """Its project, unless that is the one of all that name none."""
    project = sweep["project"] or DEFAULT_PROJECT
    return "" if project == DEFAULT_PROJECT else project


def _share(cells: CellCounts) -> str:
    done = cells["succeeded"] + _failures(cells) + cells["cancelled"] + cells["skipped"]
    return f"{done:,}" if done == cells["total"] else f"{done:,} of {cells['total']:,}"


def _or_nothing(count: int) -> str:
    return f"{count:,}" if count else ""


def _seconds(iso: str | None) -> float | None:
    return None if iso is None else datetime.fromisoformat(iso).timestamp()


def status(document: documents.StatusDocument, width: int, color: bool = False) -> str:
    """Show how far a sweep is."""
    sweep = document["sweep"]
    title = f"{printable(sweep['name'])} ({sweep['id']}): {texts.colored(sweep['status'], sweep['status'], color)}"
    return title + "\n" + facts(_progress(document), width) + _hint(document, width)


def _progress(document: documents.StatusDocument) -> list[tuple[str, str]]:
    sweep, runs, cost = document["sweep"], document["node_runs"], document["cost"]
    owners = (f"process {owner['pid']} on {owner['host']}: {owner['state']}" for owner in document["owners"])
    spent = [money(cost["usd"])] if cost["usd"] else []
    if cost.get("unknown"):
        spent = [f"{money(cost['usd'])} recorded, the rest is unknown"]
    # Less than this is rounding of a difference between sums.
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
        # The executions of a submitted sweep are owned by workers, which have a line of their own below.
        ("owner", "; ".join(owners) if document["queue"] is None else ""),
        *_queued(document["queue"], sweep["status"] in ("pending", "running", "paused")),
        *(("look", warning) for warning in document["warnings"]),
    ]


def _queued(queue: documents.QueueDocument | None, is_open: bool) -> list[tuple[str, str]]:
    """The facts of a sweep that workers run."""
    if queue is None:
        return []
    waiting = [f"{texts.plural(group['executions'], 'execution')} ({group['why']})" for group in queue["waiting"]]
    return [
        ("workers", f"run it; {texts.plural(queue['slots'], 'slot')} at work on it just now" if is_open else "ran it"),
        ("waiting", "; ".join(waiting)),
        ("priority", str(queue["priority"]) if queue["priority"] else ""),
        *(("look", warning) for warning in queue["warnings"]),
    ]


def _versioned(sweep: documents.SweepStanding) -> str:
    version = f" (version {sweep['workflow_version']})" if sweep["workflow_version"] else ""
    return f"{sweep['workflow']}{version}"


def _cells(cells: CellCounts) -> str:
    counts = counts_by_status(cells)
    if len(counts) == 1:
        return f"{cells['total']:,}, all {next(iter(counts)).replace('_', ' ')}"
    by_status = [f"{count:,} {status.replace('_', ' ')}" for status, count in counts.items()]
    return f"{cells['total']:,}: {', '.join(by_status)}" if by_status else f"{cells['total']:,}"


def _hint(document: documents.StatusDocument, width: int) -> str:
    hint = document["next"]
    if hint is None:
        return ""
    command = f"continue with: {hint['command']}"
    line = f"{printable(hint['why'])}; {command}"
    if cell_len(line) > width:  # the command stays on one line, so that it can be copied
        line = "\n".join([*wrapped(hint["why"], width), command])
    return f"\n{line}\n"


def summary(document: documents.SummaryDocument, width: int, color: bool = False) -> str:
    """Show what a sweep was asked to do, and how far it is."""
    sweep, definition = document["sweep"], document["definition"]
    title = f"{printable(sweep['name'])} ({sweep['id']}): {texts.colored(sweep['status'], sweep['status'], color)}"
    size = (
        f"{texts.plural(definition['combinations'], 'combination')} x {texts.plural(definition['cases'], 'case')}"
        f" x {texts.plural(definition['repeats'], 'repeat')}"
    )
    vary = [f"{node}: {', '.join(variants)}" for node, variants in definition["vary"].items()]
    pairs = [
        ("size", size),
        *(("" if number else "vary", text) for number, text in enumerate(vary)),
        ("baseline", texts.describe_choices(definition["baseline"]) if definition["baseline"] else ""),
        ("metrics", ", ".join(document["metrics"])),
        ("params", texts.describe_choices(definition["params"]) if definition["params"] else ""),
        ("limits", " ".join(limits(definition["limits"]))),
    ]
    text = title + "\n" + facts([_progress(document)[0], *pairs, *_progress(document)[1:]], width)
    return text + (_hint(document, width) or "\n") + f"more: wtb matrix | show --cells | log {sweep['id']}\n"


def cells(
    cell_documents: Sequence[documents.CellDocument],
    vary: Sequence[str],
    metrics: Sequence[str],
    width: int,
    color: bool = False,
) -> str:
    """Cells with their statuses, scores and executions; what went wrong stands below."""
    repeats = any(cell["repeat"] for cell in cell_documents)
    vary = label_columns([cell["combination"] for cell in cell_documents]) or vary
    split = len(vary) + len(metrics) <= _MOST_COLUMNS
    nodes = list(vary) if split else ["combination"]
    shown_metrics = list(metrics)[: max(0, _MOST_COLUMNS - len(nodes))]
    headers = [
        "case",
        *(["repeat"] if repeats else []),
        *nodes,
        "status",
        *map(_short_name, shown_metrics),
        "execution",
    ]
    rows = [
        [
            cell["case"],
            *([str(cell["repeat"])] if repeats else []),
            *_choices(cell, vary, split),
            cell["status"],
            *(_score(cell, metric) for metric in shown_metrics),
            cell["execution"] or "",
        ]
        for cell in cell_documents
    ]
    notes = ["" if not cell["error"] else texts.hinted(cell["error"]) for cell in cell_documents]
    right = {"repeat", *map(_short_name, shown_metrics)}
    named = None if split else {"combination": [cell["combination"] for cell in cell_documents]}
    whole = {"status", "execution"}
    return grid(headers, rows, width, right=right, whole=whole, notes=notes, combinations=named, color=color)


def _choices(cell: documents.CellDocument, vary: Iterable[str], split: bool) -> list[str]:
    if not split:
        return [""]  # named by what differs
    labels = labels_of(cell["combination"])
    return [labels.get(key, "") for key in vary]


def _score(cell: documents.CellDocument, metric: str) -> str:
    score = cell["scores"].get(metric)
    return texts.score(score) if metric in cell["scores"] else ""


def _short_name(metric: str) -> str:
    return texts.cut(metric.rsplit(":")[-1], 12)
