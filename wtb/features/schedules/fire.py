"""Carry out one fire of a schedule in a process of its own: submit its sweep, run it, judge it, notify.

The process that claimed the fire takes it as far as possible; if it dies, the next one continues from there. A
fire gets at most one sweep: the transaction that submits it notes it, and fails where the claim was lost.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypedDict

import sqlalchemy as sa

from wtb.analysis.comparison.reasons import origins
from wtb.analysis.comparison.series import compare_night, line_of_fire
from wtb.analysis.comparison.verdicts import UNCLEAR, WORSE, passes
from wtb.analysis.gates import check_gates
from wtb.analysis.kept_matrix import judged
from wtb.analysis.matrix.build import freeze
from wtb.config.webhooks import NotificationError, page_url, send
from wtb.core.cron import BAD
from wtb.core.documents.comparison import CodeChange, ComparedCell, ComparisonDocument, TextFileChange
from wtb.core.documents.matrix import GateDocument
from wtb.core.errors import ConflictError, InputError, StoreError, WTBError
from wtb.core.frozen import frozen
from wtb.core.ids import log_ids
from wtb.core.provider_faults import is_waiting
from wtb.core.serialization.plain_json import iso
from wtb.core.serialization.user_modules import without_user_code
from wtb.core.texts import plural
from wtb.display.figures import UNDECIDED, gate_text
from wtb.execution.runtime.code_drift import accept_code
from wtb.execution.runtime.sweep_run import SweepRun, reclaim_sweep
from wtb.execution.sandbox.prepared_sweep import prepared_apart
from wtb.features.schedules import queries as store
from wtb.features.schedules.queries import Claim
from wtb.operations.context import Context
from wtb.operations.running.local import ShowProgress, follow
from wtb.operations.running.preparing import check_threads, described_apart, own_workspaces, rebind, with_options
from wtb.planning.binding import Bound
from wtb.planning.prepare import Prepared, prepare, stored_spec
from wtb.planning.sweep_spec import load_spec
from wtb.store.access.sessions import session_name
from wtb.store.database import Database
from wtb.store.read import aggregates, baselines, queries
from wtb.store.read.baselines import Fire
from wtb.store.runs.slots import LEASE_S
from wtb.store.runs.submit import project_of_submission
from wtb.store.tables.sweeps import SweepRow

FIRE = "the process of a fire"
FIRES = "fires"  # the folder of its node processes


@contextmanager
def prepared_fire(context: Context, file: Path, session: str | None) -> Iterator[Prepared]:
    """Prepare the sweep of a fire, to be submitted within this context.

    Args:
        context: Where the schedule is.
        file: The sweep file.
        session: The session of the schedule.

    Yields:
        The sweep, checked.

    Raises:
        WTBError: With everything that is wrong, one line each.
    """
    spec = with_options(load_spec(file), session=session)
    if spec.run.pool == "thread":
        check_threads(context.database, spec)
        with without_user_code(None):
            yield prepare(spec)
        return
    project = project_of_submission(context.database, session_name(spec.session), spec.project)
    with (
        own_workspaces(context, project, FIRES) as (workspaces, owner),
        prepared_apart(spec, file, workspaces, owner) as prepared,
    ):
        yield prepared


@contextmanager
def code_of_fire(context: Context, sweep: SweepRow) -> Iterator[Bound]:
    """Bind the stored sweep of a fire to its code as it is now, to run within this context.

    Args:
        context: Where it is.
        sweep: Its row.

    Yields:
        The code, which node processes run unless the sweep names the thread pool.

    Raises:
        WTBError: If the code is missing, or does not fit its pool.
    """
    spec = stored_spec(sweep)
    if spec.run.pool == "thread":
        check_threads(context.database, spec)
        with without_user_code(None):
            yield rebind(context, sweep)
        return
    yield described_apart(context, sweep, FIRES)


Say = Callable[[str], None]

PAUSES_S = (5.0, 60.0, 300.0, 1_800.0, 7_200.0)  # between tries to send the notification
NOTIFY_TRIES = len(PAUSES_S) + 1
WAITED_S = 5.0  # longer pauses are left to later rounds
CELLS_NAMED = 10
LATER_S = 60.0  # until somebody looks again at a fire that others are busy with


class _Later(Exception):
    """Another process is busy with the fire, which the message names."""


def carry_out(context: Context, claimed: Claim, *, progress: ShowProgress | None = None, signals: bool = True) -> None:
    """Take a fire as far as possible now.

    Args:
        context: Where the schedule is.
        claimed: The fire, with the token of its claim.
        progress: Called several times a second while its sweep runs here.
        signals: The first SIGINT or SIGTERM stops new work of a sweep that runs here.

    Raises:
        StoreError: If the database is out of reach; the fire is continued later.
    """
    database, say = context.database, context.report
    with _lease_renewed(database, claimed), without_user_code(FIRE):
        # Each step is recorded, and read again here: another process may have carried the fire on.
        while (fire := store.find_fire(database, claimed)) is not None:
            with log_ids(schedule=fire.schedule, sweep=fire.sweep_id):
                match fire.next_step:
                    case "submit":
                        _submit(context, claimed, fire)
                    case "run":
                        try:
                            _run(context, claimed, fire, progress, signals)
                        except _Later as busy:
                            say(f"{fire.schedule}: {busy}")
                            store.release(database, claimed, after=LATER_S)
                            return
                    case "judge":
                        _judge(database, claimed, fire, say)
                    case "notify":
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
    """Renew the lease of a fire on a thread until the end of the context, whatever is done meanwhile."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(LEASE_S / 3):
            # Out of reach for a moment: a lease outlives three tries.
            with suppress(StoreError):
                store.renew(database, claimed)

    thread = threading.Thread(target=renew, name="wtb-fire", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _submit(context: Context, claimed: Claim, fire: Fire) -> None:
    database = context.database

    def note(connection: sa.Connection, sweep_id: str) -> None:
        store.mark_submitted(connection, claimed, sweep_id)

    try:
        with prepared_fire(context, Path(fire.file), fire.session) as prepared:
            spec = prepared.bound.spec
            check_gates(database, spec)
            prepared.submit(database, context.workspaces, queued=fire.queued, priority=spec.run.priority, also=note)
    # Nothing is wrong with the sweep: a later round submits it.
    except StoreError:
        raise
    except WTBError as error:
        _fail(database, claimed, fire, f"its sweep was refused: {error}", context.report)


def _run(context: Context, claimed: Claim, fire: Fire, progress: ShowProgress | None, signals: bool) -> None:
    """Run the sweep of a fire here, or continue it if the process that ran it has died."""
    database, say = context.database, context.report
    try:
        row = queries.find_sweep(database, fire.sweep)
        with code_of_fire(context, row) as bound:
            with _others_busy():
                reclaim_sweep(database, row.id)
            # Code that changed since the sweep began must not mix with the cells that are there.
            accept_code(database, row, bound, allow=False)
            with _others_busy():
                run = SweepRun(database, row, bound, workspaces=context.workspaces)
            ended = follow(context, run, bound.spec.run.grace, progress=progress, signals=signals).ended
    except StoreError:
        raise
    except WTBError as error:
        _fail(database, claimed, fire, f"its sweep {fire.sweep_id} cannot be run: {error}", say)
        return
    if ended.status == "running":
        raise _Later(ended.reason)


@contextmanager
def _others_busy() -> Iterator[None]:
    try:
        yield
    except ConflictError as error:
        raise _Later(str(error)) from error


@frozen
class Judgement:
    """The result of a fire, as it is recorded and sent.

    Attributes:
        verdict: Of a comparison, or `failed`.
        why: Sentences.
        baseline: The id of the sweep that it was compared with; None if it was with none.
    """

    verdict: str
    why: Sequence[str]
    baseline: str | None = None


def _fail(database: Database, claimed: Claim, fire: Fire, why: str, say: Say) -> None:
    _end(database, claimed, fire, Judgement("failed", why.splitlines()), say)


def _end(database: Database, claimed: Claim, fire: Fire, judgement: Judgement, say: Say) -> None:
    """Record the verdict of a fire. A notification is sent if the verdict is bad, or good after a bad one."""
    verdict, why = judgement.verdict, judgement.why
    notifies = bool(fire.notify) and (verdict in BAD or _was_bad(database, fire))
    reasons = [*(fire.why or ()), *why]
    # False if the claim was lost: whoever has it now reports the verdict.
    if store.end_fire(database, claimed, verdict, reasons, baseline=judgement.baseline, notify=notifies):
        say(f"{fire.schedule}: {verdict}" + (f": {'; '.join(why)}" if why else ""))


# Judging


def _judge(database: Database, claimed: Claim, fire: Fire, say: Say) -> None:
    if fire.sweep_status is None:
        _fail(database, claimed, fire, f"its sweep {fire.sweep_id} was deleted", say)
        return
    sweep = queries.find_sweep(database, fire.sweep)
    # The matrix is stored: pages and later comparisons read it instead of making it again.
    freeze(database, sweep.id)
    _end(database, claimed, fire, _judged(database, fire, sweep), say)


def _was_bad(database: Database, fire: Fire) -> bool:
    """Return whether the previous fire ended badly.

    False if a later fire has ended already: that one has sent the notification.
    """
    last = store.last_ended(database, fire.schedule_id)
    if last is None or (fire.started_at or math.inf) < (last.started_at or last.finished_at or 0.0):
        return False
    return last.verdict in BAD


def _outcome(gate: GateDocument) -> str:
    return UNDECIDED if gate["holds"] is None else "gate failed"


def _judged(database: Database, fire: Fire, sweep: SweepRow) -> Judgement:
    """Return the judgement of a fire whose sweep has ended."""
    if sweep.status == "paused" and is_waiting(sweep.reason):
        counts = queries.cell_counts(database, sweep.id)
        share = 1 - counts.get("succeeded", 0) / max(1, sum(counts.values()))
        return Judgement(UNCLEAR, [f"{share:.0%} of cells lost to the provider: {sweep.reason}"])
    if sweep.status != "completed":
        reason = f": {sweep.reason}" if sweep.reason else ""
        return Judgement("failed", [f"its sweep was {sweep.status}{reason}"])
    matrix = judged(database, sweep)
    cells = matrix["cells"]
    wrong = [f"{_outcome(gate)}: {gate_text(gate)}" for gate in matrix["gates"] if not passes(gate)]
    # Cells that were lost to a provider are no fault of the code, and do not fail a night.
    if failed := cells["failed"] + cells["set_aside"] - matrix["provider"]["lost"]:
        wrong.append(f"{failed:,} of {cells['total']:,} cells failed")
    try:
        before = _baseline(database, fire)
    except InputError as error:
        return Judgement("failed", [*wrong, str(error)])
    if before is None:
        errors = aggregates.score_errors(database, sweep.id, lost=False)
        wrong += [f"{plural(count, 'score')} of {metric} failed, such as: {reason}" for metric, count, reason in errors]
        why = ["it has no baseline" if fire.baseline is None else "no fire before it ended well, to compare it with"]
        return Judgement("failed", wrong) if wrong else Judgement("cannot tell", why)
    compared = _compared(database, fire, before, sweep)
    _note_night(database, fire, before, sweep, compared["verdict"])
    verdict = "failed" if wrong and compared["verdict"] != WORSE else compared["verdict"]
    why = [*wrong, *compared["because"], *(origins(compared) if compared["verdict"] == WORSE else ())]
    return Judgement(verdict, why, before.id)


def _baseline(database: Database, fire: Fire) -> SweepRow | None:
    """Return the sweep to compare with. Raises InputError if the named baseline is not there any more."""
    if fire.baseline is None:
        return None
    if fire.baseline != baselines.LAST:
        return baselines.named_baseline(database, fire.session, fire.baseline)
    last = store.last_ended(database, fire.schedule_id, well=True)
    return None if last is None else queries.find_sweep(database, last.sweep)


def _compared(database: Database, fire: Fire, before: SweepRow, sweep: SweepRow) -> ComparisonDocument:
    line = line_of_fire(database, fire, before, sweep)
    return compare_night(database, before, sweep, line, fire.margin)


def _note_night(database: Database, fire: Fire, before: SweepRow, sweep: SweepRow, verdict: str) -> None:
    """Note a fire as a night of the baseline that its schedule names. With `last`, the fires are the nights."""
    if fire.baseline not in (None, baselines.LAST):
        night = baselines.Night(sweep.id, is_worse=verdict == WORSE, was_accepted=False)
        baselines.add_night(database, before.session_id, str(fire.baseline), night)


# Notifying


def _notify(database: Database, claimed: Claim, fire: Fire, say: Say) -> float:
    """Try to send the notification of a fire.

    It is sent at least once: if the process dies between sending and recording that, it is sent again.

    Returns:
        Seconds until it is to be tried again; 0 if it need not be.
    """
    number = fire.notify_tries + 1
    if number > NOTIFY_TRIES:
        store.record_notification(
            database, claimed, fire.notify_error or "its process died while it sent the notification"
        )
        return 0.0
    # The try is counted before it is made, so that a process that dies of it does not try for ever.
    if not store.count_notification_try(database, claimed):
        return 0.0
    try:
        # The same key at each try, by which a receiver can tell that it has the notification already.
        send(fire.notify, _message(database, fire), f"{fire.schedule_id}-{fire.fire_at:.3f}")
    except NotificationError as failure:
        say(f"{fire.schedule}: the notification was not sent (try {number} of {NOTIFY_TRIES}): {failure}")
        store.record_notification(database, claimed, str(failure), retry=number < NOTIFY_TRIES)
        return PAUSES_S[number - 1] if number < NOTIFY_TRIES else 0.0
    store.record_notification(database, claimed, None)
    return 0.0


class Notification(TypedDict):
    """A notification of a fire, as it is sent to a webhook or command.

    Attributes:
        text: What happened and why, in one paragraph.
        url: The page of the comparison, or else of the sweep; None if WTB_PAGES_URL is not set.
        cells: Those that got worse, at most CELLS_NAMED.
        changed: What was changed since the sweep that it was compared with: variants whose code differs, with the
            causes, and the lines that differ in files which parameters name.
    """

    text: str
    url: str | None
    schedule: str
    fire_at: str | None
    verdict: str | None
    because: list[str]
    sweep: str | None
    baseline: str | None
    cells: list[ComparedCell]
    changed: ChangedCode


class ChangedCode(TypedDict):
    """The code and files of a comparison that differ."""

    code: list[CodeChange]
    files: list[TextFileChange]


def _message(database: Database, fire: Fire) -> Notification:
    compared = _compared_again(database, fire)
    worse = [] if compared is None else [cell for cell in compared["cells"] if cell["what"] in ("failed", "worse")]
    changed: ChangedCode = {"code": [], "files": []}
    if compared is not None:
        changed = {"code": compared["changed"]["code"], "files": compared["changed"].get("files", [])}
    return {
        "text": _text(fire),
        "url": _page(fire),
        "schedule": fire.schedule,
        "fire_at": iso(fire.fire_at),
        "verdict": fire.verdict,
        "because": list(fire.why or ()),
        "sweep": fire.sweep_id,
        "baseline": fire.baseline_id,
        "cells": worse[:CELLS_NAMED],
        "changed": changed,
    }


def _text(fire: Fire) -> str:
    against = "the last good run" if fire.baseline == baselines.LAST else f"the baseline {fire.baseline}"
    headline = {WORSE: f"worse than {against}", "failed": "failed"}.get(str(fire.verdict), f"recovered: {fire.verdict}")
    why = f": {'; '.join(fire.why)}" if fire.why else ""
    return f"{fire.schedule} {headline}{why}"


def _page(fire: Fire) -> str | None:
    if fire.sweep_id is None or fire.baseline_id is None:
        return None if fire.sweep_id is None else page_url("sweeps", fire.sweep_id)
    return page_url("compare", fire.baseline_id, fire.sweep_id)


def _compared_again(database: Database, fire: Fire) -> ComparisonDocument | None:
    if fire.baseline_id is None or fire.sweep_status is None:
        return None
    try:
        before, after = (queries.find_sweep(database, id) for id in (fire.baseline_id, fire.sweep))
    except InputError:  # the baseline was deleted meanwhile
        return None
    return _compared(database, fire, before, after)
