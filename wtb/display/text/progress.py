"""What `wtb watch` shows: a sweep or all open ones, the workers and their queues. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from wtb.core import texts
from wtb.core.documents.common import CellCounts, CellStatus, counts_by_status
from wtb.core.documents.sweeps import LeaderDocument, WatchDocument, WatchedOneSweep, WatchedSweep, WorkerDocument
from wtb.core.texts import money, printable
from wtb.display.tables import facts, grid, wrapped
from wtb.display.text.costs import budgets_on_one_line

_ENDED: Final[tuple[CellStatus, ...]] = ("succeeded", "failed", "cancelled", "skipped", "set_aside")


def watched(document: WatchDocument, width: int, color: bool = False) -> str:
    """The whole of it, on at most `width` columns."""
    one = document.get("sweep")
    parts = [_sweep(one, width, color) if one is not None else _sweeps(document["sweeps"], width, color)]
    if one is None or one["queued"]:
        parts += [_workers(document["workers"], width, color), _queues(document, width)]
    return "\n".join(part for part in parts if part)


def line(document: WatchDocument) -> str:
    """The same on one line, for a log."""
    at = datetime.fromisoformat(document["at"]).astimezone().strftime("%H:%M:%S")
    sweep = document.get("sweep")
    if sweep is not None:
        parts = [f"{sweep['status']}: {_done(sweep['cells'])} cells, {_failed(sweep['cells']):,} failed", _runs(sweep)]
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


def _sweep(sweep: WatchedOneSweep, width: int, color: bool) -> str:
    title = f"{printable(sweep['name'])} ({sweep['id']}): {texts.colored(sweep['status'], sweep['status'], color)}\n"
    cells = sweep["cells"]
    by_status = [f"{count:,} {status.replace('_', ' ')}" for status, count in counts_by_status(cells).items()]
    best = [_leader(sweep, metric, found) for metric, found in sweep["best"].items() if found is not None]
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


def _leader(sweep: WatchedOneSweep, metric: str, found: LeaderDocument) -> tuple[str, str]:
    """Who leads by a metric, over which cases, and how sure that is."""
    as_of, many = sweep["as_of"], len(found["candidates"])
    over = f"{found['n']:,} cases" if as_of is None else f"as of {as_of['cases']:,} of {as_of['of']:,} cases"
    sure = "clear" if found["clear"] else f"{many:,} could be best" if many > 1 else ""
    choices = texts.describe_choices(found["combination"] or {})
    text = f"{found['mean']:.6g} by {choices} ({', '.join(filter(None, [over, sure]))})"
    return f"{'best' if found['clear'] else 'leads'} {metric}", text


def _sweeps(sweeps: Sequence[WatchedSweep], width: int, color: bool) -> str:
    if not sweeps:
        return "no sweep is open\n"
    rows = [
        [
            sweep["id"],
            sweep["name"],
            sweep["status"],
            "workers" if sweep["queued"] else "wtb run",
            _done(sweep["cells"]),
            f"{_failed(sweep['cells']):,}" if _failed(sweep["cells"]) else "",
            _rate(sweep["node_runs_per_s"]),
            money(sweep["usd"]) if sweep["usd"] else "",
        ]
        for sweep in sweeps
    ]
    headers = ["id", "name", "status", "run by", "cells", "failed", "runs/s", "spent"]
    right = {"cells", "failed", "runs/s", "spent"}
    notes = [f"{sweep['reason']}" if sweep["reason"] else "" for sweep in sweeps]
    return grid(headers, rows, width, right=right, whole={"id", "status"}, notes=notes, color=color)


def _workers(workers: Sequence[WorkerDocument], width: int, color: bool) -> str:
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


def _queues(document: WatchDocument, width: int) -> str:
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
    shown = grid(["queue", "waiting", "messages", "workers"], rows, width, right={"waiting", "messages", "workers"})
    if broker is None:
        return (shown if rows else "") + "no broker is named (WTB_BROKER_URL)\n"
    if not reached:
        return (shown if rows else "") + "\n".join(wrapped(f"broker out of reach: {broker['problem']}", width)) + "\n"
    return shown if rows else ""


def _done(cells: CellCounts) -> str:
    return f"{sum(cells[status] for status in _ENDED):,} of {cells['total']:,}"


def _failed(cells: CellCounts) -> int:
    return int(cells["failed"] + cells["set_aside"])


def _runs(sweep: WatchedSweep) -> str:
    rate = _rate(sweep["node_runs_per_s"])
    return f"{sweep['node_runs']:,}{f' ({rate} a second)' if rate else ''} node runs"


def _rate(found: float | None) -> str:
    return "" if found is None else f"{found:,.0f}" if found >= 10 else f"{found:.1f}"
