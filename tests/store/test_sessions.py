"""Sessions: quotas that hold in a race, usage, and a deletion that leaves the others complete."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from tests.store.test_submission import new_sweep, submit_cases
from tests.support.attempts import attempts
from tests.support.inputs import name_in_errors
from tests.support.prose import sentence
from wtb.authoring.workflow import Workflow
from wtb.core.errors import ConflictError, InputError
from wtb.core.ids import new_id
from wtb.core.units import parse_size
from wtb.core.values import Value
from wtb.store.access import sessions
from wtb.store.access.budgets import budget_rows
from wtb.store.access.sessions import Quota
from wtb.store.access.usage import Usage, session_rows, usage
from wtb.store.database import DEFAULT_SESSION, Database
from wtb.store.housekeeping import contents as filing
from wtb.store.housekeeping import deletion
from wtb.store.log import add_event, subject
from wtb.store.process_identity import ProcessIdentity, WorkerIdentity
from wtb.store.read import queries
from wtb.store.runs import leases, slots
from wtb.store.runs.queue import Slot, mark_busy
from wtb.store.runs.submission import NewCase
from wtb.store.runs.submit import submit
from wtb.store.tables.schema import (
    checkpoints,
    events,
    executions,
    files,
    looks,
    metadata,
    node_runs,
    now,
    runners,
    sweeps,
    values,
)
from wtb.store.tables.schema import sessions as table
from wtb.store.tables.sweeps import SessionRow

if TYPE_CHECKING:
    from tests.support.bench import Bench

FRESH_S = 30.0


def runner(host: str = "here", pid: int = 7) -> ProcessIdentity:
    return ProcessIdentity(new_id(), host, "b", pid, 0.0)


def rows(database: Database, of: sa.Table) -> list[dict[str, Any]]:
    with database.read() as connection:
        return [dict(row) for row in connection.execute(sa.select(of)).mappings()]


def submitted(database: Database, id: str, session: str) -> None:
    submit_cases(database, id, session, queued=False)


@pytest.fixture
def team(database: Database) -> str:
    """The id of a session without limits."""
    return str(sessions.create(database, "team").id)


def limited(database: Database, **quota: Any) -> str:
    return str(sessions.create(database, "small", Quota(**quota)).id)


# Names


def test_a_name_that_can_be_a_directory_is_taken(database: Database) -> None:
    for name in ("a", "A-b_c.d", "9", "x" * 64, "_", "_-a"):
        with name_in_errors(name):
            session = sessions.create(database, name)
            assert sessions.find_session(database, name) == session
            assert (session.quota, session.archived_at) == (None, None)


def test_a_name_that_cannot_is_refused(database: Database) -> None:
    problem = r"cannot be the name of a session; expected 1 to 64|name (is empty|has a NUL character)"
    for name in ("", ".", "..", ".hidden", "a/b", "a b", "x" * 65, "naïve", "a\n", "a\0", "~", "-a"):
        with name_in_errors(name), pytest.raises(InputError, match=problem):
            sessions.create(database, name)
    assert len(rows(database, table)) == 1


def test_a_name_that_is_taken_is_refused_in_any_case(database: Database, team: str) -> None:
    taken = sentence("a session {} already; `wtb admin session change {}`", "'team'", "team")
    differs = sentence("{} already, and names must differ by more than case", "'team'")
    for name, why in (("team", taken), ("Team", differs)):
        with name_in_errors(name), pytest.raises(ConflictError, match=why):
            sessions.create(database, name)


def test_of_many_that_create_one_name_one_does(database: Database) -> None:
    outcomes = at_once([lambda: sessions.create(database, "team") for _ in range(8)])
    assert sum(isinstance(outcome, SessionRow) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == 7


def test_an_unknown_session_is_refused_with_a_near_one_and_how_to_make_it(database: Database, team: str) -> None:
    with pytest.raises(InputError, match=r"no session 'taem'; did you mean 'team'\? \(`wtb admin session create taem`"):
        sessions.find_session(database, "taem")
    with pytest.raises(InputError, match="no session 'q'; `wtb admin session create q` makes it"):
        sessions.find_session(database, "q")
    with pytest.raises(InputError, match=r"no session '\.\./x'; `wtb admin session list` shows all"):
        submitted(database, "s", "../x")


# Quotas


def test_a_quota_is_stored_without_what_has_no_limit(database: Database) -> None:
    session_id = limited(database, node_runs=3)
    assert [row["quota"] for row in rows(database, table) if row["id"] == session_id] == [{"node_runs": 3}]
    assert sessions.quota_of(database, session_id) == Quota(node_runs=3)
    assert sessions.quota_of(database, DEFAULT_SESSION) == Quota()

    assert sessions.change(database, session_id, {"disk": 2**40, "node_runs": None}) == Quota(disk=2**40)
    assert sessions.change(database, session_id, {"usd": 0.5}) == Quota(disk=2**40, usd=0.5)
    assert sessions.change(database, session_id, {"usd": None, "disk": None}) == Quota()
    assert sessions.quota_of(database, session_id) == Quota()
    assert sessions.change(database, DEFAULT_SESSION, {"usd": 2.5}) == Quota(usd=2.5)


def test_an_impossible_quota_is_refused(team: str, database: Database) -> None:
    amounts: list[tuple[str, Any]] = [("disk", 0), ("node_runs", -1), ("usd", float("nan")), ("usd", float("inf"))]
    for key, amount in [*amounts, ("disk", 2**63)]:
        problem = f"^{key} is .*; expected (a (whole|finite) number|at most)"
        with name_in_errors((key, amount)), pytest.raises(InputError, match=problem):
            Quota(**{key: amount})
        with name_in_errors((key, amount)), pytest.raises(InputError):
            sessions.change(database, team, {key: amount})
    assert sessions.quota_of(database, team) == Quota()


def test_sizes_are_powers_of_1000_or_of_1024() -> None:
    expected = {"512": 512, "1 B": 1, "2kB": 2000, "2 KiB": 2048, "500MB": 5 * 10**8, "1.5GB": 15 * 10**8}
    expected |= {"2gib": 2**31, " 3 TB ": 3 * 10**12, "0.5TiB": 2**39, "9223372036854775807": 2**63 - 1}
    assert {text: parse_size(text) for text in expected} == expected
    assert parse_size(4096) == 4096


@pytest.mark.parametrize(
    "wrong", ["", "0", 0, -5, "-1MB", "1.5", "1.5 B", "MB", "1iB", "1 PB", "10 G", "1e9", "9999999TiB", True]
)
def test_what_is_not_a_size_is_refused(wrong: str | int) -> None:
    with pytest.raises(ValueError, match="is not a size; expected a positive size, such as 500MB"):
        parse_size(wrong)


# Slots


def test_slots_are_what_is_left_of_the_quota(database: Database) -> None:
    small = limited(database, node_runs=5)
    first, second, third = runner(), runner(pid=8, host="there"), runner()

    assert slots.register_runner(database, first, small, 3, FRESH_S) == 3
    assert slots.register_runner(database, second, small, 3, FRESH_S) == 2
    who = r"process 7 on here \(3\), process 8 on there \(2\)"
    with pytest.raises(ConflictError, match=rf"session 'small': its quota .* \(5\) is all taken by {who}; wait"):
        slots.register_runner(database, third, small, 1, FRESH_S)
    assert sorted(row["id"] for row in rows(database, runners)) == sorted([first.id, second.id])
    assert [row.id for row in slots.live_runners(database, small)] == [first.id, second.id]

    slots.end_runner(database, first.id)
    assert usage(database, small).slots == 2
    assert slots.register_runner(database, third, small, 9, FRESH_S) == 3


def test_busy_slots_of_workers_count_for_the_sessions_whose_sweeps_they_run(database: Database, team: str) -> None:
    small = limited(database, node_runs=5)
    submitted(database, "s1", "small")
    worker = WorkerIdentity(**asdict(runner(pid=9)), worker="one", queues=[""], slots=8, version="")
    leases.register(database, worker)  # of any session: it holds those that are busy
    (first, other) = rows(database, executions)
    for number, execution in enumerate((first, other)):
        assert mark_busy(database, {Slot(worker.id, number, ("",)): execution["id"]}, "s1")

    assert usage(database, small).slots == 2
    assert usage(database, team).slots == 0
    assert slots.register_runner(database, runner(), small, 9, FRESH_S) == 3
    who = r"process 9 on here \(2\), process 7 on here \(3\)"
    with pytest.raises(ConflictError, match=rf"is all taken by {who}; wait"):
        slots.register_runner(database, runner(), small, 1, FRESH_S)
    assert mark_busy(database, {Slot(worker.id, 1, ("",)): other["id"]}, "s1")  # it has this one already
    assert not mark_busy(database, {Slot(worker.id, 2, ("",)): other["id"]}, "s1")


def test_slots_that_become_busy_at_once_are_as_many_as_the_quota_leaves(database: Database, team: str) -> None:
    limited(database, node_runs=3)
    submitted(database, "s1", "small")
    worker = WorkerIdentity(**asdict(runner(pid=9)), worker="one", queues=[""], slots=8, version="")
    leases.register(database, worker)
    execution = rows(database, executions)[0]["id"]
    busy = {Slot(worker.id, number, ("",)): execution for number in range(5)}
    assert [slot.number for slot in mark_busy(database, busy, "s1")] == [0, 1, 2]
    assert [slot.number for slot in mark_busy(database, busy, "s1")] == [0, 1, 2]  # their own do not count
    more = {Slot(worker.id, number, ("",)): execution for number in (3, 4)}
    assert mark_busy(database, more, "s1") == []


def test_without_a_quota_a_runner_gets_what_it_wants(database: Database, team: str) -> None:
    assert slots.register_runner(database, runner(), team, 16, FRESH_S) == 16
    assert slots.register_runner(database, runner(), team, 2**62, FRESH_S) == 2**31 - 1
    assert usage(database, team).slots == 16 + 2**31 - 1
    assert usage(database, DEFAULT_SESSION).slots == 0


def test_slots_of_one_session_are_none_of_anothers(database: Database, team: str) -> None:
    small = limited(database, node_runs=1)
    slots.register_runner(database, runner(), team, 8, FRESH_S)
    assert slots.register_runner(database, runner(), small, 8, FRESH_S) == 1


def test_a_runner_without_heartbeats_loses_its_slots_and_one_with_them_keeps_them(database: Database) -> None:
    small = limited(database, node_runs=2)
    silent, beating = runner(), runner()
    slots.register_runner(database, silent, small, 1, FRESH_S)
    slots.register_runner(database, beating, small, 1, FRESH_S)
    with database.write() as connection:
        connection.execute(runners.update().values(seen_at=now() - 31))
    leases.renew(database, beating.id, 30.0)

    assert usage(database, small, FRESH_S).slots == 1
    assert slots.register_runner(database, runner(), small, 5, FRESH_S) == 1


def test_a_runner_that_is_provably_dead_holds_no_slots(database: Database) -> None:
    small = limited(database, node_runs=2)
    dead = runner()
    slots.register_runner(database, dead, small, 2, FRESH_S)

    def alive(row: Any) -> bool:
        return bool(row.id != dead.id)

    assert usage(database, small, FRESH_S, alive=alive).slots == 0
    assert slots.register_runner(database, runner(), small, 2, FRESH_S, alive=alive) == 2


def test_runners_that_race_never_get_more_than_the_quota(database: Database) -> None:
    small = limited(database, node_runs=7)
    outcomes = at_once([lambda: slots.register_runner(database, runner(), small, 2, FRESH_S) for _ in range(12)])

    assert sorted(outcome for outcome in outcomes if isinstance(outcome, int)) == [1, 2, 2, 2]
    assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == 8
    assert usage(database, small).slots == 7 == sum(row["slots"] for row in rows(database, runners))


def test_a_session_that_is_gone_gives_no_slots(database: Database) -> None:
    with pytest.raises(InputError, match=sentence("was deleted meanwhile")):
        slots.register_runner(database, runner(), "gone", 1, FRESH_S)
    assert rows(database, runners) == []


def test_rows_of_a_session_can_be_inserted_while_slots_are_taken(prepared_postgres_url: str) -> None:
    database = Database(prepared_postgres_url)
    with database.write() as connection:
        sessions.locked_session(connection, DEFAULT_SESSION)
        submitted(database, "s", DEFAULT_SESSION)
        with database.write() as other:
            filing.add_files(other, DEFAULT_SESSION, [("d" * 64, 1)])
    database.close()


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Start calls together on their own threads, and return what they returned or raised."""
    outcomes: list[Any] = []
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            outcomes.append(call())
        except (ConflictError, InputError) as error:
            outcomes.append(error)

    with ThreadPoolExecutor(len(calls)) as pool:
        list(pool.map(run, calls))
    assert len(outcomes) == len(calls)
    return outcomes


