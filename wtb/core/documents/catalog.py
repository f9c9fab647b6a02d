"""All JSON documents that commands print, with the type and the command of each.

JSON Schemas are made from them (`make schemas`), and tests validate every output of a command against its type. Within
a version keys may be added; none is removed or changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

from wtb.core.documents import (
    access,
    administration,
    all_events,
    comparison,
    executions,
    lineage,
    matrix,
    outputs,
    plan,
    questions,
    report,
    sweeps,
    workflows,
)


class Document(NamedTuple):
    """A document.

    Attributes:
        type: Its type.
        commands: The commands that print it with `--format json`.
        version: Raised when a key is removed or changed.
    """

    type: Any
    commands: tuple[str, ...]
    version: int = 1


def _kind(event: Any) -> str:
    """Return the kind of an event from its annotation, because evaluating all annotations would delay each command."""
    annotation: str = event.__annotations__["kind"].__forward_arg__
    return annotation.partition("[")[2].strip("]'\"")  # of Literal['sweep.paused']


# By name, which is that of its schema; in the order of `wtb --help`.
DOCUMENTS: dict[str, Document] = {
    "workflows": Document(workflows.WorkflowsDocument, ("workflow list",)),
    "workflow": Document(workflows.WorkflowDocument, ("workflow show",)),
    "published": Document(workflows.PublicationsDocument, ("workflow list --published",)),
    "published-workflow": Document(workflows.PublishedWorkflowDocument, ("workflow show --published",), 2),
    "cases": Document(workflows.CaseFileDocument, ("cases",)),
    "evaluator-preview": Document(workflows.EvaluatorPreviewDocument, ("try",)),
    "plan": Document(plan.PlanDocument, ("plan", "pilot")),
    "matrix": Document(
        matrix.JudgedMatrixDocument,
        ("run", "submit --wait", "resume", "retry", "matrix", "score", "admin scoring show"),
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
    "added-row": Document(executions.AddedRowDocument, ("combination add",)),
    "event-counts": Document(all_events.EventCountsDocument, ("log --summary",)),
    "history": Document(lineage.HistoryDocument, ("history",)),
    "checkpoint": Document(lineage.CheckpointDetails, ("show CHECKPOINT",)),
    "tree": Document(lineage.TreeDocument, ("tree",)),
    "diff": Document(lineage.DiffDocument, ("diff",)),
    "files": Document(lineage.FilesDocument, ("files",)),
    "file-changes": Document(lineage.FileChangesDocument, ("files --diff",)),
    "series": Document(plan.AllSeriesDocument, ("series",)),
    "costs": Document(plan.CostsDocument, ("costs",)),
    "evidence": Document(report.EvidenceDocument, ("report",)),
    "comparison": Document(comparison.ComparisonDocument, ("compare",), version=2),
    "row-comparison": Document(comparison.RowComparisonDocument, ("compare --row",)),
    "baselines": Document(comparison.BaselinesDocument, ("baseline list",)),
    "baseline": Document(comparison.BaselineMatrixDocument, ("baseline show",)),
    "regression": Document(comparison.RegressionDocument, ("regress",), version=2),
    "collection": Document(administration.CollectionDocument, ("admin gc",)),
    "erased": Document(administration.ErasedDocument, ("admin erase",)),
    "exported": Document(administration.ExportedDocument, ("admin export",)),
    "imported": Document(administration.ImportedDocument, ("admin import",)),
    "backup": Document(administration.BackupDocument, ("admin backup",)),
    "restored": Document(administration.RestoredDocument, ("admin restore",)),
    "copied": Document(administration.CopiedSweepDocument, ("admin copy",)),
    "policies": Document(access.PoliciesDocument, ("admin policy check",)),
    "policy-decision": Document(access.PolicyDecisionDocument, ("admin policy explain",)),
    "doctor": Document(administration.DoctorDocument, ("doctor",)),
    "database-version": Document(administration.DatabaseVersionDocument, ("admin db version",)),
    "projects": Document(access.ProjectsDocument, ("admin project list",)),
    "project": Document(access.ProjectDocument, ("admin project show", "admin project change")),
    "sessions": Document(administration.SessionsDocument, ("admin session list",)),
    "session": Document(administration.OneSessionDocument, ("admin session show",)),
    "budgets": Document(plan.BudgetsDocument, ("admin budget list",), version=2),
    "users": Document(access.UsersDocument, ("admin user list",)),
    "teams": Document(access.TeamsDocument, ("admin team list",)),
    "access": Document(access.AccessListDocument, ("admin access list",)),
    "token": Document(access.NewTokenDocument, ("admin token create",)),
    "tokens": Document(access.TokensDocument, ("admin token list",)),
    "audit": Document(access.AuditDocument, ("admin audit list",)),
    "audit-verification": Document(access.AuditVerification, ("admin audit verify",)),
    "audit-head": Document(access.AuditHead, ("admin audit head",)),
    "round": Document(administration.RoundDocument, ("scheduler --once",), version=2),
    **{f"event-{_kind(event)}": Document(event, ("log",)) for event in get_args(all_events.EventDocument)},
}
