"""How one execution stands just now, as a document: where it is, who holds it, what holds it up, what can be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from wtb.analysis.failure_causes import execution_may_be_helped
from wtb.core.failures import Failure
from wtb.core.questions import how_to_answer, mode_of_question
from wtb.core.serialization.plain_json import iso
from wtb.core.tree.checkpoints import visible_state
from wtb.core.tree.history import task_document
from wtb.display.views.executions import readable_values, sweep_of_execution
from wtb.display.views.questions import approval_mode
from wtb.display.views.sweeps import approval_modes
from wtb.execution.runtime.budgets import limit_of, raising
from wtb.store.control import executions
from wtb.store.control.pending_rollbacks import command, unfinished
from wtb.store.database import Database
from wtb.store.process_identity import state_of
from wtb.store.read import details, histories, queries
from wtb.store.runs import leases
from wtb.store.runs.leases import runs_now
from wtb.store.tables.control import QuestionRow
from wtb.store.tables.executions import ExecutionRow

if TYPE_CHECKING:
    from wtb.core.documents.executions import (
        ExecutionOwner,
        FailureDocument,
        OpenQuestion,
        OutcomeDocument,
        StandingDocument,
    )


PRINTED = 4_000  # characters that are shown of what an attempt has printed so far: the last

_COMMANDS = {
    "pending": ("pause", "cancel"),
    "running": ("pause", "pause --now", "cancel", "rollback --to NODE"),
    "waiting": ("pause", "cancel", "rollback --to NODE"),
    "paused": ("resume", "cancel", "fork", "rollback --to NODE"),
    "completed": ("fork", "rollback --to NODE"),
    "failed": ("retry", "fork", "rollback --to NODE"),
    "cancelled": ("retry", "fork", "rollback --to NODE"),
    "forked": ("tree", "rollback --to NODE"),
}


class _Printed(TypedDict, total=False):
    printed: str


def standing_document(database: Database, row: ExecutionRow) -> StandingDocument:
    """How an execution stands. The row is one of `find_one`."""
    sweep = queries.find_sweep(database, row.sweep_id)
    name = row.id
    case = queries.case_rows(database, sweep.id, [row.case_number])[row.case_number]
    every = queries.choices(database, sweep.id)
    is_held_up = sweep.status == "paused" and row.status == "pending"  # by what holds up its sweep, such as a limit
    more = raising(limit_of(sweep.reason), sweep)[0] if is_held_up else ""
    head = queries.checkpoint(database, row.head_id) if row.head_id else None
    change = executions.last_change(database, row.id)
    asked = executions.questions_of(database, row.id)
    questions = list(map(_open_question, asked))
    rollback = unfinished(row)  # a rollback that was interrupted, and has to be finished first
    possible = _commands(row.status, name, asked, runs_now(database, sweep), more)
    if row.status == "failed" and row.failure and not execution_may_be_helped(database, row):
        possible.remove(f"wtb retry {name}")
    under_way = executions.node_runs_under_way(database, row.id) if row.status == "running" else []
    printed: dict[tuple[str, int], _Printed] = {
        (one.node_run_id, one.number): {"printed": ((one.stdout or "") + (one.stderr or ""))[-PRINTED:]}
        for one in queries.attempt_rows(database, [run.id for run in under_way])
        if one.stdout or one.stderr
    }
    usd, tokens_in, tokens_out = executions.spent_by(database, row.id)
    return {
        "execution": {
            "id": row.id,
            "sweep": sweep_of_execution(sweep),
            "status": row.status,
            "reason": row.reason or (sweep.reason if is_held_up else None),
            "since": None if change is None else iso(change.at),
            "by": None if change is None else change.by,
            "case": case.id,
            "repeat": row.repeat,
            "combinations": [every[number] for number in row.combinations],
            "choices": row.choices,
            "edited": bool(row.edited),
            "stalled_at": iso(row.stalled_at),
        },
        "checkpoint": None if head is None else head.id,
        "step": None if head is None else head.step,
        "next": [] if head is None else list(head.position.next),
        "nodes": [
            {
                "node": run.node,
                **task_document(run, 1 if head is None else head.position.fan_out.get(run.node, 1)),
                "variant": run.variant,
                "attempt": run.attempts,
                "started_at": iso(run.started_at),
                "for_s": run.for_s,
                **printed.get((run.id, run.attempts), {}),
            }
            for run in under_way
        ],
        "owner": _owner(database, row),
        "asked": None if rollback else row.asked,
        "questions": questions,
        "approval": approval_modes(sweep.spec),
        "breakpoints": list(sweep.breakpoints or ()),
        "cells": dict(Counter(cell.status for cell in details.execution_cells(database, row))),
        "spent": {"usd": usd, "tokens_in": tokens_in, "tokens_out": tokens_out},
        "commands": [command(name, rollback), f"wtb cancel {name}"] if rollback else possible,
    }


def _owner(database: Database, row: ExecutionRow) -> ExecutionOwner | None:
    """Who holds it."""
    found = leases.runner_rows(database, [row.owner_id] if row.owner_id else [])
    for runner in found.values():
        return {"host": runner.host, "pid": runner.pid, "worker": runner.worker, "state": state_of(runner)}
    return None


def _commands(status: str, name: str, asked: Sequence[QuestionRow], runs: bool, more: str) -> list[str]:
    """What can be done with it. runs: whether somebody runs what is pending. more: what `wtb resume` needs."""
    answers = [how_to_answer(one.id, one.kind, one.options) for one in asked]
    left = status in ("pending", "running") and not runs
    possible = _COMMANDS[status] if not left else (f"resume{more}", *_COMMANDS[status])
    words = [one.partition(" ") for one in possible]
    return answers + [f"wtb {verb} {name}{f' {rest}' if rest else ''}" for verb, _, rest in words]


def outcome_document(database: Database, row: ExecutionRow, *, is_run: bool = False) -> OutcomeDocument:
    """Return how an execution has ended or stands, with its state. The row is one of `find_one`.

    is_run: as for `executions.status_in_sweep`.
    """
    sweep = queries.find_sweep(database, row.sweep_id)
    status, reason = executions.status_in_sweep(sweep, row, is_run=is_run)
    history = histories.read_line(database, row.head_id)
    head = history.latest
    state = {} if head is None else visible_state(head.state)
    last = next((checkpoint for checkpoint in reversed(history.checkpoints) if checkpoint.writers), None)
    wrote: dict[str, str] = {}
    for writer in () if last is None or row.status != "completed" else last.writers:
        wrote |= visible_state(history.runs[writer.node_run].writes)
    values = readable_values(database, {*state.values(), *wrote.values()})
    return {
        "execution": row.id,
        "sweep": row.sweep_id,
        "status": status,
        "reason": reason,
        "result": {key: values[digest] for key, digest in wrote.items()} if row.status == "completed" else None,
        "state": {key: values[digest] for key, digest in state.items()},
        "failure": _failure(row),
        "questions": list(map(_open_question, executions.questions_of(database, row.id))),
    }


def _failure(row: ExecutionRow) -> FailureDocument | None:
    if not row.failure:
        return None
    failure = Failure(**row.failure)
    return {"kind": failure.kind, "error": failure.type, "message": failure.message, "node": failure.node}


def _open_question(row: QuestionRow) -> OpenQuestion:
    return {
        "id": row.id,
        "kind": row.kind,
        "mode": approval_mode(mode_of_question(row.kind, row.node)),
        "question": row.question,
        "options": list(row.options or ()),
        "node": row.node,
        "asked_at": iso(row.asked_at),
        "expires_at": iso(row.expires_at),
    }