# Archives


def test_an_archived_session_takes_no_new_sweeps_until_that_is_undone(database: Database, team: str) -> None:
    submitted(database, "old", "team")
    assert sessions.archive(database, team)
    assert not sessions.archive(database, team)

    with pytest.raises(ConflictError, match=r"'team' is archived, .* `wtb admin session archive team --undo`"):
        submitted(database, "new", "team")
    assert queries.find_sweep(database, "old").session_id == team
    assert [row["id"] for row in rows(database, sweeps)] == ["old"]

    assert sessions.unarchive(database, team)
    assert not sessions.unarchive(database, team)
    submitted(database, "new", "team")


def test_the_default_session_is_neither_archived_nor_deleted(database: Database) -> None:
    with pytest.raises(ConflictError, match="'default' cannot be archived"):
        sessions.archive(database, DEFAULT_SESSION)
    with pytest.raises(ConflictError, match="'default' cannot be deleted"):
        deletion.delete_session(database, DEFAULT_SESSION, may_live=lambda owner, expired: False)
    assert sessions.find_session(database, "default").archived_at is None


# Files


def test_files_are_noted_once_for_each_session(database: Database, team: str) -> None:
    with database.write() as connection:
        filing.add_files(connection, team, [("b" * 64, 20), ("a" * 64, 10), ("b" * 64, 20)])
        filing.add_files(connection, team, [("a" * 64, 10), ("c" * 64, 5)])
        filing.add_files(connection, DEFAULT_SESSION, iter([("a" * 64, 10)]))
        filing.add_files(connection, team, [])
    assert usage(database, team).disk_bytes == 35
    assert usage(database, DEFAULT_SESSION).disk_bytes == 10
    assert filing.missing_files(database, DEFAULT_SESSION, ["a" * 64, "b" * 64]) == {"b" * 64}
    assert filing.missing_files(database, team, iter(["a" * 64])) == filing.missing_files(database, team, []) == set()


