"""Submissions in batches: a sweep is invisible before its last batch, and other transactions do not wait."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import sqlalchemy as sa

from tests.support.prose import sentence
from wtb.core.errors import ConflictError, InputError, NotFound
from wtb.core.values import Value
from wtb.store import alerts
from wtb.store.access import sessions, usage
from wtb.store.bulk import fetch_records
from wtb.store.control.approvals import approval_rows
from wtb.store.database import Database
from wtb.store.housekeeping import deletion
from wtb.store.log import add_event, subject
from wtb.store.read import activity, costs, details, queries
from wtb.store.runs import leases, maintenance, publishing, submission
from wtb.store.runs.queue import QueuedSweep
from wtb.store.runs.submission import NewCase, NewSweep
from wtb.store.runs.submit import Also, submit
from wtb.store.tables.schema import cases, cells, combinations, events, executions, metadata, sweeps

When = Callable[[int], object]

CASES, COMBINATIONS = 7, 3  # a root, a case and three cells each


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "BATCH_ROWS", 4)


@pytest.fixture
def shared(prepared_postgres_url: str) -> Iterator[Database]:
    """A database shared by workers."""
    new_database = Database(prepared_postgres_url)
    yield new_database
    new_database.close()


def new_sweep(
    id: str = "large", session: str = "default", cases: int = CASES, combinations: int = COMBINATIONS, **options: Any
) -> NewSweep:
    common: Any = {"spec": {}, "graph_id": "g" * 64, "graph": {"name": "w", "version": ""}, "fingerprints": {}}
    common |= {"repeats": 1, "share": True, "choices": [{"a": f"v{number}"} for number in range(combinations)]}
    options = {"project": "p", "queued": True, "notify": [], **options}
    return NewSweep(id=id, name="s", session=session, cells=cases * combinations, **common, **options)


def submit_cases(
    database: Database, id: str, session: str = "default", cases: int = 2, combinations: int = 1, *, queued: bool = True
) -> None:
    """Submit a sweep of the project of its session."""
    sweep = new_sweep(id, session, cases, combinations, project=None, queued=queued, notify=None)
    submit(database, sweep, [NewCase(str(number), {"x": Value.of(number)}, None) for number in range(cases)])


def new_cases(when: When = lambda number: None) -> Iterator[NewCase]:
    """Cases; `when` is called before each is read."""
    for number in range(CASES):
        when(number)
        yield NewCase(str(number), {"x": Value.of(number)}, None)


def submitted(database: Database, when: When = lambda number: None, also: Also | None = None) -> None:
    submit(database, new_sweep(), new_cases(when), also)


def count(database: Database, table: sa.Table) -> int:
    return database.scalar(sa.select(sa.func.count()).select_from(table)) or 0


def nothing_is_left(database: Database) -> None:
    for table in (sweeps, cases, combinations, executions, cells, events):
        assert count(database, table) == 0, table.name


def test_a_sweep_becomes_visible_whole_with_its_last_batch(database: Database) -> None:
    sizes = []
    submitted(database, lambda number: sizes.append(count(database, cells)))

    assert sizes == sorted(sizes)
    assert len(set(sizes)) > 3
    row = queries.find_sweep(database, "large")
    assert (row.status, row.cells) == ("pending", CASES * COMBINATIONS)
    assert queries.cell_counts(database, "large") == {"pending": CASES * COMBINATIONS}
    assert queries.choices(database, "large") == new_sweep().choices
    assert count(database, executions) == count(database, cases) == CASES
    assert [event["kind"] for event in queries.event_rows(database, "large")] == ["sweep.submitted"]


def seen(database: Database) -> list[object]:
    """Return what can be read of a sweep without finding the sweep first."""
    execution = database.scalar(sa.select(executions.c.id).limit(1))
    assert execution is not None
    views: list[Any] = []
    for ref in ("large", "lar", "s", execution, execution[:20]):
        try:
            views.append(details.find(database, ref))
        except NotFound:
            pass
        except InputError as several:
            views.append(several)
    with database.read() as connection:
        turns = fetch_records(connection, QueuedSweep, publishing._query_of_candidates())
    views += [*queries.list_sweeps(database), *turns, *maintenance.open_sweeps(database), *activity.waiting(database)]
    views += [*publishing.publish(database), *leases.sweep_statuses(database, ["large"])]
    views += [*alerts.listening(database), *alerts.listening(database, "large"), *approval_rows(database)]
    views += [*usage.sweeps_by_status(database, "default"), *costs.of_attempts(database, ["sweep"], costs.Which())]
    used = usage.usage(database, "default")
    return [*views, *filter(None, (used.sweeps, used.cells)), *queries.event_rows(database, "large")]


def test_nobody_sees_anything_of_a_sweep_before_its_last_batch(shared: Database) -> None:
    looks = []

    def look(number: int) -> None:
        if number > 2:
            looks.append(seen(shared))

    submitted(shared, look)

    assert looks == [[]] * (CASES - 3)
    assert len(seen(shared)) > 8


def test_readers_of_the_log_do_not_wait_for_a_submission(shared: Database) -> None:
    """A reader sees an event of another sweep that is committed while cases are read as the newest."""
    submit(shared, new_sweep("other"), new_cases())
    kinds: list[str] = []

    def write_and_read(number: int) -> None:
        with shared.write() as connection:
            add_event(connection, subject("default", "other"), f"sweep.{number}", {})
        kinds.append(queries.event_rows(shared, "other")[-1]["kind"])

    submitted(shared, write_and_read)

    assert kinds == [f"sweep.{number}" for number in range(CASES)]


def test_no_transaction_writes_more_than_a_batch(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    before, written = [0], []

    def rows_since() -> int:
        tables = (combinations, cases, executions, cells)
        with database.read() as connection:
            total = sum(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0 for table in tables)
        before[0], since = total, total - before[0]
        return since

    monkeypatch.setattr("wtb.store.runs.submit.point", lambda name: written.append(rows_since()))
    submitted(database)

    assert max(written) <= submission.BATCH_ROWS + 2  # a case and its root come with their first cell
    assert len(written) > CASES


def test_a_small_submission_is_a_single_transaction(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "BATCH_ROWS", 5_000)
    passed: list[str] = []
    monkeypatch.setattr("wtb.store.runs.submit.point", passed.append)

    submitted(database)

    assert passed == ["submit.written", "submit.committed"]


@pytest.mark.parametrize("last", [0, CASES - 1])
def test_a_submission_that_fails_leaves_nothing(database: Database, last: int) -> None:
    def fail(number: int) -> None:
        if number == last:
            raise ValueError("the file ends here")

    with pytest.raises(ValueError, match="the file ends here"):
        submitted(database, fail)

    nothing_is_left(database)


def test_what_is_written_with_a_submission_is_written_with_its_last_batch_or_undoes_it(database: Database) -> None:
    def refuse(connection: sa.Connection, sweep_id: str) -> None:
        assert connection.scalar(sa.select(sa.func.count()).select_from(cells)) == CASES * COMBINATIONS
        raise ConflictError(f"{sweep_id} was submitted before")

    with pytest.raises(ConflictError, match="large was submitted before"):
        submitted(database, also=refuse)

    nothing_is_left(database)


def silent(database: Database) -> None:
    """Age the submission, as if nothing had been written for long."""
    with database.write() as connection:
        connection.execute(sweeps.update().values(created_at=sweeps.c.created_at - deletion.SUBMISSION_S - 1))


def test_a_submission_under_way_is_not_removed_and_one_that_was_given_up_is(database: Database) -> None:
    class Killed(BaseException):
        pass

    def kill(number: int) -> None:
        if number == 4:
            assert deletion.remove_hidden(database) == 0
            raise Killed

    # As after SIGKILL: nothing cleans up behind it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wtb.store.runs.submit.discard_submission", lambda *args: None)
        with pytest.raises(Killed):
            submitted(database, kill)
    assert deletion.remove_hidden(database) == 0
    assert count(database, cells)
    silent(database)
    assert deletion.remove_hidden(database) == 1

    nothing_is_left(database)
    submitted(database)  # its name is free, even its id


def test_a_submission_that_was_taken_for_given_up_is_refused(database: Database) -> None:
    def pause(number: int) -> None:
        if number == 4:
            silent(database)
            deletion.remove_hidden(database)

    with pytest.raises(ConflictError, match=sentence("was discarded")):
        submitted(database, pause)

    nothing_is_left(database)


def test_a_session_that_is_deleted_meanwhile_takes_the_submission_with_it(database: Database) -> None:
    session = sessions.create(database, "brief")

    def remove(number: int) -> None:
        if number == 4:
            removed = deletion.delete_session(database, session.id, may_live=lambda owner, expired: False)
            assert removed == {"sweeps": 0, "cells": 0, "files": 0}

    with pytest.raises((ConflictError, InputError)):
        submit(database, new_sweep(session="brief"), new_cases(remove))

    nothing_is_left(database)


def test_a_session_that_is_archived_meanwhile_refuses_the_last_batch(database: Database) -> None:
    session = sessions.create(database, "old")

    with pytest.raises(ConflictError, match="is archived"):
        submit(
            database,
            new_sweep(session="old"),
            new_cases(lambda number: number == 4 and sessions.archive(database, session.id)),
        )

    nothing_is_left(database)


# Deletion


def test_a_deleted_sweep_is_gone_at_once_and_its_rows_follow(shared: Database) -> None:
    submitted(shared)

    assert not deletion.delete_sweep(shared, "large", until=lambda: True)

    assert count(shared, cells) == CASES * COMBINATIONS
    assert seen(shared)[:-1] == []  # but the event by which followers knew it
    assert deletion.remove_hidden(shared) == 1
    nothing_is_left(shared)


def test_rows_that_somebody_holds_are_waited_for(prepared_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wtb.store.engine._SETTINGS", "-c lock_timeout=50ms")
    database, holder = Database(prepared_postgres_url), Database(prepared_postgres_url)
    submitted(database)
    counts: list[int] = []

    def until() -> bool:
        counts.append(count(database, cells))
        if counts.count(CASES * COMBINATIONS) == 9:
            stack.close()
        return False

    with ExitStack() as stack:
        stack.enter_context(holder.write()).execute(sa.select(cells.c.case_number).limit(1).with_for_update())
        assert deletion.delete_sweep(database, "large", until)

    assert counts.count(CASES * COMBINATIONS) >= 9
    nothing_is_left(database)
    database.close()
    holder.close()


def test_no_transaction_deletes_more_than_a_part(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted(database)
    monkeypatch.setattr(deletion, "_LEAST", 2)
    monkeypatch.setattr(deletion, "_MOST", 2)
    counts = [[count(database, table) for table in metadata.sorted_tables]]
    monkeypatch.setattr(
        deletion, "point", lambda name: counts.append([count(database, table) for table in metadata.sorted_tables])
    )

    assert deletion.delete_sweep(database, "large")

    deletions = [sum(before) - sum(after) for before, after in itertools.pairwise(counts)]
    assert max(deletions) <= 2
    assert sum(deletions) >= CASES * (COMBINATIONS + 2)
    nothing_is_left(database)


def test_an_execution_of_a_deleted_sweep_is_lost_to_its_runner(database: Database) -> None:
    submitted(database)
    (row, *_) = database.rows(sa.select(executions).limit(1))
    with database.write() as connection:
        connection.execute(
            executions.update().where(executions.c.id == row["id"]).values(status="running", owner_id="r", token=7)
        )

    deletion.begin_deletion(database, "large")

    assert database.scalar(sa.select(executions.c.token).where(executions.c.id == row["id"])) == 8
