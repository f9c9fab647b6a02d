"""A runner commits in groups under its leases: all records of an execution, or none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec import structs

from tests.support.prose import sentence
from tests.support.waiting import until
from wtb.core.errors import StoreError, WTBError
from wtb.core.ids import new_id
from wtb.core.values import Value
from wtb.execution.journal import Journal, Lost
from wtb.store.database import Database
from wtb.store.process_identity import ProcessIdentity
from wtb.store.read import queries
from wtb.store.runs import leases
from wtb.store.runs.batch import Batch
from wtb.store.runs.flush import flush
from wtb.store.runs.submission import NewCase, NewSweep
from wtb.store.runs.submit import submit
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import budgets, cells, checkpoints, events, executions, node_runs, reservations, values

LONG = 3600.0
OWNER = {"host": "here", "boot": "b", "pid": 1, "process_started_at": 0.0}


class Store:
    """A submitted sweep of two cases, both claimed by `mine`; batches are counted as they are written."""

    def __init__(self, database: Database) -> None:
        self.database = database
        graph = {"name": "w", "version": ""}
        common = {"project": None, "spec": {}, "graph_id": "g" * 64, "graph": graph, "fingerprints": {}}
        sweep = NewSweep(
            id="sweep", name="s", session="default", choices=[{}, {}], repeats=1, share=True, cells=4, **common
        )
        submit(database, sweep, [NewCase(str(number), {"x": Value.of(number)}, None) for number in range(2)])
        for runner in ("mine", "theirs"):
            leases.register(database, ProcessIdentity(runner, **OWNER))
        self.claimed = leases.claim(database, "sweep", "mine", 10, 30.0)
        self.batches: list[int] = []
        self.journals: list[Journal] = []

    def journal(self, durability: float) -> Journal:
        def write(batch: Batch) -> set[str]:
            lost = flush(self.database, batch, 30.0)
            self.batches.append(batch.size)
            return lost

        self.journals.append(Journal(write, durability))
        return self.journals[-1]

    def steal(self, execution: str) -> None:
        """Reclaim an execution whose lease has expired, and claim it by another runner."""
        with self.database.write() as connection:
            connection.execute(
                executions.update()
                .where(executions.c.id == execution)
                .values(owner_id="theirs", token=executions.c.token + 1)
            )

    def all(self, table: sa.Table) -> list[dict[str, Any]]:
        with self.database.read() as connection:
            return [dict(row) for row in connection.execute(sa.select(table)).mappings()]

    def messages(self) -> list[tuple[str, str]]:
        """Return (execution, kind) for every event of an execution."""
        return [(row["execution_id"], row["kind"]) for row in self.all(events) if row["execution_id"]]

    def execution(self, id: str) -> dict[str, Any]:
        (row,) = [row for row in self.all(executions) if row["id"] == id]
        return row


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    new_store = Store(database)
    yield new_store
    for journal in new_store.journals:
        if journal._broken is None:
            journal.close()


def event(execution: str, kind: str) -> dict[str, Any]:
    row = {"session_id": "default", "sweep_id": "sweep", "kind": kind, "severity": "info", "at": 0.0, "data": {}}
    return {**row, "execution_id": execution}


def say(kind: str, execution: str) -> dict[str, Any]:
    return {"appended": {"events": [event(execution, kind)]}}


def child_of(parent: ExecutionRow, id: str) -> dict[str, Any]:
    row = {"id": id, "session_id": "default", "sweep_id": "sweep", "parent_id": parent.id, "origin": "fork"}
    row |= {"case_number": parent.case_number, "repeat": 0, "combinations": [0], "status": "running"}
    row |= {"reason": None, "head_id": "head", "failure": None, "owner_id": "mine", "token": 1, "lease_until": None}
    return {**row, "created_at": time.time(), "finished_at": None}


def checkpoint(execution: str, id: str) -> dict[str, Any]:
    row = {"id": id, "sweep_id": "sweep", "execution_id": execution, "parent_id": None, "position": {}, "state": {}}
    return {**row, "writers": [], "workspace": None, "totals": [], "trigger": "step", "name": None, "created_at": 0.0}


def node_run(execution: str, at: str, id: str) -> dict[str, Any]:
    row = {"id": id, "sweep_id": "sweep", "execution_id": execution, "checkpoint_id": at, "task": "a", "node": "a"}
    row |= {"variant": "default", "visit": 0, "status": "running", "attempts": 1, "cells": 2, "fingerprint": "f"}
    row |= {"writes": None, "workspace": None, "started_at": 0.0, "duration_s": 0.0, "usd": 0.0}
    return {**row, "tokens_in": 0, "tokens_out": 0}


def outcome(execution: ExecutionRow, combination: int, status: str = "succeeded") -> dict[str, Any]:
    row = {"sweep_id": "sweep", "case_number": execution.case_number, "repeat": 0, "combination": combination}
    row |= {"status": status, "execution_id": execution.id, "elapsed_s": 0.0, "usd": 0.0, "tokens_in": 0}
    return {**row, "tokens_out": 0, "node_runs": 1, "failure": None}


ENDED = {"status": "completed", "owner_id": None, "lease_until": None, "reason": None, "finished_at": 1.0}
FORKED = {**ENDED, "status": "forked"}


# Leases


def test_an_execution_that_lost_its_lease_loses_all_that_it_buffered_and_the_others_commit(store: Store) -> None:
    lost, intact = store.claimed
    journal = store.journal(LONG)
    child, grandchild = new_id(), new_id()
    journal.record(lost.id, lost.token, checkpoints=[checkpoint(lost.id, "c1")], **say("lost", lost.id))
    journal.record(lost.id, lost.token, node_run=node_run(lost.id, "c1", "r1"), change={"head_id": "c1"})
    journal.record(lost.id, lost.token, change=FORKED, born=[child_of(lost, child)])
    journal.record(
        child, 1, change=FORKED, born=[child_of(structs.replace(lost, id=child), grandchild)], **say("lost", child)
    )
    journal.record(grandchild, 1, change=ENDED, outcomes=[outcome(structs.replace(lost, id=grandchild), 0)])
    journal.record(intact.id, intact.token, checkpoints=[checkpoint(intact.id, "c2")], **say("kept", intact.id))
    journal.record(intact.id, intact.token, change=ENDED, outcomes=[outcome(intact, n) for n in range(2)])

    store.steal(lost.id)
    journal.flush(intact.id, force=True)

    assert store.messages() == [(intact.id, "kept")]
    assert [row["id"] for row in store.all(checkpoints)] == ["c2"]
    assert store.all(node_runs) == []
    assert {row["id"] for row in store.all(executions)} == {lost.id, intact.id}
    assert store.execution(intact.id)["status"] == "completed"
    theirs = store.execution(lost.id)
    assert (theirs["status"], theirs["owner_id"], theirs["head_id"]) == ("running", "theirs", None)
    outcomes = {(row["case_number"], row["status"]) for row in store.all(cells)}
    assert outcomes == {(lost.case_number, "pending"), (intact.case_number, "succeeded")}
    for execution_id in (lost.id, child, grandchild):
        with pytest.raises(Lost, match=sentence("reclaimed by another runner")):
            journal.record(execution_id, 1, **say("late", execution_id))


def test_a_child_of_an_earlier_batch_has_a_lease_of_its_own(store: Store) -> None:
    parent, _ = store.claimed
    journal = store.journal(LONG)
    child = new_id()
    journal.record(parent.id, parent.token, change=FORKED, born=[child_of(parent, child)])
    journal.flush(parent.id, force=True)
    assert store.execution(child)["lease_until"] is not None

    journal.record(child, 1, change=ENDED, **say("own", child))
    journal.flush(child, force=True)

    assert store.execution(child)["status"] == "completed"
    assert store.messages() == [(child, "own")]


def test_a_child_that_was_stolen_loses_what_it_did_and_its_parent_keeps_what_it_did(store: Store) -> None:
    parent, other = store.claimed
    journal = store.journal(LONG)
    child = new_id()
    journal.record(parent.id, parent.token, change=FORKED, born=[child_of(parent, child)])
    journal.flush(parent.id, force=True)
    store.steal(child)

    journal.record(child, 1, change=ENDED, **say("late", child))
    journal.flush(other.id, force=True)

    assert store.execution(parent.id)["status"] == "forked"
    assert (store.execution(child)["status"], store.execution(child)["token"]) == ("running", 2)
    assert store.messages() == []


def test_an_execution_that_was_released_is_not_written_to_any_more(store: Store) -> None:
    mine, other = store.claimed
    journal = store.journal(LONG)
    leases.release_runners(store.database, "sweep", ["mine"])

    journal.record(mine.id, mine.token, change=ENDED, outcomes=[outcome(mine, 0)])
    journal.record(other.id, other.token, change=ENDED)
    with pytest.raises(Lost):
        journal.flush(mine.id, force=True)

    assert {row["status"] for row in store.all(executions)} == {"pending"}
    assert {row["status"] for row in store.all(cells)} == {"pending"}


# Commits


def test_with_a_durability_of_zero_settling_waits_for_the_commit(store: Store) -> None:
    mine, _ = store.claimed
    journal = store.journal(0.0)

    for number in range(5):
        journal.record(mine.id, mine.token, **say(f"step {number}", mine.id))
        journal.flush(mine.id)
        assert len(store.messages()) == number + 1


def test_with_a_durability_of_zero_what_nobody_waits_for_is_committed_with_what_follows(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wtb.execution.journal.GROUP_S", LONG)
    mine, _ = store.claimed
    journal = store.journal(0.0)

    for kind in ("started", "ended"):
        journal.record(mine.id, mine.token, **say(kind, mine.id))
    journal.flush(mine.id)

    assert [kind for _, kind in store.messages()] == ["started", "ended"]
    assert store.batches == [2]


def test_otherwise_settling_does_not_wait_and_everything_is_one_commit(store: Store) -> None:
    journal = store.journal(LONG)
    for execution in store.claimed * 50:
        journal.record(execution.id, execution.token, **say("step", execution.id))
        journal.flush(execution.id)
    assert store.messages() == []

    journal.close()

    assert len(store.messages()) == 100
    assert len(store.batches) == 1


def test_what_was_recorded_is_committed_by_a_timer_though_nothing_follows(store: Store) -> None:
    mine, _ = store.claimed
    journal = store.journal(0.02)

    journal.record(mine.id, mine.token, **say("alone", mine.id))

    until(lambda: store.messages() == [(mine.id, "alone")])


def test_nothing_is_written_twice(store: Store) -> None:
    mine, _ = store.claimed
    journal = store.journal(0.001)
    expected = []
    for number in range(200):
        journal.record(mine.id, mine.token, **say(f"step {number}", mine.id))
        expected.append((mine.id, f"step {number}"))
        if number % 50 == 0:
            journal.flush(mine.id, force=True)
    journal.close()

    assert sorted(store.messages()) == sorted(expected)


def test_many_threads_lose_nothing(store: Store) -> None:
    mine, _ = store.claimed
    journal = store.journal(0.0)

    def work(thread: int) -> None:
        for number in range(20):
            journal.record(mine.id, mine.token, **say(f"{thread}.{number}", mine.id))
            journal.flush(mine.id)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted(kind for _, kind in store.messages()) == sorted(f"{t}.{n}" for t in range(4) for n in range(20))


def test_a_runner_that_is_far_ahead_of_the_database_waits_for_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wtb.execution.journal.FULL", 10)
    mine, _ = store.claimed
    journal = store.journal(LONG)

    for number in range(100):
        journal.record(mine.id, mine.token, **say(f"step {number}", mine.id))
    journal.close()

    assert len(store.messages()) == 100
    assert max(store.batches) <= 12


def test_while_the_database_commits_a_runner_continues_until_it_is_far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wtb.execution.journal.FULL", 10)
    sizes: list[int] = []
    may_commit = threading.Event()

    def write(batch: Batch) -> set[str]:
        sizes.append(batch.size)
        journal.reopen()
        assert may_commit.wait(20)
        return set()

    journal = Journal(write, LONG)
    with ThreadPoolExecutor(1) as slot:
        for number in range(20):  # the tenth is handed over by the eleventh, and none of them waits for the commit
            slot.submit(journal.record, "e", 1, **say(f"step {number}", "e")).result(20)
        waits = slot.submit(journal.record, "e", 1, **say("one too many", "e"))
        with pytest.raises(TimeoutError):
            waits.result(0.05)
        may_commit.set()
        waits.result(20)
    journal.close()

    assert sizes == [10, 10, 1]


@pytest.mark.parametrize("starved", [True, False])
def test_slots_wait_for_a_journal_that_is_late_only_if_they_keep_the_interpreter_from_it(
    monkeypatch: pytest.MonkeyPatch, starved: bool
) -> None:
    monkeypatch.setattr("wtb.execution.journal._is_starved", lambda: starved)
    started, may_commit = threading.Semaphore(0), threading.Semaphore(0)

    def write(batch: Batch) -> set[str]:
        started.release()
        assert may_commit.acquire(timeout=20)
        return set()

    journal = Journal(write, 0.001)
    with ThreadPoolExecutor(1) as slot:
        journal.record("e", 1, **say("first", "e"))
        assert started.acquire(timeout=20)
        journal.record("e", 1, **say("second", "e"))
        monkeypatch.setattr("wtb.execution.journal.LATE_S", -1.0)  # the next commit is late, however soon it comes
        may_commit.release()
        assert started.acquire(timeout=20)
        third = slot.submit(journal.record, "e", 1, **say("third", "e"))
        if starved:
            with pytest.raises(TimeoutError):
                third.result(0.05)
        else:
            third.result(20)
        may_commit.release(2)
        third.result(20)
    journal.close()


# Shared commits


class Slots:
    """Slots of a journal that commits at every flush; its commits take this long on average."""

    def __init__(self, commit_s: float, write: Callable[[Batch], set[str]] | None = None) -> None:
        self.sizes: list[int] = []
        self.journal = Journal(write or self._write, 0.0)
        self.journal._commit_s = commit_s
        self._pool = ThreadPoolExecutor(8)

    def _write(self, batch: Batch) -> set[str]:
        self.sizes.append(batch.size)
        return set()

    def step(self, name: str) -> Future[None]:
        """Let a slot take one step, which waits for its commit."""
        started = threading.Event()

        def work() -> None:
            with self.journal.slot():
                started.set()
                self.journal.record(name, 1, **say("step", name))
                self.journal.flush(name)

        future = self._pool.submit(work)
        assert started.wait(20)
        return future


@pytest.fixture
def long_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """End gathering by the actions of slots, not by the clock."""
    monkeypatch.setattr("wtb.execution.journal.GROUP_S", LONG)


def test_given_one_slot_then_nothing_delays_its_commits(long_groups: None) -> None:
    slots = Slots(commit_s=LONG)

    for _ in range(5):
        slots.step("only").result(20)

    assert slots.sizes == [1] * 5


def test_given_slots_that_work_then_a_commit_waits_until_all_of_them_wait_for_it(long_groups: None) -> None:
    slots = Slots(commit_s=LONG)

    with slots.journal.slot():
        waiting = [slots.step("a"), slots.step("b")]
        slots.journal.record("c", 1, **say("step", "c"))
        with pytest.raises(TimeoutError):
            waiting[0].result(0.05)
        slots.journal.flush("c")
    for future in waiting:
        future.result(20)

    assert slots.sizes == [3]


@pytest.mark.parametrize("leaves", ["its work ends", "it waits for other slots"])
def test_given_a_slot_that_works_no_more_then_a_commit_does_not_wait_for_it(long_groups: None, leaves: str) -> None:
    slots = Slots(commit_s=LONG)

    with slots.journal.slot():
        waiting = slots.step("a")
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        if leaves == "it waits for other slots":
            with slots.journal.idle():
                waiting.result(20)
    waiting.result(20)

    assert slots.sizes == [1]


def test_given_a_slot_in_a_long_node_then_a_commit_waits_for_half_the_time_of_a_commit(long_groups: None) -> None:
    slots = Slots(commit_s=0.4)
    began = time.monotonic()

    with slots.journal.slot():
        slots.step("a").result(20)

    assert 0.2 <= time.monotonic() - began < 10


def test_given_commits_that_take_seconds_then_slots_are_waited_for_no_longer_than_a_group() -> None:
    slots = Slots(commit_s=LONG)

    with slots.journal.slot():
        slots.step("a").result(20)


def test_with_a_longer_durability_a_forced_commit_waits_for_no_slot() -> None:
    journal = Journal(lambda batch: set(), LONG)
    journal._commit_s = LONG

    with journal.slot(), ThreadPoolExecutor(1) as other:
        journal.record("e", 1, **say("step", "e"))
        other.submit(journal.flush, "e", force=True).result(20)


def test_given_a_commit_that_fails_then_all_slots_that_share_it_get_the_error(long_groups: None) -> None:
    sizes: list[int] = []

    def write(batch: Batch) -> set[str]:
        sizes.append(batch.size)
        raise StoreError("database gone")

    slots = Slots(LONG, write)
    with slots.journal.slot():
        waiting = [slots.step(name) for name in "abcd"]

    for future in waiting:
        with pytest.raises(StoreError, match="database gone"):
            future.result(20)
    assert sizes == [4]


# Values and rows


def test_where_commits_take_too_long_the_next_ones_take_fewer_records(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wtb.execution.journal.COMMIT_S", 0.0)
    monkeypatch.setattr("wtb.execution.journal._LEAST", 4)
    mine = store.claimed[0].id
    journal = store.journal(LONG)
    for number in range(20):
        journal.record(mine, 1, **say(f"first.{number}", mine))
    journal.flush(mine, force=True)
    for number in range(20):
        journal.record(mine, 1, **say(f"then.{number}", mine))
    journal.flush(mine, force=True)
    assert store.batches[0] == 20
    assert max(store.batches[1:]) <= 4
    assert sum(store.batches) == 40

    monkeypatch.setattr("wtb.execution.journal.COMMIT_S", 60.0)
    for number in range(100):
        journal.record(mine, 1, **say(f"last.{number}", mine))
    journal.flush(mine, force=True)
    assert store.batches[-1] > 4
    kinds = [row["kind"] for row in sorted(store.all(events), key=lambda row: row["id"]) if "." in row["kind"]]
    recorded = [f"{when}.{number}" for when in ("first", "then") for number in range(20)]
    recorded += [f"last.{number}" for number in range(100)]
    assert [kind for kind in kinds if kind in recorded] == recorded, "in the order in which they were recorded"


def test_a_value_is_stored_once_whoever_wrote_it_and_when(store: Store) -> None:
    journal = store.journal(0.0)
    before = len(store.all(values))
    big = Value.of("x" * 1000)
    for execution in store.claimed * 3:
        journal.record(execution.id, execution.token, values=[big, big])
        journal.flush(execution.id)

    assert len(store.all(values)) == before + 1
    assert queries.load_values(store.database, [big.digest]) == {big.digest: big}


@pytest.mark.parametrize("batches", ["one", "two"])
def test_a_node_run_that_starts_and_ends_is_one_row(batches: str, store: Store) -> None:
    mine, _ = store.claimed
    journal = store.journal(LONG)
    journal.record(
        mine.id,
        mine.token,
        checkpoints=[checkpoint(mine.id, "c1")],
        node_run=node_run(mine.id, "c1", "r1"),
    )
    if batches == "two":
        journal.flush(mine.id, force=True)
        assert [row["status"] for row in store.all(node_runs)] == ["running"]

    journal.record(mine.id, mine.token, node_run_change=("r1", {"attempts": 2}))
    journal.record(mine.id, mine.token, node_run_change=("r1", {"status": "succeeded", "writes": {"x": "d"}}))
    journal.flush(mine.id, force=True)

    (row,) = store.all(node_runs)
    assert (row["status"], row["attempts"], row["writes"]) == ("succeeded", 2, {"x": "d"})


def test_a_child_that_is_born_and_ends_in_one_batch_is_one_row(store: Store) -> None:
    parent, _ = store.claimed
    journal = store.journal(LONG)
    child = new_id()
    journal.record(parent.id, parent.token, change=FORKED, born=[child_of(parent, child)])
    journal.record(child, 1, change={"head_id": "c9"}, checkpoints=[checkpoint(child, "c9")])
    journal.record(child, 1, change=ENDED, outcomes=[outcome(structs.replace(parent, id=child), 0)])
    journal.close()

    row = store.execution(child)
    assert (row["status"], row["owner_id"], row["lease_until"], row["head_id"]) == ("completed", None, None, "c9")
    by_combination = {row["combination"]: (row["status"], row["execution_id"]) for row in store.all(cells)}
    assert [row["status"] for row in store.all(cells)].count("succeeded") == 1
    assert len(by_combination) == 2


# Trouble


def test_an_error_of_the_database_reaches_everybody_who_records(store: Store) -> None:
    mine, _ = store.claimed

    def write(batch: Batch) -> set[str]:
        raise StoreError("database gone")

    journal = Journal(write, 0.0)
    journal.record(mine.id, mine.token, **say("x", mine.id))

    with pytest.raises(StoreError, match="database gone"):
        journal.flush(mine.id)
    with pytest.raises(StoreError, match="database gone"):
        journal.record(mine.id, mine.token, **say("y", mine.id))
    with pytest.raises(StoreError, match="database gone"):
        journal.close()


def test_an_error_that_was_not_expected_names_its_kind(store: Store) -> None:
    mine, _ = store.claimed
    journal = store.journal(0.0)
    # A checkpoint that is not there, so that the constraint refuses the node run at the commit.
    journal.record(mine.id, mine.token, node_run=node_run(mine.id, "nowhere", "r1"), **say("x", mine.id))

    with pytest.raises(WTBError, match=sentence("writing to the database failed: {}", "IntegrityError")):
        journal.flush(mine.id)
    assert store.messages() == []


def test_given_a_flush_that_gives_way_in_a_deadlock_then_it_is_made_again(store: Store) -> None:
    if store.database.is_sqlite:
        pytest.skip("one transaction at a time writes there")
    # Who looks for a deadlock first gives way; on a busy machine that may be the test: then it tries again.
    assert any(_gives_way(store) for _ in range(20)), "the flush never gave way"
    with store.database.read() as connection:
        assert list(connection.scalars(sa.select(executions.c.kills))) == [3, 3]


def _gives_way(store: Store) -> bool:
    """Flush while another transaction holds the locks in the other order. Return False if that one gave way."""
    low, high = sorted(row.id for row in store.claimed)
    with store.database.write() as connection:  # its row is behind the other in the table now
        connection.execute(executions.update().where(executions.c.id == low).values(kills=0))
    batch = Batch()
    for row in store.claimed:
        batch.add(row.id, row.token, change={"kills": 3})
    query = sa.select(executions.c.id)
    waits = sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()")
    with ThreadPoolExecutor(1) as aside:
        coming = None
        try:
            with store.database.write() as connection:
                connection.execute(query.where(executions.c.id == low).with_for_update())
                coming = aside.submit(flush, store.database, batch, 30.0)
                while not connection.scalar(waits):
                    assert not coming.done(), "it has not waited"
                connection.execute(query.where(executions.c.id == high).with_for_update())
        except StoreError:
            return False
        finally:
            assert coming is None or coming.result(60) == set()
    return True


def test_given_records_of_a_lost_lease_then_what_they_had_reserved_is_released(store: Store) -> None:
    row = store.claimed[0]
    place = {"scope": "sweep", "key": "sweep", "node": "", "kind": "usd", "id": "held"}
    with store.database.write() as connection:
        connection.execute(budgets.insert().values(scope="sweep", key="sweep", node="", kind="usd", most=1.0, spent=0))
        reservation = {"amount": 1.0, "alone": False, "execution_id": row.id, "runner_id": "mine"}
        connection.execute(reservations.insert().values(**place, **reservation))
    store.steal(row.id)
    batch = Batch()
    settlement = {"session_id": "default", "sweep_id": "sweep", **place, "spent": 0.5, "left": None}
    batch.add(row.id, row.token, appended={"settled": [settlement]})

    assert flush(store.database, batch, 30.0) == {row.id}

    with store.database.read() as connection:
        assert connection.execute(sa.select(reservations)).all() == []
        assert connection.scalar(sa.select(budgets.c.spent)) == 0
