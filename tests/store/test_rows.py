"""Records are made from rows by position: their fields are the columns of their tables, in the same order."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import pytest
import sqlalchemy as sa

from wtb.store.rows import access, control, executions, publications, results, sweeps, uploads
from wtb.store.tables import schema

TABLES: dict[type, sa.Table] = {
    executions.ExecutionRow: schema.executions,
    sweeps.CaseRow: schema.cases,
    results.CellRow: schema.cells,
    results.ScoreRow: schema.scores,
    results.LabelRow: schema.labels,
    results.MetricRow: schema.metrics,
    executions.CheckpointRow: schema.checkpoints,
    control.RollbackRow: schema.rollbacks,
    executions.DecisionRow: schema.decisions,
    executions.NodeRunRow: schema.node_runs,
    executions.AttemptRow: schema.attempts,
    executions.CallRow: schema.calls,
    control.InvocationRow: schema.invocations,
    control.QuestionRow: schema.approvals,
    sweeps.SessionRow: schema.sessions,
    sweeps.RunnerRow: schema.runners,
    control.BudgetRow: schema.budgets,
    access.TokenRow: schema.tokens,
    access.AccessRow: schema.access,
    access.SignInRow: schema.sign_ins,
    access.IdempotencyKeyRow: schema.idempotency_keys,
    access.OperationRow: schema.operations,
    uploads.UploadRow: schema.uploads,
    access.AuditRow: schema.audit,
    control.ExporterRow: schema.exporters,
    results.TallyRow: schema.tallies,
    publications.PublicationRow: schema.publications,
}


@pytest.mark.parametrize("record", TABLES, ids=lambda record: record.__name__)
def test_the_fields_of_a_record_are_the_columns_of_its_table(record: type) -> None:
    assert [field.name for field in fields(record)] == [column.name for column in TABLES[record].columns]  # type: ignore[arg-type]


def test_the_row_of_a_sweep_has_the_name_of_its_session_after_its_columns() -> None:
    columns = [column.name for column in schema.sweeps.columns]
    assert [field.name for field in fields(sweeps.SweepRow)] == [*columns, "session"]


def test_each_record_of_a_table_is_held_against_it() -> None:
    modules = (access, control, executions, publications, results, sweeps, uploads)
    found = [one for module in modules for one in vars(module).values()]
    records = {one for one in found if isinstance(one, type) and is_dataclass(one)}
    named = {one for one in records if one.__name__.endswith("Row")}
    first = {one for one in named if one.__base__ is object}  # others have what a query adds
    counted = {access.ProjectRow, access.UserRow, access.TeamRow}  # with what belongs to them
    assert first - {*TABLES, *counted, sweeps.SweepRow, executions.StalledRow, control.AlertRow} == set()
