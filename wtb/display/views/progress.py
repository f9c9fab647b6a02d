"""The present state of sweeps and workers, as documents for whoever watches them."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, cast

from wtb.config.broker import Broker
from wtb.core.documents.shared_types import cell_counts
from wtb.core.errors import BrokerError
from wtb.core.serialization.plain_json import iso
from wtb.execution.runtime.budgets import budget_documents
from wtb.store import alerts
from wtb.store.control.executions import status_in_sweep
from wtb.store.database import Database
from wtb.store.process_identity import is_not_dead
from wtb.store.read import activity, queries, tallies
from wtb.store.runs.publishing import cluster_of
from wtb.store.runs.queue import DEFAULT_QUEUE
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.shared_types import RunStatus
    from wtb.core.documents.sweeps import (
        BrokerDocument,
        LeadersDocument,
        QueueDocument,
        StalledExecution,
        WatchDocument,
        WatchedOneSweep,
        WatchedQueue,
        WatchedSweep,
        WatchedWork,
        WorkerDocument,
    )


OPEN = ("running", "pending", "paused")
LEADERS_SHARE = 0.05  # of the time, at most, goes into who leads


def crew(database: Database) -> list[WorkerDocument]:
    """The live workers, each with its processes put together; those that died on this machine are left out.

    Returns:
        A document for each worker. `seen_s` is the seconds since the heartbeat that is the longest ago, `clock_s` how
        far its clock is ahead of the database's.
    """
    by_name: dict[str, WorkerDocument] = {}
    for row in filter(is_not_dead, activity.worker_rows(database)):
        worker = by_name.setdefault(
            row.worker,
            {
                "name": row.worker,
                "slots": 0,
                "busy": 0,
                "queues": [shown_queue(queue) for queue in row.queues or ()],
                "seen_s": 0.0,
                "version": row.version,
                "clock_s": row.clock_s,
            },
        )
        worker["slots"] += row.slots
        worker["busy"] += row.busy
        worker["seen_s"] = max(worker["seen_s"], row.seen_s)
    return list(by_name.values())


def shown_queue(queue: str | None) -> str:
    """A queue as people call it."""
    return queue or "default"


def without_worker(queues: Iterable[str | None], crew_rows: Iterable[WorkerDocument]) -> list[str]:
    """Those of some queues, as people call them, that none of the workers takes from."""
    served = {queue for worker in crew_rows for queue in worker["queues"]}
    return sorted({shown_queue(queue) for queue in queues} - served)


def takers(queues: Iterable[str | None], crew_rows: Iterable[WorkerDocument]) -> int:
    """Count the workers that take from at least one of some queues."""
    named = {shown_queue(queue) for queue in queues}
    return sum(not named.isdisjoint(worker["queues"]) for worker in crew_rows)


class Watch:
    """Looks at one sweep, or at all open ones, now and then; what happens in a second is counted between two looks."""

    def __init__(self, read: Callable[[], WatchDocument], sweep_id: str | None) -> None:
        """Make it.

        Args:
            read: Reads how things stand, as `Standing.read` does.
            sweep_id: The sweep that it looks at; None for all.
        """
        self._read = read
        self.sweep_id = sweep_id
        self._before: dict[str, tuple[float, int]] = {}

    def look(self) -> WatchDocument:
        """Return the present state. Raises InputError if the sweep does not exist any more."""
        document = self._read()
        at = time.monotonic()
        for sweep in [document["sweep"]] if "sweep" in document else document["sweeps"]:
            runs = sweep["node_runs"]
            before = self._before.get(sweep["id"])
            self._before[sweep["id"]] = (at, runs)
            if before is not None and at > before[0]:
                # The count falls if retention removes node runs between two looks.
                sweep["node_runs_per_s"] = max(0, runs - before[1]) / (at - before[0])
        return document


class Standing:
    """Reads the present state of one sweep, or of all open ones, with workers and queues."""

    def __init__(self, database: Database, sweep_id: str | None, broker: Broker | None) -> None:
        """Make it.

        Args:
            database: Where.
            sweep_id: The sweep; None for all that are open.
            broker: Whose messages are counted; None where none is named.
        """
        self._database = database
        self._sweep_id = sweep_id
        self._broker = broker
        self._leaders: LeadersDocument = {"as_of": None, "best": {}}
        self._leaders_at = 0.0
        self._leaders_of: str | None = None  # the status that the sweep had then

    def read(self) -> WatchDocument:
        """Return the present state, in which no rates are known yet. Raises InputError if the sweep was removed."""
        crew_rows = crew(self._database)
        queues, broker = self._queues(crew_rows)
        document: WatchDocument = {"at": iso(time.time()), "workers": crew_rows, "queues": queues, "broker": broker}
        if self._sweep_id is None:
            return {**document, "sweeps": self._open()}
        return {**document, "sweep": self._watched_sweep(queries.find_sweep(self._database, self._sweep_id), crew_rows)}

    def _watched_sweep(self, row: SweepRow, crew_rows: list[WorkerDocument]) -> WatchedOneSweep:
        from wtb.analysis.running_totals import live  # with numpy: lists need none

        # Does nothing if the scheduler has just done it.
        tallies.tally(self._database, row.id)
        standing = live(self._database, row)
        status: str = standing["sweep"]["status"]
        reason = standing["sweep"]["reason"]
        # A single execution may wait for a person while its sweep runs, or fail while its sweep completes.
        if row.kind == "single":
            status, reason = status_in_sweep(row, queries.single_execution(self._database, row.id))
        return {
            "id": row.id,
            "name": row.name,
            "status": cast("RunStatus", status),
            "reason": reason,
            "queued": row.queued,
            "priority": row.priority,
            "cells": standing["cells"],
            **self._work(row),
            "budgets": budget_documents(self._database, row.id),
            **self._who_leads(row),
            "slots": activity.slots_on(self._database, row.id) if row.queued else None,
            "stalled": stalled_document(self._database, row),
            "warnings": warnings(self._database, row, crew_rows),
        }

    def _who_leads(self, row: SweepRow) -> LeadersDocument:
        """Return the leaders, a little out of date if they take long to compute."""
        from wtb.analysis.running_totals import leaders

        began = time.monotonic()
        # A sweep that has just ended is read at once, so that its last picture is final.
        if began >= self._leaders_at or row.status != self._leaders_of:
            self._leaders, self._leaders_of = leaders(self._database, row), row.status
            ended = time.monotonic()
            # The pause grows with the time that the leaders take, which grows with the sweep.
            self._leaders_at = ended + (ended - began) / LEADERS_SHARE
        return self._leaders

    def _open(self) -> list[WatchedSweep]:
        rows = [row for status in (*OPEN, "waiting") for row in queries.list_sweeps(self._database, status=status)]
        return [
            {
                "id": row.id,
                "name": row.name,
                "status": row.shown_status,
                "reason": row.reason or row.execution_reason,
                "queued": row.queued,
                "priority": row.priority,
                "cells": cell_counts(row.cells, row.counts),
                **self._work(row),
            }
            for row in rows
        ]

    def _work(self, row: SweepRow) -> WatchedWork:
        runs, usd = queries.spent(self._database, row.id)
        return {"node_runs": runs, "node_runs_per_s": None, "usd": usd}

    def _queues(self, crew_rows: list[WorkerDocument]) -> tuple[list[WatchedQueue], BrokerDocument | None]:
        pending = activity.waiting(self._database)
        served = {name for worker in crew_rows for name in worker["queues"]}
        # DEFAULT_QUEUE is the empty string, which workers and documents show as `default`.
        names = sorted({DEFAULT_QUEUE if name == "default" else name for name in served} | pending.keys())
        depths: Mapping[str, int] = {}
        broker: BrokerDocument | None = None
        if self._broker is not None:
            broker = {"url": self._broker.url, "reached": True, "problem": None}
            try:
                depths = self._broker.depths(names, cluster_of(self._database))
            # The database has the state of the sweeps, so `wtb watch` continues without the broker.
            except BrokerError as error:
                broker |= {"reached": False, "problem": str(error)}
        queues: list[WatchedQueue] = [
            {
                "name": shown_queue(name),
                "pending": pending.get(name, 0),
                "messages": depths.get(name),
                "workers": takers([name], crew_rows),
            }
            for name in names
        ]
        return queues, broker


def warnings(database: Database, row: SweepRow, crew_rows: list[WorkerDocument]) -> list[str]:
    """Return the reasons why a sweep does not continue, or is slower than it could be; empty if there are none."""
    if row.status == "paused":
        return [f"paused: {row.reason or 'nobody gave a reason'}; continue with: wtb resume {row.id}"]
    if row.status not in ("pending", "running"):
        return []
    reasons = [silent(stalled) for stalled in stalled_document(database, row)]
    if not row.queued:
        return reasons
    refused = activity.last_refusal(database, row.id)
    if refused is not None:
        reasons.append(f"refused by {refused.worker}: {refused.reason}")
    pending = activity.waiting(database, row.id)
    for queue in without_worker(pending, crew_rows):
        count = pending[DEFAULT_QUEUE if queue == "default" else queue]
        reasons.append(
            f"{count:,} execution{'' if count == 1 else 's'} wait for a worker on the queue {queue!r}; start one with: "
            f"{worker_command(queue)}"
        )
    return reasons


def stalled_document(database: Database, row: SweepRow) -> list[StalledExecution]:
    """Executions of a sweep in which a node has reported nothing for longer than `run.stall`."""
    return [
        {"execution": execution.id, "case": execution.case, "since": iso(execution.since)}
        for execution in alerts.stalled(database, row.id)
    ]


def silent(stalled: StalledExecution) -> str:
    """Return a sentence on a stalled execution, with the command that ends it."""
    since = datetime.fromisoformat(stalled["since"]).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    what = f"execution {stalled['execution']} (case {stalled['case']}) has reported nothing since {since}"
    return f"{what}; end what it does with: wtb pause {stalled['execution']} --now"


def worker_command(queue: str) -> str:
    """Return the command that starts a worker which takes from a queue."""
    return "wtb worker" if queue == "default" else f"wtb worker --queues {shlex.quote(queue)}"


def queued_document(database: Database, row: SweepRow) -> QueueDocument:
    """Return the part of `status` about a sweep that workers run: slots at work on it, and what waits, and why."""
    crew_rows = crew(database)
    pending = activity.waiting(database, row.id)
    rejecting = activity.rejecting(database, row.id)
    open_now = row.status in ("pending", "running")
    return {
        "priority": row.priority,
        "slots": activity.slots_on(database, row.id),
        "waiting": [
            {
                "queue": shown_queue(queue),
                "executions": count,
                "why": _why(shown_queue(queue), crew_rows, row, rejecting),
            }
            for queue, count in sorted(pending.items())
            if open_now or row.status == "paused"
        ],
        "warnings": warnings(database, row, crew_rows) if open_now else [],
    }


def _why(queue: str, crew_rows: list[WorkerDocument], row: SweepRow, rejecting: Collection[str]) -> str:
    if row.status == "paused":
        return "the sweep is paused"
    serving = [worker for worker in crew_rows if queue in worker["queues"]]
    if not serving:
        return f"no worker takes from the queue {queue!r}"
    names = [worker["name"] for worker in serving]
    if all(name in rejecting for name in names):
        return f"all workers of the queue {queue!r} reject its code: {', '.join(names)}"
    if all(worker["busy"] >= worker["slots"] for worker in serving):
        return "no slot is free"
    return "a free slot is about to take it"