# Whole sweeps in several sessions


@pytest.fixture
def two(database: Database, bench: Callable[..., Bench]) -> tuple[Bench, Bench]:
    """The same sweep in the sessions `one` and `other`, with equal values and files."""
    pair = []
    for name in ("one", "other"):
        session = str(sessions.create(database, name).id)
        wf = Workflow("w")

        @wf.node
        def A(state: dict[str, Any], ctx: Any, *, by: int = 1) -> dict[str, Any]:
            ctx.cost(usd=0.25)
            return {"x": state["x"] + by}

        A.variant("two", by=2)
        wf.entry(A)
        sweep = bench(wf, vary={"A": "all"}, session=name)
        sweep.run()
        with database.write() as connection:
            filing.add_files(connection, session, [("a" * 64, 100), (("b" if name == "one" else "c") * 64, 7)])
        pair.append(sweep)
    return pair[0], pair[1]


def everything_of(bench: Bench) -> dict[str, Any]:
    """All rows of a sweep, its cells with their states decoded, and what its session uses."""
    session = bench.row.session_id
    of_sweep = {t.name: bench.rows(t) for t in metadata.sorted_tables if "sweep_id" in t.c}
    return {
        **of_sweep,
        "files": [row for row in rows(bench.database, files) if row["session_id"] == session],
        "states": bench.cells(),
        "usage": usage(bench.database, session),
    }


