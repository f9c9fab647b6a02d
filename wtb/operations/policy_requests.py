"""Policy requests of operations: one for an operation, and one for each tool of a workflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from wtb.authoring.cedar_policies import Decision
from wtb.core.errors import AccessDenied, InputError
from wtb.core.values import Arguments, Json
from wtb.operations.policy_rules import CALL_TOOL, Asked, Fact, action_of, find_policies
from wtb.operations.registry import Effect
from wtb.planning.prepare import Prepared
from wtb.store.control import approvals
from wtb.store.database import Database
from wtb.store.log import add_event, of_sweep
from wtb.store.read import details
from wtb.store.read.queries import find_sweep, workflow_graph
from wtb.store.tables.sweeps import SweepRow

_ANSWER = "questions.answer"  # all answers are evaluated as this action


def authorize(database: Database, by: str, function: Callable[..., Any], arguments: Arguments) -> None:
    """Check with policies whether somebody may execute an operation; without policies everybody may.

    Args:
        database: The database.
        by: The actor.
        function: The operation; other functions are allowed.
        arguments: Its arguments by name.

    Raises:
        AccessDenied: A policy forbids it, none permits it, or one cannot be evaluated.
        InputError: The policies cannot be loaded.
    """
    policies = find_policies()
    if policies is None:
        return
    named = action_of(function.__module__, function.__name__)
    if named is None:
        return
    name, operation = named
    for request, sweep in _questions(database, by, name, operation.effect, arguments):
        decision = policies.decide(request)
        if sweep is not None and operation.effect is not Effect.reads:
            # Recorded before a denial is raised, so that the log has it.
            _record(database, sweep, request, decision)
        if not decision.allowed:
            raise AccessDenied(f"{by} may not {_words(request)}: {decision.why} (`wtb admin policy explain`)")


def _words(request: Asked) -> str:
    if request.action == CALL_TOOL:
        return f"submit workflow {request.facts.get('workflow')!r}, which has the tool {request.id!r}"
    resource = "" if request.kind == "Database" else f" ({request.kind.lower()} {request.id})"
    return f"carry out {request.action}{resource}"


def _record(database: Database, sweep: SweepRow, request: Asked, decision: Decision) -> None:
    decision_details: dict[str, Json] = {
        "operation": request.action,
        "by": request.by,
        "allowed": decision.allowed,
        "rules": [*decision.rules],
        "errors": [*decision.errors],
    }
    # A note of its own, since a denied operation never opens a transaction.
    with database.write(is_note=True) as connection:
        add_event(
            connection, of_sweep(sweep), "policy.decided", decision_details, "info" if decision.allowed else "warning"
        )


def _questions(
    database: Database, by: str, name: str, effect: Effect, arguments: Arguments
) -> Iterator[tuple[Asked, SweepRow | None]]:
    """Yield the policy requests of an operation, each with its sweep, if there is one."""
    prepared = arguments.get("prepared")
    if isinstance(prepared, Prepared):
        yield from ((request, None) for request in _submission(by, name, prepared))
        return
    if effect is Effect.reads:  # who may see what, is a matter of scopes: nothing is looked up for it
        yield Asked(name, by), None
        return
    if name in (_ANSWER, "questions.answer_all"):
        yield from _answers(database, by, name, arguments)
        return
    sweep = _sweep_of(database, arguments)
    facts = {} if sweep is None else _facts(database, sweep)
    if isinstance(text := arguments.get("name"), str):
        facts["name"] = text
    yield (Asked(name, by, facts=facts), None) if sweep is None else (Asked(name, by, "Sweep", sweep.id, facts), sweep)


def _submission(by: str, name: str, prepared: Prepared) -> Iterator[Asked]:
    spec, workflow = prepared.bound.spec, prepared.bound.workflow
    facts: dict[str, Fact] = {"workflow": workflow.name, "sweep": spec.sweep, "cells": prepared.cells}
    facts |= {key: text for key, text in (("project", spec.project), ("session", spec.session)) if text is not None}
    if spec.limits.usd is not None:
        facts["limit_cents"] = math.ceil(spec.limits.usd * 100)
    yield Asked(name, by, "Workflow", workflow.name, facts)
    for tool in workflow.tools:
        yield Asked(CALL_TOOL, by, "Tool", tool, facts)


def _answers(database: Database, by: str, name: str, arguments: Arguments) -> Iterator[tuple[Asked, SweepRow | None]]:
    """Yield a request for each sweep and node whose questions are answered."""
    if name == _ANSWER:
        question_nodes, action = (
            _find_question_nodes(database, str(arguments["ref"])),
            arguments.get("action") or "approve",
        )
    else:
        question_nodes = [pair for ref in arguments["questions"] for pair in _find_question_nodes(database, str(ref))]
        action = arguments["action"]
    for sweep_id, node in dict.fromkeys(question_nodes):
        sweep = find_sweep(database, sweep_id)
        facts = {**_facts(database, sweep), "answer": str(action), **({} if node is None else {"node": node})}
        yield Asked(_ANSWER, by, "Sweep", sweep.id, facts), sweep
    if not question_nodes:
        yield Asked(_ANSWER, by, facts={"answer": str(action)}), None


def _find_question_nodes(database: Database, ref: str) -> list[tuple[str, str | None]]:
    """Return (sweep, node) of the question, or of those of a sweep or an execution."""
    try:
        row = approvals.find_approval(database, ref)
    except InputError:
        sweep = _sweep_of(database, {"ref": ref})
        rows = [] if sweep is None else approvals.approval_rows(database, sweep_id=sweep.id, execution_id=None)
        return [(row.sweep_id, row.node) for row in rows]
    return [(row.sweep_id, row.node)]


def _sweep_of(database: Database, arguments: Arguments) -> SweepRow | None:
    """Return the sweep of an operation; None if it names none, or one that the operation will reject."""
    ref = arguments.get("ref")
    if not isinstance(ref, str):
        return None
    try:
        target = details.find(database, ref)
    except InputError:
        return None
    return target.row if isinstance(target.row, SweepRow) else find_sweep(database, target.row.sweep_id)


def _facts(database: Database, sweep: SweepRow) -> dict[str, Fact]:
    workflow = workflow_graph(database, sweep.workflow_id)["name"]
    facts: dict[str, Fact] = {"sweep": sweep.name, "workflow": str(workflow), "session": sweep.session}
    optional = (("project", sweep.project), ("submitted_by", sweep.spec.get("submitted_by")))
    return {**facts, **{key: text for key, text in optional if text}}
