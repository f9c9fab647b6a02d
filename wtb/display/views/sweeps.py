"""One sweep or execution as a document: what `status` and `show` say, for scripts and for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, cast

from msgspec import structs

from wtb.analysis.failure_causes import causes, execution_may_be_helped
from wtb.core.documents.shared_types import cell_counts
from wtb.core.factors import levels_of, with_texts
from wtb.core.failures import Failure
from wtb.core.questions import how_to_answer, mode_of_question, modes_of
from wtb.core.scoring.unknown_costs import cost_warnings
from wtb.core.serialization.plain_json import iso
from wtb.core.tree.checkpoints import visible_state
from wtb.core.tree.recorded_runs import task_document
from wtb.core.values import Json
from wtb.display.views.executions import readable_values, sweep_of_execution
from wtb.display.views.progress import queued_document, silent, stalled_document
from wtb.display.views.questions import approval_mode
from wtb.execution.runtime.budgets import budget_documents, limit_of, raising
from wtb.store import alerts
from wtb.store.control import executions
from wtb.store.control.pending_rollbacks import command, unfinished
from wtb.store.database import Database
from wtb.store.process_identity import state_of
from wtb.store.read import aggregates, details, queries
from wtb.store.read.costs import unknown_costs
from wtb.store.runs import leases
from wtb.store.runs.leases import runs_now
from wtb.store.tables.control import QuestionRow
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.executions import (
        ExecutionOwner,
        FailureDocument,
        OpenQuestion,
        OutcomeDocument,
        StandingDocument,
    )
    from wtb.core.documents.shared_types import ApprovalMode
    from wtb.core.documents.sweeps import MadeVariant, NextStep, StatusDocument, SummaryDocument, SweepOwner
    from wtb.core.tree.stored_spec import Limits, StoredSpec

_LONGEST_PARAMETER = 20_000  # characters


def status_document(database: Database, row: SweepRow, *, cases: int = 0) -> StatusDocument:
    """Return how far a sweep is: cells, node runs, cost, who runs it, how to go on. The row is one of `find_sweep`.

    cases: how many to list for each cause of failures.
    """
    row = structs.replace(row, reason=executions.reason_now(database, row))
    counts = queries.cell_counts(database, row.id)
    graph = queries.workflow_graph(database, row.workflow_id)
    counted, own, forks, _ = aggregates.node_run_totals(database, row.id)
    stalled = stalled_document(database, row)
    failed, more = causes(database, row, cases=cases)
    owners: list[SweepOwner] = [
        {"host": owner.host, "pid": owner.pid, "state": state_of(owner)} for owner in leases.owners(database, row.id)
    ]
    unknown = unknown_costs(database, row.id)
    usd = row.spec.get("limits", {}).get("usd")
    return {
        "sweep": {
            "id": row.id,
            "name": row.name,
            "status": row.status,
            "reason": row.reason,
            "workflow": graph.get("name"),
            "workflow_version": graph.get("version"),
            "project": row.project,
            "session": row.session,
            "created_at": iso(row.created_at),
            "started_at": iso(row.started_at),
            "finished_at": iso(row.finished_at),
        },
        "approval": approval_modes(row.spec),
        "cells": cell_counts(row.cells, counts),
        "node_runs": {
            "executed": sum(int(totals[2]) for totals in counted),
            "unshared": sum(int(totals[3]) for totals in counted),
            "attempts": sum(int(totals[4]) for totals in counted),
        },
        "cost": {
            "usd": own.usd + forks.usd,
            "by_forks_usd": forks.usd,
            "tokens_in": own.tokens_in + forks.tokens_in,
            "tokens_out": own.tokens_out + forks.tokens_out,
            "unknown": unknown,
        },
        "budgets": budget_documents(database, row.id),
        "failures": {"causes": failed, "more": more},
        "owners": owners,
        "queue": queued_document(database, row) if row.queued else None,
        "stalled": stalled,
        "warnings": [
            *cost_warnings(unknown, usd, ended=row.finished_at is not None),
            # For a submitted sweep, `queued_document` has these warnings.
            *([] if row.queued else map(silent, stalled)),
            *(f"an alert could not be sent: {alert.error}" for alert in alerts.undelivered(database, row.id)[-3:]),
        ],
        "next": _next(row, counts, owners, any(cause["retry"] for cause in failed) or bool(more)),
    }


def approval_modes(spec: StoredSpec) -> list[ApprovalMode]:
    """Return when people are asked without a node asking, as a sweep was submitted."""
    recorded = spec.get("approval") or (spec.get("run") or {}).get("approval") or "manual"
    return [cast("ApprovalMode", mode) for mode in modes_of(recorded)]


def _next(row: SweepRow, counts: Mapping[str, int], owners: list[SweepOwner], retry: bool) -> NextStep | None:
    """Return what a person can do now, why, and the command; None if all is well or under way.

    Args:
        row: The sweep.
        counts: Its cells by status.
        owners: Who runs it.
        retry: True if trying failed cells again could help.
    """
    if row.status in ("pending", "running"):
        if row.queued or any(owner["state"] == "alive" for owner in owners):
            return None
        if any(owner["state"] == "unknown" for owner in owners):
            why = "its owner is on another machine; once that is dead and its lease has ended, this continues"
        elif owners:
            why = "its owner is dead"
        else:
            why = "nobody is running it"
        return {"why": why, "command": f"wtb resume {row.id}"}
    if row.status in ("paused", "failed"):
        more, before = raising(limit_of(row.reason), row)
        first = "" if before is None else f"{before}; "
        return {"why": row.reason or row.status, "command": f"{first}wtb resume {row.id}{more}"}
    # A sweep is completed even if cells failed, so its status alone does not show what remains to be done.
    retriable = counts.get("failed", 0) + counts.get("set_aside", 0)
    if row.status == "completed" and retriable and retry:
        return {"why": f"{retriable:,} cells failed", "command": f"wtb retry {row.id}"}
    return None


def _made_variants(spec: StoredSpec) -> dict[str, dict[str, MadeVariant]]:
    """Return the variants that a sweep makes, those for forks included, by node and name."""
    variants_by_node: dict[str, dict[str, MadeVariant]] = {}
    texts = spec.get("texts") or {}
    listed: list[tuple[str, Any]] = [*(spec.get("vary") or {}).items(), *(spec.get("fork_variants") or {}).items()]
    for node, forms in listed:
        for form in forms:
            params = _own_params(form) if isinstance(form, Mapping) else {}
            if params:
                values = {name: with_texts(argument, texts) for name, argument in params.items()}
                # A parameter may be the text of a whole file, which a summary does not need.
                short = {
                    name: argument for name, argument in values.items() if len(str(argument)) <= _LONGEST_PARAMETER
                }
                variants_by_node.setdefault(node, {})[form["name"]] = {"of": form.get("of"), "params": short}
    return variants_by_node


def _own_params(form: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the parameters of a variant as it is stored."""
    return levels_of(form) or {name: argument for name, argument in form.items() if name not in ("name", "of", "with")}


