"""Records are made from rows by position: their fields are the columns of their tables, in the same order."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import pytest
import sqlalchemy as sa

from wtb.store import rows
from wtb.store.tables import schema

TABLES: dict[type, sa.Table] = {
    rows.ExecutionRow: schema.executions,
    rows.CaseRow: schema.cases,
    rows.CellRow: schema.cells,
    rows.ScoreRow: schema.scores,
    rows.MetricRow: schema.metrics,
    rows.CheckpointRow: schema.checkpoints,
    rows.RollbackRow: schema.rollbacks,
    rows.DecisionRow: schema.decisions,
    rows.NodeRunRow: schema.node_runs,
    rows.AttemptRow: schema.attempts,
    rows.CallRow: schema.calls,
    rows.InvocationRow: schema.invocations,
    rows.QuestionRow: schema.approvals,
    rows.SessionRow: schema.sessions,
    rows.RunnerRow: schema.runners,
    rows.BudgetRow: schema.budgets,
    rows.TokenRow: schema.tokens,
    rows.AccessRow: schema.access,
    rows.SignInRow: schema.sign_ins,
    rows.IdempotencyKeyRow: schema.idempotency_keys,
    rows.OperationRow: schema.operations,
    rows.UploadRow: schema.uploads,
    rows.AuditRow: schema.audit,
    rows.ExporterRow: schema.exporters,
    rows.TallyRow: schema.tallies,
    rows.PublicationRow: schema.publications,
}


@pytest.mark.parametrize("record", TABLES, ids=lambda record: record.__name__)
def test_the_fields_of_a_record_are_the_columns_of_its_table(record: type) -> None:
    assert [field.name for field in fields(record)] == [column.name for column in TABLES[record].columns]  # type: ignore[arg-type]


def test_the_row_of_a_sweep_has_the_name_of_its_session_after_its_columns() -> None:
    columns = [column.name for column in schema.sweeps.columns]
    assert [field.name for field in fields(rows.SweepRow)] == [*columns, "session"]


def test_each_record_of_a_table_is_held_against_it() -> None:
    records = {one for one in vars(rows).values() if isinstance(one, type) and is_dataclass(one)}
    named = {one for one in records if one.__name__.endswith("Row")}
    first = {one for one in named if one.__base__ is object}  # others have what a query adds
    counted = {rows.ProjectRow, rows.UserRow, rows.TeamRow}  # with what belongs to them
    assert first - {*TABLES, *counted, rows.SweepRow, rows.StalledRow, rows.AlertRow} == set()