def test_usage_and_sweeps_are_those_of_one_session(database: Database, two: tuple[Bench, Bench]) -> None:
    session = two[0].row.session_id
    expected = Usage(disk_bytes=107, slots=0, usd=0.5, sweeps=1, cells=2)
    assert replace(usage(database, session), slots=0, active_at=None) == expected
    usage_by_name = {row.name: replace(used, slots=0, active_at=None) for row, used in session_rows(database)}
    assert usage_by_name == {"default": Usage(), "one": expected, "other": expected}

    assert [row.id for row in queries.list_sweeps(database, session="other")] == [two[1].sweep_id]
    assert len(queries.list_sweeps(database)) == 2
    assert queries.list_sweeps(database, session="default") == []


def test_deleting_a_session_removes_its_rows_and_nothing_of_another(
    database: Database, two: tuple[Bench, Bench]
) -> None:
    first, second = two
    session = first.row.session_id
    before = everything_of(second)
    assert [cell.state for cell in before["states"]] == [cell.state for cell in first.cells()]
    stored = len(rows(database, values))

    removed = deletion.delete_session(database, session, may_live=lambda owner, expired: False)

    assert removed == {"sweeps": 1, "cells": 2, "files": 2}
    assert everything_of(second) == before
    assert len(rows(database, values)) == stored  # a collection removes those that nobody reaches
    for each in metadata.sorted_tables:
        if each is looks:  # which outlive their sweeps
            continue
        if "session_id" in each.c:
            assert all(row["session_id"] != session for row in rows(database, each)), each.name
        if "sweep_id" in each.c:
            assert all(row["sweep_id"] == second.sweep_id for row in rows(database, each)), each.name
    mine = {row["id"] for row in rows(database, node_runs)}
    assert all(row["node_run_id"] in mine for row in rows(database, attempts))
    with pytest.raises(InputError, match=sentence("no session {}", "'one'")):
        sessions.find_session(database, "one")
    assert rows(database, checkpoints)
    again = sessions.create(database, "one")
    assert usage(database, again.id) == Usage(), "the name is free, and the session begins empty"