def summary_document(database: Database, row: SweepRow) -> SummaryDocument:
    """A sweep as `wtb show SWEEP` tells it: what was asked for, and how far it is."""
    spec = row.spec
    choices = queries.choices(database, row.id)
    varied: dict[str, dict[str, None]] = {}
    for choice in choices:
        for node, variant in choice.items():
            varied.setdefault(node, {})[variant] = None
    repeats, limits = spec.get("repeats", 1), spec.get("limits") or {}
    without: tuple[Any, ...] = (None, {}, {"usd": None})  # what is no limit
    return {
        **status_document(database, row),
        "definition": {
            "workflow": spec.get("workflow"),
            "metadata": queries.workflow_graph(database, row.workflow_id).get("metadata", {}),
            "cases": row.cells // max(1, len(choices) * repeats),
            "cases_from": spec.get("cases"),
            "vary": {node: list(variants) for node, variants in varied.items()},
            "variants": _made_variants(spec),
            "combinations": len(choices),
            "repeats": repeats,
            "seed": spec.get("seed", 0),
            "params": spec.get("params", {}),
            "baseline": spec.get("baseline_row"),
            "evaluate": spec.get("evaluate", []),
            "limits": cast("Limits", {key: limit for key, limit in limits.items() if limit not in without}),
        },
        "metrics": [metric.name for metric in queries.metric_rows(database, row.id)],
    }


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
    """Return the status of an execution. The row is one of `find_one`."""
    sweep = queries.find_sweep(database, row.sweep_id)
    name = row.id
    case = queries.case_rows(database, sweep.id, [row.case_number])[row.case_number]
    every = queries.choices(database, sweep.id)
    is_held_up = sweep.status == "paused" and row.status == "pending"  # by what holds up its sweep, such as a limit
    more = raising(limit_of(sweep.reason), sweep)[0] if is_held_up else ""
    head = queries.checkpoint(database, row.head_id) if row.head_id else None
    change = executions.last_change(database, row.id)
    question_rows = executions.questions_of(database, row.id)
    questions = list(map(_open_question, question_rows))
    rollback = unfinished(row)  # a rollback that was interrupted, and has to be finished first
    possible = _commands(row.status, name, question_rows, runs_now(database, sweep), more)
    if row.status == "failed" and row.failure and not execution_may_be_helped(database, row):
        # A retry that would fail the same way is not offered.
        possible.remove(f"wtb retry {name}")
    under_way = executions.node_runs_under_way(database, row.id) if row.status == "running" else []
    printed: dict[tuple[str, int], _Printed] = {
        (attempt.node_run_id, attempt.number): {"printed": ((attempt.stdout or "") + (attempt.stderr or ""))[-PRINTED:]}
        for attempt in queries.attempt_rows(database, [run.id for run in under_way])
        if attempt.stdout or attempt.stderr
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
    """Return the owner of an execution; None if it has none."""
    runners = leases.runner_rows(database, [row.owner_id] if row.owner_id else [])
    for runner in runners.values():
        return {"host": runner.host, "pid": runner.pid, "worker": runner.worker, "state": state_of(runner)}
    return None


def _commands(status: str, name: str, question_rows: Sequence[QuestionRow], runs: bool, more: str) -> list[str]:
    """Return the commands for it. `runs`: somebody runs what is pending. `more`: what `wtb resume` needs."""
    answers = [how_to_answer(question.id, question.kind, question.options) for question in question_rows]
    needs_resume = status in ("pending", "running") and not runs
    possible = _COMMANDS[status] if not needs_resume else (f"resume{more}", *_COMMANDS[status])
    words = [spelling.partition(" ") for spelling in possible]
    return answers + [f"wtb {verb} {name}{f' {rest}' if rest else ''}" for verb, _, rest in words]


def outcome_document(database: Database, row: ExecutionRow, *, is_run: bool = False) -> OutcomeDocument:
    """Return how an execution has ended or stands, with its state. The row is one of `find_one`.

    Args:
        database: The database.
        row: The execution.
        is_run: As for `executions.status_in_sweep`.
    """
    sweep = queries.find_sweep(database, row.sweep_id)
    status, reason = executions.status_in_sweep(sweep, row, is_run=is_run)
    history = details.read_line(database, row.head_id)
    head = history.latest
    state = {} if head is None else visible_state(head.state)
    # A checkpoint that a person made by an edit has no writers.
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
