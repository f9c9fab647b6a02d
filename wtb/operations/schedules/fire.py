"""Carry out one fire of a schedule in a process of its own: submit its sweep, run it, judge it, notify.

The process that claimed the fire takes it as far as possible; if it dies, the next one continues from there. A
fire gets at most one sweep: the transaction that submits it notes it, and fails where the claim was lost.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from wtb.analysis.comparison.compare import compare_sweeps
from wtb.analysis.comparison.verdicts import WORSE, passes
from wtb.analysis.gates import check_gates, judged
from wtb.analysis.matrix.build import freeze
from wtb.config.webhooks import NotificationError, send
from wtb.core.cron import BAD, next_step
from wtb.core.errors import ConflictError, InputError, StoreError, WTBError
from wtb.core.serialization.plain_json import iso
from wtb.display.matrix.gates import gate_text
from wtb.execution.runtime.code_drift import accept_code
from wtb.execution.runtime.sweep_run import Ended, SweepRun, take_over
from wtb.operations.sweep import prepare_file
from wtb.planning.binding import Bound, bind
from wtb.planning.checks import check_pool
from wtb.planning.prepare import Prepared, stored_spec
from wtb.store import schedules as store
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.read import aggregates, baselines, queries
from wtb.store.runs.slots import LEASE_S
from wtb.store.schedules import Claim

Row = Mapping[str, Any]
Work = Callable[[SweepRun, Bound], Ended]
Say = Callable[[str], None]

PAUSES_S = (5.0, 60.0, 300.0, 1_800.0, 7_200.0)  # between tries to send the notification
NOTIFY_TRIES = len(PAUSES_S) + 1
WAITED_S = 5.0  # longer pauses are left to later rounds
CELLS_NAMED = 10
LATER_S = 60.0  # until somebody looks again at a fire that others are busy with


class _Later(Exception):
    """Another process is busy with it; the message says which."""


def carry_out(database: Database, claimed: Claim, work: Work, say: Say) -> None:
    """Take a fire as far as possible now.

    Args:
        database: The database of the schedule.
        claimed: The fire, with the token of its claim.
        work: Runs a sweep to its end.
        say: Takes messages for people.

    Raises:
        StoreError: If the database is out of reach; the fire is continued later.
    """
    with _lease_renewed(database, claimed):
        while (fire := store.find_fire(database, claimed)) is not None:
            match next_step(fire):
                case "submit":
                    _submit(database, claimed, fire, say)
                case "run":
                    try:
                        _run(database, claimed, fire, work, say)
                    except _Later as busy:
                        say(f"{fire['schedule']}: {busy}")
                        store.release(database, claimed, after=LATER_S)
                        return
                case "judge":
                    _judge(database, claimed, fire, say)
                case "tell":
                    pause = _notify(database, claimed, fire, say)
                    if pause > WAITED_S:
                        store.release(database, claimed, after=pause)
                        return
                    time.sleep(pause)
                case None:
                    store.release(database, claimed)
                    return


@contextmanager
def _lease_renewed(database: Database, claimed: Claim) -> Iterator[None]:
    """Renew the lease of a fire, whatever is done meanwhile."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(LEASE_S / 3):
            with suppress(StoreError):
                store.renew(database, claimed)

    thread = threading.Thread(target=renew, name="wtb-fire", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _submit(database: Database, claimed: Claim, fire: Row, say: Say) -> None:
    def note(connection: sa.Connection, sweep_id: str) -> None:
        store.mark_submitted(connection, claimed, sweep_id)

    try:
        prepared = prepared_for(database, Path(fire["file"]), fire["session"])
        priority = prepared.bound.spec.run.priority
        prepared.submit(database, workspaces_of(database), queued=fire["queued"], priority=priority, also=note)
    except StoreError:
        raise
    except WTBError as error:
        _fail(database, claimed, fire, f"its sweep was refused: {error}", say)


def prepared_for(database: Database, file: Path, session: str | None) -> Prepared:
    """Prepare the sweep of a file as a fire submits it, for a session if one is named. Raises InputError."""
    prepared = prepare_file(file, session=session)
    check_gates(database, prepared.bound.spec)
    return prepared


def _run(database: Database, claimed: Claim, fire: Row, work: Work, say: Say) -> None:
    """Run its sweep here, or continue it if the process that ran it has died."""
    try:
        row = queries.find_sweep(database, fire["sweep_id"])
        bound = bind(stored_spec(row))
        check_pool(bound)
        with _others_busy():
            take_over(database, row["id"])
        accept_code(database, row, bound, allow=False)
        with _others_busy():
            run = SweepRun(database, row, bound, workspaces=workspaces_of(database))
        ended = work(run, bound)
    except StoreError:
        raise
    except WTBError as error:
        _fail(database, claimed, fire, f"its sweep {fire['sweep_id']} cannot be run: {error}", say)
        return
    if ended.status == "running":
        raise _Later(ended.reason)


@contextmanager
def _others_busy() -> Iterator[None]:
    try:
        yield
    except ConflictError as error:
        raise _Later(str(error)) from error


def _fail(database: Database, claimed: Claim, fire: Row, why: str, say: Say) -> None:
    _end(database, claimed, fire, "failed", why.splitlines(), None, say)


def _end(
    database: Database, claimed: Claim, fire: Row, verdict: str, why: list[str], baseline: str | None, say: Say
) -> None:
    """Record the verdict of a fire. A notification is sent if it is bad, or good again."""
    tells = bool(fire["notify"]) and (verdict in BAD or _was_bad(database, fire))
    if store.end_fire(database, claimed, verdict, [*(fire["why"] or []), *why], baseline=baseline, tell=tells):
        say(f"{fire['schedule']}: {verdict}" + (f": {'; '.join(why)}" if why else ""))


# Judging


def _judge(database: Database, claimed: Claim, fire: Row, say: Say) -> None:
    if fire["sweep_status"] is None:
        _fail(database, claimed, fire, f"its sweep {fire['sweep_id']} was deleted", say)
        return
    sweep = queries.find_sweep(database, fire["sweep_id"])
    freeze(database, sweep["id"])
    verdict, why, baseline = _verdict(database, fire, sweep)
    _end(database, claimed, fire, verdict, why, baseline, say)


def _was_bad(database: Database, fire: Row) -> bool:
    """Return whether the previous fire ended badly; if a later one has ended already, it has sent the notification."""
    last = store.last_ended(database, fire["schedule_id"])
    if last is None or (fire["started_at"] or math.inf) < (last["started_at"] or last["finished_at"]):
        return False
    return last["verdict"] in BAD


def _verdict(database: Database, fire: Row, sweep: Row) -> tuple[str, list[str], str | None]:
    """The verdict on a fire's sweep, why, and the sweep that it was compared with."""
    if sweep["status"] != "completed":
        return (
            "failed",
            [f"its sweep was {sweep['status']}" + (f": {sweep['reason']}" if sweep["reason"] else "")],
            None,
        )
    matrix = judged(database, sweep)
    cells = matrix["cells"]
    wrong = [f"gate failed: {gate_text(gate)}" for gate in matrix["gates"] if not passes(gate)]
    if failed := cells["failed"] + cells["set_aside"]:
        wrong.append(f"{failed:,} of {cells['total']:,} cells failed")
    try:
        before = _baseline(database, fire)
    except InputError as error:
        return "failed", [*wrong, str(error)], None
    if before is None:
        errors = aggregates.score_errors(database, sweep["id"])
        wrong += [f"{count:,} scores of {metric} failed, such as: {reason}" for metric, count, reason in errors]
        why = ["it has no baseline" if fire["baseline"] is None else "no fire before it ended well, to compare it with"]
        return ("failed", wrong, None) if wrong else ("cannot tell", why, None)
    compared = _compared(database, fire, before, sweep)
    verdict = "failed" if wrong and compared["verdict"] != WORSE else compared["verdict"]
    return verdict, [*wrong, *compared["because"]], before["id"]


def _baseline(database: Database, fire: Row) -> Row | None:
    """The sweep to compare with. Raises InputError where the baseline that was named is not there any more."""
    if fire["baseline"] is None:
        return None
    if fire["baseline"] != baselines.LAST:
        return baselines.named_baseline(database, fire["session"], fire["baseline"])
    found = store.last_ended(database, fire["schedule_id"], well=True)
    return None if found is None else queries.find_sweep(database, found["sweep_id"])


def _compared(database: Database, fire: Row, before: Row, sweep: Row) -> dict[str, Any]:
    return compare_sweeps(database, before, sweep, fire["margin"])


# Notifying


def _notify(database: Database, claimed: Claim, fire: Row, say: Say) -> float:
    """Try to send the notification of a fire. Returns after how many seconds to try again, or None.

    It is sent at least once: if the process dies between sending and recording that, it is sent again.
    """
    number = fire["notify_tries"] + 1
    if number > NOTIFY_TRIES:
        store.end_telling(database, claimed, fire["notify_error"] or "its process died while it sent the notification")
        return 0.0
    if not store.begin_telling(database, claimed):
        return 0.0
    try:
        send(fire["notify"], _message(database, fire), f"{fire['schedule_id']}-{fire['fire_at']:.3f}")
    except NotificationError as error:
        say(f"{fire['schedule']}: the notification was not sent (try {number} of {NOTIFY_TRIES}): {error}")
        store.end_telling(database, claimed, str(error), again=number < NOTIFY_TRIES)
        return PAUSES_S[number - 1] if number < NOTIFY_TRIES else 0.0
    store.end_telling(database, claimed, None)
    return 0.0


def _message(database: Database, fire: Row) -> dict[str, Any]:
    return {
        "schedule": fire["schedule"],
        "fire_at": iso(fire["fire_at"]),
        "verdict": fire["verdict"],
        "because": fire["why"] or [],
        "sweep": fire["sweep_id"],
        "baseline": fire["baseline_id"],
        "cells": _worse_cells(database, fire),
    }


def _worse_cells(database: Database, fire: Row) -> list[dict[str, Any]]:
    if fire["baseline_id"] is None or fire["sweep_status"] is None:
        return []
    try:
        before, after = (queries.find_sweep(database, fire[key]) for key in ("baseline_id", "sweep_id"))
    except InputError:  # the baseline was deleted meanwhile
        return []
    cells = _compared(database, fire, before, after)["cells"]
    return [cell for cell in cells if cell["what"] in ("failed", "worse")][:CELLS_NAMED]