def test_a_session_with_a_sweep_that_runs_is_not_deleted(database: Database, team: str) -> None:
    submitted(database, "s", "team")
    owner = runner()
    leases.register(database, owner)
    leases.move_sweep(database, "s", "running", runner_id=owner.id)
    (claimed, *_) = leases.claim(database, "s", owner.id, 1, 30.0)
    calls: list[Any] = []

    with pytest.raises(
        ConflictError,
        match=sentence("session {}: process {} on {} is running {}; stop that process", "'team'", 7, "here", "sweep s"),
    ):
        deletion.delete_session(database, team, may_live=lambda owner, expired: calls.append((owner, expired)) or True)

    assert [(row.id, bool(expired)) for row, expired in calls] == [(owner.id, False)]
    assert {row["id"] for row in rows(database, executions)} >= {claimed.id}
    assert rows(database, events)
    with database.write() as connection:
        connection.execute(executions.update().where(executions.c.owner_id.is_not(None)).values(lease_until=now() - 1))
    removed = deletion.delete_session(database, team, may_live=lambda owner, expired: not expired)
    assert removed["sweeps"] == 1
    assert rows(database, executions) == []


def test_a_session_whose_slots_were_just_taken_is_not_deleted(database: Database, team: str) -> None:
    slots.register_runner(database, owner := runner(), team, 1, FRESH_S)
    with pytest.raises(ConflictError, match=sentence("process {} on {} is running {}", 7, "here", "a sweep of it")):
        deletion.delete_session(database, team, may_live=lambda owner, expired: not expired)
    slots.end_runner(database, owner.id)
    deletion.delete_session(database, team, may_live=lambda owner, expired: not expired)
    assert rows(database, runners) == []


def test_a_submission_that_races_with_the_deletion_is_whole_or_refused(database: Database) -> None:
    for number in range(5):
        session = str(sessions.create(database, "brief").id)

        def remove(session: str = session) -> Any:
            return deletion.delete_session(database, session, may_live=lambda owner, expired: False)

        outcomes = at_once([remove, lambda n=number: submitted(database, f"s{n}", "brief")])  # type: ignore[misc]
        assert not any(isinstance(outcome, ConflictError) for outcome in outcomes)
        refusals = [str(outcome) for outcome in outcomes if isinstance(outcome, InputError)]
        assert all(
            sentence("no session {}", "'brief'") in text or sentence("was deleted meanwhile") in text
            for text in refusals
        )
    assert rows(database, sweeps) == rows(database, executions) == rows(database, events) == []


def test_the_session_is_the_one_given_then_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WTB_SESSION", raising=False)
    assert sessions.session_name() == "default"
    monkeypatch.setenv("WTB_SESSION", "ours")
    assert [sessions.session_name(name) for name in ("mine", None, "")] == ["mine", "ours", "ours"]
    monkeypatch.setenv("WTB_SESSION", "")
    assert sessions.session_name(None) == "default"


