"""Row classes are declared with their table, built by position and immutable."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from msgspec import structs

import wtb.store.tables
from wtb.store.tables import schema
from wtb.store.tables.access import UploadRow
from wtb.store.tables.column_types import Row, column, metadata
from wtb.store.tables.control import NewInvocation, NewQuestion, NewRollback
from wtb.store.tables.executions import NewCheckpoint, NewDecision, NewExecution, NewFile
from wtb.store.tables.node_runs import NewAttempt, NewCall, NewNodeRun, NodeRunRow
from wtb.store.tables.results import NewCell, NewMetric, NewScore
from wtb.store.tables.sweeps import CaseColumns, NewCombination, NewEvent, SweepRow


def declared() -> Iterator[type[Row]]:
    """Yield all rows that are declared with a table."""
    for module in pkgutil.iter_modules(wtb.store.tables.__path__, "wtb.store.tables."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Row) and "__table__" in vars(value):
                yield value


@pytest.mark.parametrize("row", sorted(set(declared()), key=lambda row: row.__name__))
def test_a_row_has_the_columns_of_its_table_in_their_order(row: type[Row]) -> None:
    read_apart = {"stdout", "stderr"} if row is NodeRunRow else set()
    columns = [column.name for column in row.__table__.columns if column.name not in read_apart]
    assert list(row.__struct_fields__[: len(columns)]) == columns


def test_the_row_of_a_sweep_has_the_name_of_its_session_after_its_columns() -> None:
    assert list(SweepRow.__struct_fields__) == [*SweepRow.__table__.columns.keys(), "session"]


def test_an_annotation_says_whether_a_column_may_be_null() -> None:
    class Example(Row):
        """A row of a table that no database has."""

        __tablename__ = "example_of_rows"
        id: str = column(sa.Text, primary_key=True)
        name: str = column(sa.Text)
        note: str | None = column(sa.Text, comment="a note")
        counted: int
        __table_args__ = (sa.Column("apart", sa.Text), sa.UniqueConstraint("name"), {"comment": "an example"})

    table = Example.__table__
    metadata.remove(table)
    nullable = {name: column.nullable for name, column in table.columns.items()}
    assert nullable == {"id": False, "name": False, "note": True, "apart": True}
    assert (table.name, table.comment, table.columns["note"].comment) == ("example_of_rows", "an example", "a note")
    assert Example("a", "b", None, 3).counted == 3
    with pytest.raises(TypeError, match="name"):
        Example("a")  # type: ignore[call-arg]  # a column is no default


def test_a_row_has_a_value_for_each_column_and_is_never_changed() -> None:
    upload = UploadRow("u", "p", "d", 3, "me", 1.0, completed_at=None)
    assert (upload.id, upload.bytes, upload.completed_at) == ("u", 3, None)
    assert upload == UploadRow(**structs.asdict(upload)) != structs.replace(upload, bytes=4)
    assert structs.replace(upload, bytes=4).bytes == 4
    assert len({upload, structs.replace(upload), structs.replace(upload, bytes=4)}) == 2
    with pytest.raises(AttributeError, match="immutable"):
        upload.bytes = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    "fields", [{}, {"completed_at": 2.0, "other": 1}, {"other": 1}], ids=["few", "many", "unknown"]
)
def test_a_row_takes_its_columns_and_nothing_else(fields: dict[str, float]) -> None:
    with pytest.raises(TypeError):
        UploadRow("u", "p", "d", 3, "me", 1.0, **fields)  # type: ignore[arg-type]


WRITTEN: dict[type, sa.Table] = {
    NewExecution: schema.executions,
    NewCheckpoint: schema.checkpoints,
    NewDecision: schema.decisions,
    NewFile: schema.files,
    NewNodeRun: schema.node_runs,
    NewAttempt: schema.attempts,
    NewCall: schema.calls,
    NewInvocation: schema.invocations,
    NewCell: schema.cells,
    NewScore: schema.scores,
    NewMetric: schema.metrics,
    NewRollback: schema.rollbacks,
    NewQuestion: schema.approvals,
    NewCombination: schema.combinations,
    CaseColumns: schema.cases,
    NewEvent: schema.events,
}
ASIDE = {"again", "timeout"}  # what goes with a row, and is no column


@pytest.mark.parametrize("written", WRITTEN, ids=lambda written: written.__name__)
def test_what_is_written_are_columns_that_take_it(written: type) -> None:
    columns = WRITTEN[written].columns
    assert written.__annotations__.keys() - ASIDE <= set(columns.keys())
    takes_none = {name for name, hint in written.__annotations__.items() if "None" in str(hint)} - ASIDE
    assert {name for name in takes_none if not columns[name].nullable} == set()
