"""Records are made from rows by position: they have the columns of their tables, in the same order."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import sqlalchemy as sa

from wtb.store.rows import access, control, executions, publications, results, sweeps, uploads
from wtb.store.rows.record import Record
from wtb.store.tables import schema

TABLES: dict[type[Record], sa.Table] = {
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
    control.ScoringRow: schema.scorings,
    results.TallyRow: schema.tallies,
    publications.PublicationRow: schema.publications,
}


@pytest.mark.parametrize("record", TABLES, ids=lambda record: record.__name__)
def test_a_record_has_the_columns_of_its_table(record: type[Record]) -> None:
    read_apart = {"stdout", "stderr"} if record is executions.NodeRunRow else set()
    columns = [column.name for column in TABLES[record].columns if column.name not in read_apart]
    assert [field.name for field in fields(record)] == columns


def test_the_row_of_a_sweep_has_the_name_of_its_session_after_its_columns() -> None:
    columns = [column.name for column in schema.sweeps.columns]
    assert [field.name for field in fields(sweeps.SweepRow)] == [*columns, "session"]


def test_each_record_of_a_table_is_held_against_it() -> None:
    modules = (access, control, executions, publications, results, sweeps, uploads)
    found = [one for module in modules for one in vars(module).values()]
    records = {one for one in found if isinstance(one, type) and issubclass(one, Record)}
    named = {one for one in records if one.__name__.endswith("Row")}
    first = {one for one in named if one.__base__ is Record}  # others have what a query adds
    counted = {access.ProjectRow, access.UserRow, access.TeamRow}  # with what belongs to them
    assert first - {*TABLES, *counted, sweeps.SweepRow, executions.StalledRow, control.AlertRow} == set()


def test_a_record_has_a_value_for_each_column_and_is_never_changed() -> None:
    made = uploads.UploadRow("u", "p", "d", 3, "me", 1.0, completed_at=None)
    assert (made.id, made.bytes, made.completed_at) == ("u", 3, None)
    assert made == uploads.UploadRow(**vars(made)) != replace(made, bytes=4)
    assert replace(made, bytes=4).bytes == 4
    assert len({made, replace(made), replace(made, bytes=4)}) == 2
    with pytest.raises(AttributeError, match="never changed"):
        made.bytes = 4  # type: ignore[misc]


@pytest.mark.parametrize("given", [{}, {"completed_at": 2.0, "other": 1}, {"other": 1}], ids=["few", "many", "unknown"])
def test_a_record_takes_its_columns_and_nothing_else(given: dict[str, float]) -> None:
    with pytest.raises((TypeError, KeyError)):
        uploads.UploadRow("u", "p", "d", 3, "me", 1.0, **given)  # type: ignore[arg-type]
