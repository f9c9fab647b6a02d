"""Claims are leases with fencing tokens, and the database rejects impossible states."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from tests.store.test_submission import submit_cases
from tests.support.inputs import name_in_errors
from tests.support.prose import sentence
from wtb.core.errors import ConflictError, InputError
from wtb.store.database import Database
from wtb.store.process_identity import ProcessIdentity
from wtb.store.read.queries import cell_counts
from wtb.store.runs import leases as claims
from wtb.store.runs.batch import Batch
from wtb.store.runs.flush import flush
from wtb.store.tables.schema import (
    cases,
    cells,
    checkpoints,
    events,
    executions,
    looks,
    metadata,
    node_runs,
    now,
    sweeps,
)

OWNER = {"host": "here", "boot": "b", "pid": 1, "process_started_at": 0.0}
Submit = Callable[..., None]


@pytest.fixture
def submitted(database: Database) -> Submit:
    """Submit a sweep: `submitted(cases=3, combinations=2)`. Runners `one` and `two` are known."""
    for runner in ("one", "two"):
        claims.register(database, ProcessIdentity(runner, **OWNER))

    return partial(submit_cases, database, "sweep", cases=1, queued=False)


def rows(database: Database, table: sa.Table) -> list[dict[str, Any]]:
    with database.read() as connection:
        return [dict(row) for row in connection.execute(sa.select(table)).mappings()]


def statuses(database: Database, table: sa.Table) -> list[str]:
    return sorted(row["status"] for row in rows(database, table))


def clock(database: Database) -> float:
    with database.read() as connection:
        return float(connection.scalar(sa.select(now())) or 0.0)


# Claiming


def test_a_claim_takes_the_oldest_up_to_its_limit_each_with_a_new_token_and_a_lease(
    database: Database, submitted: Submit
) -> None:
    submitted(cases=5, combinations=2)
    before = clock(database)

    claimed = claims.claim(database, "sweep", "one", 3, 30.0)

    ids = sorted(row["id"] for row in rows(database, executions))
    assert [row.id for row in claimed] == ids[:3]
    assert {(row.status, row.owner_id, row.token) for row in claimed} == {("running", "one", 1)}
    assert all(before + 29.9 <= row.lease_until <= clock(database) + 30.1 for row in claimed)
    assert cell_counts(database, "sweep") == {"pending": 4, "running": 6}


def test_what_is_claimed_cannot_be_claimed_again(database: Database, submitted: Submit) -> None:
    submitted(cases=3)

    assert len(claims.claim(database, "sweep", "one", 10, 30.0)) == 3
    assert claims.claim(database, "sweep", "two", 10, 30.0) == []


def test_a_claim_takes_only_from_its_own_sweep(database: Database, submitted: Submit) -> None:
    submitted()
    submit_cases(database, "other", queued=False)

    assert {row.sweep_id for row in claims.claim(database, "other", "one", 10, 30.0)} == {"other"}


def test_claimers_that_race_claim_each_execution_once(prepared_url: str, database: Database, submitted: Submit) -> None:
    submitted(cases=60)
    start = threading.Barrier(4, timeout=60)
    claimed_ids: dict[str, list[str]] = {"one": [], "two": []}

    def race(runner: str) -> None:
        with closing(Database(prepared_url)) as mine:  # as another process has it
            start.wait()
            while claimed := claims.claim(mine, "sweep", runner, 3, 30.0):
                assert len(claimed) <= 3
                claimed_ids[runner] += [row.id for row in claimed]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(race, ("one", "two", "one", "two")))
    assert sorted(claimed_ids["one"] + claimed_ids["two"]) == sorted(row["id"] for row in rows(database, executions))
    owned = {row["id"]: (row["owner_id"], row["token"]) for row in rows(database, executions)}
    assert owned == {id: (runner, 1) for runner, ids in claimed_ids.items() for id in ids}


# Giving back


def test_what_is_released_can_be_claimed_again_under_a_newer_token(database: Database, submitted: Submit) -> None:
    submitted(cases=2, combinations=2)
    claims.claim(database, "sweep", "one", 10, 30.0)

    assert claims.release_runners(database, "sweep", ["one"]) == 2

    assert statuses(database, executions) == ["pending", "pending"]
    assert statuses(database, cells) == ["pending"] * 4
    assert {row["owner_id"] for row in rows(database, executions)} == {None}
    assert {row.token for row in claims.claim(database, "sweep", "two", 10, 30.0)} == {3}


def test_giving_back_takes_nothing_from_others(database: Database, submitted: Submit) -> None:
    submitted(cases=2)
    claims.claim(database, "sweep", "one", 1, 30.0)
    claims.claim(database, "sweep", "two", 1, 30.0)

    assert claims.release_runners(database, "sweep", ["one"]) == 1

    assert sorted((row["status"], row["owner_id"]) for row in rows(database, executions) if row["owner_id"]) == [
        ("running", "two")
    ]
    assert cell_counts(database, "sweep") == {"pending": 1, "running": 1}


def test_a_runner_that_comes_back_from_the_dead_changes_nothing(database: Database, submitted: Submit) -> None:
    submitted()
    (mine,) = claims.claim(database, "sweep", "one", 1, 30.0)
    claims.release_runners(database, "sweep", ["one"])
    (theirs,) = claims.claim(database, "sweep", "two", 1, 30.0)
    before = rows(database, executions), rows(database, cells)
    late = Batch(leases={mine.id: mine.token}, changed={mine.id: {"status": "failed", "owner_id": None}})
    late.outcomes.append((mine.id, outcome(mine, "failed")))

    assert flush(database, late, 30.0) == {mine.id}

    assert (rows(database, executions), rows(database, cells)) == before
    assert theirs.token > mine.token


def test_a_heartbeat_keeps_the_leases_of_its_runner_only(database: Database, submitted: Submit) -> None:
    submitted(cases=2)
    claims.claim(database, "sweep", "one", 1, 1.0)
    claims.claim(database, "sweep", "two", 1, 1.0)

    claims.renew(database, "one", 500.0)

    remaining = {row["owner_id"]: row["lease_until"] - clock(database) for row in rows(database, executions)}
    assert remaining["one"] > 400
    assert remaining["two"] < 2


def test_an_owner_is_expired_once_all_its_leases_have_run_out(database: Database, submitted: Submit) -> None:
    submitted(cases=2)
    claims.claim(database, "sweep", "one", 1, -5.0)
    claims.claim(database, "sweep", "two", 1, 500.0)

    expired_by_owner = {owner.id: bool(owner.expired) for owner in claims.owners(database, "sweep")}

    assert expired_by_owner == {"one": True, "two": False}


def test_a_sweep_is_unfinished_while_an_execution_can_still_move(database: Database, submitted: Submit) -> None:
    submitted(cases=2)
    assert claims.unfinished(database, "sweep") == 2
    (mine,) = claims.claim(database, "sweep", "one", 1, 30.0)

    ended = {"status": "completed", "owner_id": None, "lease_until": None}
    flush(database, Batch(leases={mine.id: mine.token}, changed={mine.id: ended}), 30.0)

    assert claims.unfinished(database, "sweep") == 1


# Outcomes


def outcome(execution: Any, status: str) -> dict[str, Any]:
    row = {"sweep_id": "sweep", "case_number": execution.case_number, "repeat": 0, "combination": 0}
    row |= {"status": status, "execution_id": execution.id, "elapsed_s": 1.0, "usd": 0.0, "tokens_in": 0}
    return {**row, "tokens_out": 0, "node_runs": 1, "failure": None}


def test_a_cell_keeps_the_outcome_that_it_has(database: Database, submitted: Submit) -> None:
    submitted()
    (mine,) = claims.claim(database, "sweep", "one", 1, 30.0)
    for status in ("succeeded", "failed"):
        batch = Batch(leases={mine.id: mine.token})
        batch.outcomes.append((mine.id, outcome(mine, status)))
        flush(database, batch, 30.0)

    (cell,) = rows(database, cells)
    assert cell["status"] == "succeeded"
    assert abs(cell["finished_at"] - clock(database)) < 60


@pytest.mark.parametrize("status", ["completed", "failed", "forked", "cancelled"])
def test_rows_of_an_execution_that_this_runner_has_ended_are_an_error_and_not_lost(
    status: str, database: Database, submitted: Submit
) -> None:
    """Another journal of this process ended it under the same token before this one had committed its last step."""
    submitted(cases=2)
    mine, other = claims.claim(database, "sweep", "one", 2, 30.0)
    ended = {"status": status, "owner_id": None, "lease_until": None}
    leases = {mine.id: mine.token, other.id: other.token}
    assert flush(database, Batch(leases={mine.id: mine.token}, changed={mine.id: ended}), 30.0) == set()

    late = Batch(leases=leases, changed={id: {"status": "failed", "owner_id": None} for id in leases})

    with pytest.raises(ConflictError, match=f"execution {mine.id} is {status}, but its runner has rows of it"):
        flush(database, late, 30.0)
    assert statuses(database, executions) == sorted(["running", status])


# What the database refuses


def test_a_status_that_does_not_exist_is_refused_and_who_runs_has_an_owner(
    database: Database, submitted: Submit
) -> None:
    submitted()
    impossible = [(table, {"status": "finished"}) for table in (sweeps, executions, cells)]
    running: list[dict[str, str | None]] = [{"status": "running", "owner_id": None}]
    running.append({"status": "pending", "owner_id": "one"})
    for table, values in [*impossible, *((executions, values) for values in running)]:
        with name_in_errors((table.name, values)), pytest.raises(IntegrityError):
            database.execute(table.update().values(values))


def test_a_cell_has_one_row_and_a_sweep_and_a_case_id_is_there_once(database: Database, submitted: Submit) -> None:
    submitted()
    for table, changes in ((cells, {"status": "failed"}), (cells, {"sweep_id": "none"}), (cases, {"number": 7})):
        (row,) = rows(database, table)
        with name_in_errors((table.name, changes)), pytest.raises(IntegrityError):
            database.execute(table.insert().values({**row, **changes}))


def test_a_node_run_has_a_checkpoint_and_is_there_once_for_it_its_node_and_variant(
    database: Database, submitted: Submit
) -> None:
    submitted()
    with pytest.raises(IntegrityError):
        add_node_run(database, "r1", checkpoint=False)
    add_node_run(database, "r1")
    with pytest.raises(IntegrityError):
        add_node_run(database, "r2", checkpoint=False)


@pytest.mark.parametrize("ends", ["by an update", "as it is born"])
@pytest.mark.parametrize("unfinished", ["next nodes", sentence("a running node run"), "nothing"])
def test_an_execution_completes_only_if_nothing_is_left_at_its_head(
    unfinished: str, ends: str, database: Database, submitted: Submit
) -> None:
    submitted()
    (mine,) = claims.claim(database, "sweep", "one", 1, 30.0)
    position = {"step": 1, "next": ["b"] if unfinished == "next nodes" else [], "arrived": {}, "visits": {}}
    add_node_run(database, "r1", position=position)
    if unfinished != "a running node run":
        database.execute(node_runs.update().values(status="succeeded"))
    completed = {"status": "completed", "head_id": "c", "owner_id": None, "lease_until": None}
    if ends == "by an update":
        statement: sa.Executable = executions.update().where(executions.c.id == mine.id).values(completed)
    else:
        born = {"id": "born", "session_id": mine.session_id, "sweep_id": "sweep", "origin": "fork", "case_number": 0}
        statement = executions.insert().values(**born, repeat=0, combinations=[0], created_at=0.0, **completed)

    if unfinished == "nothing":
        database.execute(statement)
        assert "completed" in statuses(database, executions)
        return
    with pytest.raises(IntegrityError, match=sentence("has next nodes or a running node run at its head")):
        database.execute(statement)
    assert statuses(database, executions) == ["running"]


def add_node_run(
    database: Database, id: str, *, checkpoint: bool = True, position: Mapping[str, Any] | None = None
) -> None:
    (execution,) = rows(database, executions)
    common = {"sweep_id": "sweep", "execution_id": execution["id"], "workspace": None}
    with database.write() as connection:
        if checkpoint:
            about = {"id": "c", "position": position or {}, "state": {}, "writers": [], "totals": [], "trigger": "step"}
            connection.execute(checkpoints.insert().values(**common, **about, created_at=0.0))
        run = {"task": "a", "node": "a", "variant": "default", "visit": 0, "status": "running", "attempts": 1}
        run |= {"cells": 1, "fingerprint": "f", "started_at": 0.0, "duration_s": 0.0, "usd": 0.0}
        run |= {"tokens_in": 0, "tokens_out": 0}
        connection.execute(node_runs.insert().values(id=id, checkpoint_id="c", **common, **run))


# Sweeps


def test_a_sweep_moves_only_as_its_table_says(database: Database, submitted: Submit) -> None:
    submitted()

    with pytest.raises(ConflictError, match=r"sweep sweep is pending: it cannot become completed \(possible: "):
        claims.move_sweep(database, "sweep", "completed")
    claims.move_sweep(database, "sweep", "running")
    claims.move_sweep(database, "sweep", "cancelled", reason="enough", by="ann")

    (row,) = rows(database, sweeps)
    assert (row["status"], row["reason"]) == ("cancelled", "enough")
    log_rows = [(event["kind"], event["data"]) for event in rows(database, events)]
    assert log_rows[-1] == ("sweep.cancelled", {"reason": "enough", "by": "ann"})
    with pytest.raises(ConflictError, match=sentence("is {}: it cannot become {}", "cancelled", "running")):
        claims.move_sweep(database, "sweep", "running")


def test_a_sweep_that_is_not_there_cannot_be_moved(database: Database) -> None:
    with pytest.raises(ConflictError, match=sentence("{} is not there", "sweep none")):
        claims.move_sweep(database, "none", "running")


def test_a_sweep_of_an_unknown_session_is_refused_whole(database: Database, submitted: Submit) -> None:
    with pytest.raises(InputError, match=sentence("there is no session {}", "'nobody'")):
        submitted(session="nobody")

    assert rows(database, sweeps) == rows(database, executions) == []


def test_deleting_a_sweep_deletes_all_that_is_its_own(database: Database, submitted: Submit) -> None:
    submitted()
    add_node_run(database, "r1")
    submit_cases(database, "other", cases=1)

    with database.write() as connection:
        connection.execute(sweeps.delete().where(sweeps.c.id == "sweep"))

    kept_tables = (events, looks)
    tables = [table for table in metadata.sorted_tables if "sweep_id" in table.c and table not in kept_tables]
    for table in tables:
        assert {row["sweep_id"] for row in rows(database, table)} <= {"other"}
    assert len(rows(database, cells)) == 1
