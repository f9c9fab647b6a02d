"""Moments that were stored while a clock was wrong: nothing lasts longer for it, and nothing is removed too early."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import sqlalchemy as sa

from tests.support.bench import Bench
from wtb import END, Workflow
from wtb.config.retention_policy import Policy
from wtb.features.access import operations as token_operations
from wtb.hosting.agent_calls import Confirmations
from wtb.integrations import judge_replies
from wtb.operations.context import Context
from wtb.operations.garbage_collection import apply_policy
from wtb.store import process_identity
from wtb.store.access import users as token_store
from wtb.store.access.requests import (
    Claim,
    NewOperation,
    NewUpload,
    Status,
    begin_operation,
    begin_upload,
    find_answer,
    find_operation,
    remove_expired,
)
from wtb.store.access.users import NewSignIn, active_sign_ins, add_sign_in, use_sign_in
from wtb.store.control import approvals
from wtb.store.database import Database
from wtb.store.process_identity import identity, started_at, state_of
from wtb.store.tables.schema import approvals as approvals_table
from wtb.store.tables.schema import idempotency_keys, node_runs, operations, sign_ins, sweeps, tokens, uploads
from wtb.store.transactions import clock

HOUR_S, DAY_S, YEAR_S = 3_600.0, 86_400.0, 365 * 86_400.0
Make = Callable[..., Bench]


def shift(database: Database, table: sa.Table, seconds: float, *columns: str) -> None:
    """Change moments as if the clock had been ahead when they were stored."""
    database.execute(table.update().values({name: table.c[name] + seconds for name in columns}))


def new_token(database: Database, name: str, expires_s: float | None) -> None:
    new = token_store.NewToken(name, name * 8, ["read"], "ann", expires_s=expires_s)
    token_store.create_token(database, new, lambda connection: None)


def token_states(database: Database) -> dict[str, str]:
    return {document["name"]: document["state"] for document in token_operations.list_tokens(Context(database))}


@pytest.mark.parametrize("ahead_s", [2 * HOUR_S, YEAR_S])
def test_a_token_that_was_created_while_the_clock_was_ahead_does_not_outlive_its_time(
    database: Database, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    new_token(database, "hour", HOUR_S)
    new_token(database, "ever", None)
    monkeypatch.setattr(time, "time", lambda: 4e9)  # what counts is the clock of the database
    assert token_states(database) == {"hour": "active", "ever": "active"}
    shift(database, tokens, ahead_s, "created_at", "expires_at")
    assert token_states(database) == {"hour": "expired", "ever": "active"}
    assert token_store.use_token(database, "hour" * 8) is None
    assert token_store.use_token(database, "ever" * 8) is not None
    assert token_store.active_digests(database, ["hour" * 8, "ever" * 8]) == {"ever" * 8}


@pytest.mark.parametrize("columns", [["used_at"], ["created_at", "expires_at", "used_at"]])
def test_a_sign_in_of_a_clock_that_was_ahead_has_ended(database: Database, columns: list[str]) -> None:
    add_sign_in(database, NewSignIn("operator", "d", "s"))
    assert use_sign_in(database, "d") is not None
    shift(database, sign_ins, 2 * HOUR_S, *columns)
    assert use_sign_in(database, "d") is None
    assert active_sign_ins(database, ["d"]) == set()


@pytest.mark.parametrize("off_s", [-YEAR_S, -HOUR_S, HOUR_S])
def test_use_is_noted_whatever_the_clock_of_this_machine_shows(
    database: Database, monkeypatch: pytest.MonkeyPatch, off_s: float
) -> None:
    add_sign_in(database, NewSignIn("operator", "d", "s"))
    new_token(database, "t", None)
    token_store.use_token(database, "t" * 8)
    shift(database, sign_ins, -120.0, "used_at")
    shift(database, tokens, -120.0, "used_at")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + off_s)
    use_sign_in(database, "d")
    token_store.use_token(database, "t" * 8)
    with database.read() as connection:
        at = clock(connection)
    for table in (sign_ins, tokens):
        assert abs(database.scalar(sa.select(table.c.used_at)) - at) < 60


def test_what_is_kept_for_a_day_is_not_kept_for_a_year(database: Database) -> None:
    begin_upload(database, NewUpload("u", "default", "0" * 64, "ann"))
    begin_operation(database, NewOperation("o", "sweeps.compare", "ann"))
    with database.write() as connection:
        Claim("d", "r").store(connection)
    shift(database, uploads, YEAR_S, "created_at")
    shift(database, idempotency_keys, YEAR_S, "created_at")
    shift(database, operations, YEAR_S, "began_at", "lease_until")
    operation = find_operation(database, "o")
    assert operation is not None
    assert operation.status == Status.lost, "no server renews its lease"
    remove_expired(database)
    assert find_operation(database, "o") is None
    assert find_answer(database, "d") is None
    assert database.scalar(sa.select(sa.func.count()).select_from(uploads)) == 0


def waiting(run_sweep: Make) -> Bench:
    wf = Workflow("asking")

    @wf.node
    def ask(state: Any, ctx: Any) -> Any:
        return {"a": ctx.ask("Go on?", options=["yes", "no"], default="no", timeout=HOUR_S).choice}

    wf.entry(ask)
    wf.edge(ask, END)
    return run_sweep(wf)


def test_the_time_of_a_question_that_was_asked_while_the_clock_was_ahead_begins_anew(run_sweep: Make) -> None:
    sweep = waiting(run_sweep)
    shift(sweep.database, approvals_table, YEAR_S, "asked_at", "expires_at")
    assert approvals.expire(sweep.database) == 0
    with sweep.database.read() as connection:
        at = clock(connection)
    until = sweep.database.scalar(sa.select(approvals_table.c.expires_at))
    assert at + HOUR_S - 60 < until <= at + HOUR_S
    shift(sweep.database, approvals_table, -HOUR_S, "asked_at", "expires_at")
    assert approvals.expire(sweep.database) == 1


def plain() -> Workflow:
    wf = Workflow("plain")

    @wf.node
    def say(state: Any, ctx: Any) -> Any:
        (ctx.workspace / "file.txt").write_text("content")
        return {"a": 1}

    wf.entry(say)
    wf.edge(say, END)
    return wf


@pytest.mark.parametrize("off_s", [2 * DAY_S, YEAR_S])
def test_a_collection_on_a_machine_whose_clock_is_ahead_removes_nothing(
    run_sweep: Make, monkeypatch: pytest.MonkeyPatch, off_s: float
) -> None:
    sweep = run_sweep(plain())
    files = sweep.workspaces.files
    stray = files.top.parent / "stray"
    stray.write_text("an attempt has stored it, and will name it in a moment")
    digest, _ = files.add(stray)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + off_s)
    policy = Policy(sweeps=DAY_S, superseded=DAY_S, outputs=DAY_S, keep=0)
    for dry_run in (True, False):
        collected = apply_policy(sweep.database, files, policy, dry_run=dry_run)
        kinds = ("sweeps", "outputs", "checkpoints", "values", "files")
        assert [collected.removed[kind].count for kind in kinds] == [0] * 5
        assert abs(collected.at - real()) < 60
    assert os.path.exists(files.path(digest))
    assert sweep.status == "completed"


def test_output_of_a_machine_whose_clock_was_behind_is_no_older_than_its_sweep(run_sweep: Make) -> None:
    sweep = run_sweep(plain())
    sweep.database.execute(node_runs.update().values(stdout="something"))
    shift(sweep.database, node_runs, -YEAR_S, "begun_at")
    policy = Policy(outputs=DAY_S)
    assert apply_policy(sweep.database, sweep.workspaces.files, policy).removed["outputs"].count == 0
    shift(sweep.database, sweeps, -2 * DAY_S, "created_at")
    assert apply_policy(sweep.database, sweep.workspaces.files, policy).removed["outputs"].count == 1


@pytest.mark.parametrize("step_s", [-HOUR_S, 2.0, YEAR_S])
def test_a_process_lives_after_a_correction_of_the_clock(monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    me = identity()
    assert state_of(me) == "alive"
    real = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: real(process) + step_s)
    assert state_of(me) == "alive"
    assert state_of(replace(me, process_started_at=me.process_started_at - 60)) == "dead"


def test_a_process_that_an_older_version_registered_is_recognized() -> None:
    assert state_of(replace(identity(), process_started_at=psutil.Process().create_time())) == "alive"
    assert state_of(replace(identity(), process_started_at=time.time() + 60)) == "dead"
    with pytest.raises(psutil.NoSuchProcess):
        started_at(2**22 + 1)
    assert process_identity.state_of(replace(identity(), pid=2**22 + 1)) == "dead"


@pytest.mark.parametrize("shared", [True, False])
def test_a_turn_that_was_taken_while_the_clock_was_ahead_delays_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    place = tmp_path if shared else None
    name = f"model {shared}"
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + HOUR_S)
    judge_replies.wait_for_turn(name, 600, 10.0, place)
    monkeypatch.setattr(time, "time", real)
    began = time.monotonic()
    judge_replies.wait_for_turn(name, 600, 10.0, place)
    assert time.monotonic() - began < 5
    with pytest.raises(judge_replies.NoTurn):
        judge_replies.wait_for_turn(name, 600, 0.0, place)


def test_consent_holds_for_five_minutes_whatever_the_clock_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    confirmations = Confirmations()
    consent = confirmations.offer("ann", "delete", {})
    monkeypatch.setattr(time, "time", lambda: 4e9)
    confirmations.take(consent.token, "ann", "delete", {})
