"""All JSON documents that commands print: the type of each, and the command.

JSON Schemas are made of them (`make schemas`), and every output of a command is held against its type in the tests.
Within a version keys may be added; none is removed or changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

from wtb.core.documents import (
    administration,
    comparison,
    costs,
    events,
    executions,
    lineage,
    matrix,
    plan,
    questions,
    report,
    sweeps,
)
from wtb.core.documents.access import audit
from wtb.core.documents.results import outputs
from wtb.core.documents.storage import backups, copies, erasure, policies
from wtb.core.documents.workflows import graphs, new_sweeps, publications


class Document(NamedTuple):
    """One document.

    Attributes:
        type: What it consists of.
        commands: The commands that print it with `--format json`.
        version: Raised when a key is removed or changed.
    """

    type: Any
    commands: tuple[str, ...]
    version: int = 1


def _kind(event: Any) -> str:
    """Return the kind of an event from its annotation: to evaluate all of them would take each command some time."""
    annotation: str = event.__annotations__["kind"].__forward_arg__
    return annotation.partition("[")[2].strip("]'\"")  # of Literal['sweep.paused']


# By name, which is that of its schema; in the order of `wtb --help`.
DOCUMENTS: dict[str, Document] = {
    "workflows": Document(graphs.WorkflowsDocument, ("workflow list",)),
    "workflow": Document(graphs.WorkflowDocument, ("workflow show",)),
    "published": Document(publications.PublicationsDocument, ("workflow list --published",)),
    "published-workflow": Document(publications.PublishedWorkflowDocument, ("workflow show --published",), 2),
    "cases": Document(new_sweeps.CaseFileDocument, ("cases",)),
    "evaluator-preview": Document(new_sweeps.EvaluatorPreviewDocument, ("try",)),
    "plan": Document(plan.PlanDocument, ("plan", "pilot")),
    "matrix": Document(
        matrix.JudgedMatrixDocument, ("run", "submit --wait", "resume", "retry", "matrix", "score", "scoring show")
    ),
    "submitted": Document(plan.SubmittedDocument, ("submit", "resume", "retry")),
    "started": Document(plan.StartedDocument, ("start", "execution create")),
    "schedules": Document(administration.SchedulesDocument, ("schedule list",)),
    "schedule": Document(administration.OneScheduleDocument, ("schedule show",)),
    "fired": Document(administration.FiredDocument, ("schedule run-now",)),
    "schedule-history": Document(administration.ScheduleHistoryDocument, ("schedule history",)),
    "breakpoints": Document(questions.BreakpointsDocument, ("breakpoint list", "breakpoint set")),
    "questions": Document(questions.QuestionsDocument, ("approvals",)),
    "question": Document(questions.QuestionDocument, ("approvals QUESTION",)),
    "answer": Document(questions.AnswerDocument, ("answer",)),
    "answers": Document(questions.AnswersDocument, ("answer-all",)),
    "checkpoint-name": Document(lineage.CheckpointNameDocument, ("checkpoint",)),
    "rollback": Document(questions.RollbackDocument, ("rollback",)),
    "runs": Document(sweeps.RunsDocument, ("list --runs",)),
    "sweeps": Document(sweeps.SweepsDocument, ("list",), version=2),
    "status": Document(sweeps.StatusDocument, ("status SWEEP",), version=2),
    "execution-status": Document(executions.StandingDocument, ("status EXECUTION",), version=2),
    "stack": Document(administration.StackDocument, ("status --stack",)),
    "watch": Document(sweeps.WatchDocument, ("watch",), version=4),
    "summary": Document(sweeps.SummaryDocument, ("show SWEEP",), version=2),
    "cells": Document(sweeps.CellsDocument, ("show --cells",)),
    "outputs": Document(outputs.OutputsDocument, ("show --outputs",)),
    "execution": Document(
        executions.ExecutionDocument, ("show EXECUTION", "start", "resume", "retry", "fork", "answer")
    ),
    "extension": Document(plan.ExtensionDocument, ("extend",)),
    "planned-extension": Document(plan.PlannedExtensionDocument, ("extend --dry-run",)),
    "added-row": Document(executions.AddedRowDocument, ("fork --all-cases",)),
    "event-counts": Document(events.EventCountsDocument, ("log --summary",)),
    "history": Document(lineage.HistoryDocument, ("history",)),
    "checkpoint": Document(lineage.CheckpointDetails, ("show CHECKPOINT",)),
    "tree": Document(lineage.TreeDocument, ("tree",)),
    "diff": Document(lineage.DiffDocument, ("diff",)),
    "files": Document(lineage.FilesDocument, ("files",)),
    "file-changes": Document(lineage.FileChangesDocument, ("files --diff",)),
    "series": Document(costs.AllSeriesDocument, ("series",)),
    "costs": Document(costs.CostsDocument, ("costs",)),
    "evidence": Document(report.EvidenceDocument, ("report",)),
    "comparison": Document(comparison.ComparisonDocument, ("compare",), version=2),
    "row-comparison": Document(comparison.RowComparisonDocument, ("compare --row",)),
    "baselines": Document(comparison.BaselinesDocument, ("baseline list",)),
    "baseline": Document(comparison.BaselineMatrixDocument, ("baseline show",)),
    "regression": Document(comparison.RegressionDocument, ("regress",), version=2),
    "collection": Document(administration.CollectionDocument, ("gc",)),
    "erased": Document(erasure.ErasedDocument, ("erase",)),
    "exported": Document(administration.ExportedDocument, ("export",)),
    "imported": Document(administration.ImportedDocument, ("import",)),
    "backup": Document(backups.BackupDocument, ("backup",)),
    "restored": Document(backups.RestoredDocument, ("restore",)),
    "copied": Document(copies.CopiedSweepDocument, ("copy",)),
    "policies": Document(policies.PoliciesDocument, ("policy check",)),
    "policy-decision": Document(policies.PolicyDecisionDocument, ("policy explain",)),
    "doctor": Document(administration.DoctorDocument, ("doctor",)),
    "database-version": Document(administration.DatabaseVersionDocument, ("db version",)),
    "projects": Document(administration.ProjectsDocument, ("project list",)),
    "project": Document(administration.ProjectDocument, ("project show", "project change")),
    "sessions": Document(administration.SessionsDocument, ("session list",)),
    "session": Document(administration.OneSessionDocument, ("session show",)),
    "budgets": Document(costs.BudgetsDocument, ("budget list",), version=2),
    "users": Document(administration.UsersDocument, ("user list",)),
    "teams": Document(administration.TeamsDocument, ("team list",)),
    "access": Document(administration.AccessListDocument, ("access list",)),
    "token": Document(administration.NewTokenDocument, ("token create",)),
    "tokens": Document(administration.TokensDocument, ("token list",)),
    "audit": Document(audit.AuditDocument, ("audit list",)),
    "audit-verification": Document(audit.AuditVerification, ("audit verify",)),
    "audit-head": Document(audit.AuditHead, ("audit head",)),
    "round": Document(administration.RoundDocument, ("scheduler --once",), version=2),
    **{f"event-{_kind(event)}": Document(event, ("log",)) for event in get_args(events.EventDocument)},
}
