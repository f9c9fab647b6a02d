"""What an operation is about to do, as policies are asked: once for an operation, and for each tool of a workflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from wtb.authoring.policies.cedar import Decision
from wtb.core.errors import AccessDenied, InputError
from wtb.core.values import Json
from wtb.operations.policy.engine import find_policies
from wtb.operations.policy.vocabulary import CALL_TOOL, Asked, Fact, action_of
from wtb.operations.registry import Effect
from wtb.planning.prepare import Prepared
from wtb.store.control import questions
from wtb.store.database import Database
from wtb.store.events import add_event, of_sweep
from wtb.store.read import references
from wtb.store.read.queries import find_sweep, workflow_graph
from wtb.store.tables.sweeps import SweepRow

_ANSWER = "questions.answer"  # all answers are evaluated as this action


def authorize(database: Database, by: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Ask policies whether somebody may carry out an operation; without policies everybody may.

    Args:
        database: Where.
        by: Who.
        function: The operation; what is none is not asked about.
        arguments: Its arguments by name.

    Raises:
        AccessDenied: If a policy forbids it, none permits it, or one cannot be evaluated.
        InputError: If the policies cannot be loaded.
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
            _record(database, sweep, request, decision)
        if not decision.allowed:
            raise AccessDenied(f"{by} may not {_words(request)}: {decision.why} (`wtb policy explain`)")


def _words(request: Asked) -> str:
    if request.action == CALL_TOOL:
        return f"submit workflow {request.facts.get('workflow')!r}, which has the tool {request.id!r}"
    resource = "" if request.kind == "Database" else f" ({request.kind.lower()} {request.id})"
    return f"carry out {request.action}{resource}"


def _record(database: Database, sweep: SweepRow, request: Asked, decision: Decision) -> None:
    data: dict[str, Json] = {
        "operation": request.action,
        "by": request.by,
        "allowed": decision.allowed,
        "rules": [*decision.rules],
        "errors": [*decision.errors],
    }
    with database.write(is_note=True) as connection:
        add_event(connection, of_sweep(sweep), "policy.decided", data, "info" if decision.allowed else "warning")


def _questions(
    database: Database, by: str, name: str, effect: Effect, arguments: Mapping[str, Any]
) -> Iterator[tuple[Asked, SweepRow | None]]:
    """What policies are asked, with the sweep that it is about, if there is one."""
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


def _answers(
    database: Database, by: str, name: str, arguments: Mapping[str, Any]
) -> Iterator[tuple[Asked, SweepRow | None]]:
    """One for each sweep and node whose questions are answered."""
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
    """(sweep, node) of the question that is meant, or of those of a sweep or an execution."""
    try:
        row = questions.find_approval(database, ref)
    except InputError:
        sweep = _sweep_of(database, {"ref": ref})
        rows = [] if sweep is None else questions.approval_rows(database, sweep_id=sweep.id, execution_id=None)
        return [(row.sweep_id, row.node) for row in rows]
    return [(row.sweep_id, row.node)]


def _sweep_of(database: Database, arguments: Mapping[str, Any]) -> SweepRow | None:
    """The sweep that an operation acts on; None where it names none, or the operation will say that there is none."""
    ref = arguments.get("ref")
    if not isinstance(ref, str):
        return None
    try:
        target = references.find(database, ref)
    except InputError:
        return None
    return target.row if isinstance(target.row, SweepRow) else find_sweep(database, target.row.sweep_id)


def _facts(database: Database, sweep: SweepRow) -> dict[str, Fact]:
    workflow = workflow_graph(database, sweep.workflow_id)["name"]
    facts: dict[str, Fact] = {"sweep": sweep.name, "workflow": str(workflow), "session": sweep.session}
    optional = (("project", sweep.project), ("submitted_by", sweep.spec.get("submitted_by")))
    return {**facts, **{key: text for key, text in optional if text}}