# Names, owners and what they did last


def test_a_renamed_session_keeps_its_sweeps_quota_and_budgets(database: Database) -> None:
    id = limited(database, usd=2.0, disk=2**30)
    submitted(database, "s1", "small")
    assert sessions.rename(database, id, "Large")
    assert not sessions.rename(database, id, "Large")
    assert sessions.rename(database, id, "large")  # its own name in another case
    row = sessions.find_session(database, "large")
    assert (row.id, Quota.of(row.quota)) == (id, Quota(usd=2.0, disk=2**30))
    assert queries.find_sweep(database, "s1").session == "large"
    assert [(budget.key, budget.name) for budget in budget_rows(database)] == [(id, "large")]
    with pytest.raises(InputError, match=sentence("there is no session {}", "'small'")):
        sessions.find_session(database, "small")
    sessions.create(database, "small")  # the name is free again


def test_a_name_that_cannot_be_had_is_refused_and_nothing_changes(database: Database, team: str) -> None:
    sessions.create(database, "other")
    for id, name, error, why in (
        (team, "other", ConflictError, sentence("there is a session {} already", "'other'")),
        (team, "OTHER", ConflictError, sentence("{} already, and names must differ by more than case", "'other'")),
        (team, "../other", InputError, sentence("cannot be the name of a session")),
        (DEFAULT_SESSION, "mine", ConflictError, "'default' cannot be renamed"),
    ):
        with name_in_errors(name), pytest.raises(error, match=why):
            sessions.rename(database, id, name)
    assert sessions.find_session(database, "team").id == team


def test_of_two_sessions_that_want_a_name_at_once_one_has_it(database: Database, team: str) -> None:
    other = sessions.create(database, "other").id
    outcomes = at_once([partial(sessions.rename, database, id, "wanted") for id in (team, other)])
    (refusal,) = (outcome for outcome in outcomes if outcome is not True)
    assert isinstance(refusal, ConflictError)
    assert sentence("there is a session {} already", "'wanted'") in str(refusal)


def test_a_submission_that_has_begun_goes_to_its_renamed_session(database: Database, team: str) -> None:
    def cases() -> Iterator[NewCase]:
        yield NewCase("0", {"x": Value.of(0)}, None)
        sessions.rename(database, team, "crew")  # while the rest is read
        yield NewCase("1", {"x": Value.of(1)}, None)

    submit(database, new_sweep("s1", "team", 2, 1, project=None, queued=False), cases())
    assert queries.find_sweep(database, "s1").session == "crew"


def test_owner_and_metadata_change_apart_from_each_other(database: Database) -> None:
    id = sessions.create(database, "team", owner="ops", metadata={"cost": "4711"}).id
    sessions.change(database, id, metadata={"ticket": "W-1", "cost": None})
    row = sessions.find_session(database, "team")
    assert (row.owner, row.metadata) == ("ops", {"ticket": "W-1"})
    sessions.change(database, id, owner="", metadata={"ticket": None})
    row = sessions.find_session(database, "team")
    assert (row.owner, row.metadata) == (None, None)
    with pytest.raises(InputError, match=sentence("{} names of metadata; expected at most {}", 65, 64)):
        sessions.change(database, id, {"disk": 5}, owner="me", metadata={str(number): "x" for number in range(65)})
    with pytest.raises(InputError):
        sessions.change(database, id, {"disk": -1}, owner="me", metadata={"ticket": "W-2"})
    assert sessions.find_session(database, "team") == row, "a change is carried out whole, or not at all"


def test_a_session_was_last_active_when_something_happened_to_its_sweeps(database: Database, team: str) -> None:
    assert usage(database, team).active_at is None
    submitted(database, "s1", "team")
    active_at = usage(database, team).active_at
    assert active_at is not None
    with database.write() as connection:
        add_event(connection, subject(team, "s1"), "sweep.paused", {"reason": "x", "by": "ada"})
    acted = usage(database, team).active_at
    assert acted is not None
    assert acted >= active_at
    assert {row.name: used.active_at for row, used in session_rows(database)} == {"default": None, "team": acted}
