"""Operations that act on no single sweep or execution, as methods of benches, and subscriptions to events."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Self

from wtb.core.documents.all_events import EventDocument
from wtb.core.errors import WTBError
from wtb.features.access import audit as audit_log
from wtb.features.access import operations as access_operations
from wtb.features.archive.importer import import_execution
from wtb.features.backup.operations import backup, restore
from wtb.features.schedules import operations as schedule_operations
from wtb.features.schedules.history import check_schedule, history
from wtb.handles.records import run_records, sweep_records
from wtb.operations import sessions as session_operations
from wtb.operations.budgets import clear_budgets, list_budgets, set_budgets
from wtb.operations.context import Context
from wtb.operations.control.answers import preview_answers
from wtb.operations.deleting import erase, preview_erase
from wtb.operations.garbage_collection import collect
from wtb.operations.inspection.executions import show_checkpoint
from wtb.operations.inspection.following import EventsFromNow, is_readable
from wtb.operations.inspection.sweeps import list_runs, list_sweeps
from wtb.operations.inspection.workflows import list_published, show_published
from wtb.operations.methods import method
from wtb.operations.projects import change_project, create_project, describe_project, list_projects
from wtb.operations.results.comparing import compare, list_baselines, remove_baseline, show_baseline
from wtb.operations.results.costs import costs
from wtb.operations.running.previews import preview_evaluator, read_case_file
from wtb.operations.running.waiting import watch
from wtb.store.read.activity import Moment, read_moment


class BenchMethods:
    """Methods of a bench besides those that find and make objects."""

    sweeps = method(list_sweeps, sweep_records)
    executions = method(list_runs, run_records)
    checkpoint = method(show_checkpoint)
    preview_answers = method(preview_answers)
    watch = method(watch)

    # Workflows that workers publish
    published = method(list_published)
    published_workflow = method(show_published)
    read_case_file = method(read_case_file)
    preview_evaluator = method(preview_evaluator)

    # Results
    compare = method(compare)
    costs = method(costs)
    baselines = method(list_baselines)
    baseline = method(show_baseline)
    remove_baseline = method(remove_baseline)

    # Schedules
    add_schedule = method(schedule_operations.add_schedule)
    schedules = method(schedule_operations.list_schedules)
    schedule = method(schedule_operations.show_schedule)
    pause_schedule = method(schedule_operations.pause_schedule)
    resume_schedule = method(schedule_operations.resume_schedule)
    remove_schedule = method(schedule_operations.remove_schedule)
    run_schedule = method(schedule_operations.run_now)
    run_due_schedules = method(schedule_operations.run_due)
    schedule_history = method(history)
    check_schedule = method(check_schedule)

    # Projects, sessions and budgets
    create_project = method(create_project)
    change_project = method(change_project)
    projects = method(list_projects)
    project = method(describe_project)
    rename_session = method(session_operations.rename_session)
    sessions = method(session_operations.list_sessions)
    session = method(session_operations.describe_session)
    archive_session = method(session_operations.archive_session)
    delete_session = method(session_operations.delete_session)
    preview_delete_session = method(session_operations.preview_delete_session)
    set_budgets = method(set_budgets)
    clear_budgets = method(clear_budgets)
    budgets = method(list_budgets)

    # Access
    create_user = method(access_operations.create_user)
    users = method(access_operations.list_users)
    remove_user = method(access_operations.remove_user)
    create_team = method(access_operations.create_team)
    teams = method(access_operations.list_teams)
    change_team = method(access_operations.change_team)
    remove_team = method(access_operations.remove_team)
    grant_access = method(access_operations.grant_access)
    access = method(access_operations.list_access)
    revoke_access = method(access_operations.revoke_access)
    create_token = method(access_operations.create_token)
    tokens = method(access_operations.list_tokens)
    revoke_token = method(access_operations.revoke_token)
    audit = method(audit_log.list_audit)
    verify_audit = method(audit_log.verify_audit)
    audit_head = method(audit_log.audit_head)
    prune_audit = method(audit_log.prune_audit)

    # Storage
    collect = method(collect)
    import_execution = method(import_execution)
    backup = method(backup)
    restore = method(restore)
    erase = method(erase)
    preview_erase = method(preview_erase)


Callback = Callable[[EventDocument], object]
LAST_S: Final = 5.0  # for the last events, which an older transaction may hold up

_log = logging.getLogger("wtb")


class Subscription:
    """A callback that gets each event from the subscription on, in a thread of its own. `Bench.subscribe` returns it.

    As a context manager it unsubscribes at the end of the block.
    """

    def __init__(self, context: Context, callback: Callback, events: EventsFromNow, interval_s: float) -> None:
        self._context = context
        self._callback = callback
        self._events = events
        self._interval_s = interval_s
        self._ending = threading.Event()
        self._is_over = False
        self._until: Moment | None = None
        self._thread = threading.Thread(target=self._run, name="wtb-subscription", daemon=True)
        self._thread.start()

    @property
    def is_active(self) -> bool:
        """True if the callback may still be called."""
        return self._thread.is_alive() and not self._is_over

    def unsubscribe(self) -> None:
        """End the subscription. The callback gets what was committed until now, and nothing after this has returned.

        Called by the callback itself, it ends the subscription with the present event.
        """
        # A thread cannot join itself, so the callback ends the loop by a flag.
        if threading.current_thread() is self._thread:
            self._is_over = True
            self._ending.set()
            return
        if not self._ending.is_set():
            try:
                # The moment is fixed before the loop ends, so that events committed until now are still delivered.
                self._until = read_moment(self._context.database)
            except WTBError as error:
                _log.warning("the last events of a subscription cannot be read: %s", error)
            self._ending.set()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unsubscribe()

    def _run(self) -> None:
        """Call the callback with new events in a loop, and at the end until all are read."""
        end_at: float | None = None
        while not self._is_over:
            is_last = self._ending.is_set()
            end_at = time.monotonic() + LAST_S if is_last and end_at is None else end_at
            is_read = self._look(is_last)
            if is_last and (is_read or time.monotonic() > (end_at or 0)):
                return
            # Once it is set, the event no longer blocks, and waiting for it would be no pause.
            self._ending.wait(self._interval_s) if not is_last else time.sleep(self._interval_s)

    def _look(self, is_last: bool) -> bool:
        """Call the callback with new events. Return whether everything committed until the end was read."""
        try:
            # Before the events are read, which then include all those until that moment.
            is_whole = is_last and (self._until is None or is_readable(self._context, self._until))
            for event in self._events.read_new():
                self._call(event)
                if self._is_over:
                    break
        except WTBError as error:
            _log.warning("a subscription waits: %s", error)
            # Without the moment of the end, there is nothing to wait for.
            return is_last and self._until is None
        return is_whole

    def _call(self, event: EventDocument) -> None:
        """Call the callback. Its errors end neither the subscription nor a run."""
        try:
            self._callback(event)
        except Exception:  # noqa: BLE001 - whatever the code of users raises
            _log.exception("the callback %r of a subscription failed at event %s", self._callback, event["kind"])
