"""One sweep as a document: what `status` and `show` say, for scripts and for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs

from wtb.analysis.failure_causes import causes
from wtb.core.arguments.approval import modes_of
from wtb.core.documents.common import cell_counts
from wtb.core.factors.factors import levels_of
from wtb.core.factors.file_levels import with_texts
from wtb.core.scoring.unknown_costs import cost_warnings
from wtb.core.serialization.plain_json import iso
from wtb.core.values import Json
from wtb.display.views.progress import queued_document, silent, stalled_document
from wtb.execution.runtime.budgets import budget_documents, limit_of, raising
from wtb.store import alerts
from wtb.store.control import executions
from wtb.store.database import Database
from wtb.store.process_identity import state_of
from wtb.store.read import aggregates, queries
from wtb.store.read.costs import unknown_costs
from wtb.store.runs import leases
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.common import ApprovalMode
    from wtb.core.documents.sweeps import (
        MadeVariant,
        NextStep,
        StatusDocument,
        SummaryDocument,
        SweepOwner,
    )
    from wtb.core.tree.stored_spec import Limits, StoredSpec

_LONGEST_PARAMETER = 20_000  # characters


def status_document(database: Database, row: SweepRow, *, cases: int = 0) -> StatusDocument:
    """How far a sweep is: cells, node runs, cost, who runs it, and how to go on. The row is one of `find_sweep`.

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
            "executed": sum(int(one[2]) for one in counted),
            "unshared": sum(int(one[3]) for one in counted),
            "attempts": sum(int(one[4]) for one in counted),
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
            *([] if row.queued else map(silent, stalled)),
            *(f"an alert could not be sent: {one.error}" for one in alerts.undelivered(database, row.id)[-3:]),
        ],
        "next": _next(row, counts, owners, any(one["retry"] for one in failed) or bool(more)),
    }


def approval_modes(spec: StoredSpec) -> list[ApprovalMode]:
    """Return when people are asked without a node asking, as a sweep was submitted."""
    recorded = spec.get("approval") or (spec.get("run") or {}).get("approval") or "manual"
    return [cast("ApprovalMode", mode) for mode in modes_of(recorded)]


def _next(row: SweepRow, counts: Mapping[str, int], owners: list[SweepOwner], retry: bool) -> NextStep | None:
    """What a person can do now: why, and the command; None where all is well or under way.

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
    again = counts.get("failed", 0) + counts.get("set_aside", 0)
    if row.status == "completed" and again and retry:
        return {"why": f"{again:,} cells failed", "command": f"wtb retry {row.id}"}
    return None


def _made_variants(spec: StoredSpec) -> dict[str, dict[str, MadeVariant]]:
    """Return the variants that a sweep makes, those for forks included, by node and name."""
    found: dict[str, dict[str, MadeVariant]] = {}
    texts = spec.get("texts") or {}
    listed: list[tuple[str, Any]] = [*(spec.get("vary") or {}).items(), *(spec.get("fork_variants") or {}).items()]
    for node, forms in listed:
        for form in forms:
            params = _own_params(form) if isinstance(form, Mapping) else {}
            if params:
                values = {name: with_texts(value, texts) for name, value in params.items()}
                short = {name: value for name, value in values.items() if len(str(value)) <= _LONGEST_PARAMETER}
                found.setdefault(node, {})[form["name"]] = {"of": form.get("of"), "params": short}
    return found


def _own_params(form: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the parameters of a variant as it is stored."""
    return levels_of(form) or {name: value for name, value in form.items() if name not in ("name", "of", "with")}


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
            "limits": cast("Limits", {key: value for key, value in limits.items() if value not in without}),
        },
        "metrics": [metric.name for metric in queries.metric_rows(database, row.id)],
    }
