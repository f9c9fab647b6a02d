"""What the tables are made of: types of columns, the database's clock, constraints. Times: seconds since the epoch."""

from __future__ import annotations

from typing import Any, Final, TypedDict

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)


class BinaryJson(sa.TypeDecorator[Any]):
    """JSON, which PostgreSQL keeps as JSONB.

    Not a variant of `sa.JSON`: that would import PostgreSQL's dialect, with all its drivers, for SQLite as well.
    """

    impl = sa.JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        if dialect.name != "postgresql":
            return super().load_dialect_impl(dialect)
        from sqlalchemy.dialects.postgresql import JSONB

        return dialect.type_descriptor(JSONB(none_as_null=True))

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        return self.impl_instance.coerce_compared_value(op, value)  # of keys and positions, which are no JSON


def is_json(column_type: sa.types.TypeEngine[Any]) -> bool:
    """Return whether values of a type are JSON."""
    return isinstance(column_type, (sa.JSON, BinaryJson))


Json = BinaryJson(none_as_null=True)
OrderedJson = sa.JSON(none_as_null=True)
"""JSON as it was written: objects keep the order of their keys, which PostgreSQL's JSONB forgets."""
Id = sa.String(32)
Digest = sa.String(64)
Seconds: sa.Double[float] = sa.Double()
Count = sa.BigInteger()
FARTHEST_S: Final = 3_600.0  # no lease or pause between two tries lasts longer


class now(FunctionElement[float]):
    """The database's clock, now and not at the start of the transaction, in seconds since the epoch."""

    type = sa.Double()
    inherit_cache = True


def is_ahead(stored: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a moment, which should be past or near, was stored while the clock was ahead.

    A moment that was derived from it, such as an end, is then too late by as much.
    """
    return stored > now() + FARTHEST_S


def is_over(lease_until: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a lease has expired.

    One that ends further away than any lease lasts was given while the database's clock was ahead: nobody holds it.
    """
    return sa.or_(lease_until <= now(), is_ahead(lease_until))


@compiles(now, "postgresql")
def _now_postgresql(element: now, compiler: Any, **kw: Any) -> str:
    return "(extract(epoch from clock_timestamp())::double precision)"


@compiles(now, "sqlite")
def _now_sqlite(element: now, compiler: Any, **kw: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


class transaction_number(FunctionElement[int]):
    """Orders events of transactions that commit out of order; on SQLite, with its one writer, a constant does."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(transaction_number, "postgresql")
def _transaction_postgresql(element: transaction_number, compiler: Any, **kw: Any) -> str:
    return "(pg_current_xact_id()::text::bigint)"


@compiles(transaction_number, "sqlite")
def _transaction_sqlite(element: transaction_number, compiler: Any, **kw: Any) -> str:
    return "0"


class array_length(FunctionElement[int]):
    """How long an array in a column of `OrderedJson` is."""

    type = sa.Integer()
    inherit_cache = True


@compiles(array_length, "postgresql")
def _array_length_postgresql(element: array_length, compiler: Any, **kw: Any) -> str:
    return f"json_array_length({compiler.process(element.clauses, **kw)})"


@compiles(array_length, "sqlite")
def _array_length_sqlite(element: array_length, compiler: Any, **kw: Any) -> str:
    return f"json_array_length({compiler.process(element.clauses, **kw)})"


class array_elements(FunctionElement[Any]):
    """The elements of an array in a column of `OrderedJson`: rows of one column `value`."""

    inherit_cache = True


@compiles(array_elements, "postgresql")
def _array_elements_postgresql(element: array_elements, compiler: Any, **kw: Any) -> str:
    return f"json_array_elements_text({compiler.process(element.clauses, **kw)})"


@compiles(array_elements, "sqlite")
def _array_elements_sqlite(element: array_elements, compiler: Any, **kw: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **kw)})"


class score_object(FunctionElement[Any]):
    """An object of the scores of several rows (metric, value, error): of a metric its value, or its error."""

    type = Json
    inherit_cache = True


@compiles(score_object, "postgresql")
def _score_object_postgresql(element: score_object, compiler: Any, **kw: Any) -> str:
    metric, value, error = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"jsonb_object_agg({metric}, coalesce(to_jsonb({error}), to_jsonb({value})))"


@compiles(score_object, "sqlite")
def _score_object_sqlite(element: score_object, compiler: Any, **kw: Any) -> str:
    metric, value, error = (compiler.process(clause, **kw) for clause in element.clauses)
    # By itself it writes 15 digits of a number, from which another one would be read.
    number = f"json(CASE WHEN {value} IS NOT NULL THEN printf('%!.17g', {value}) END)"
    return f"json_group_object({metric}, CASE WHEN {error} IS NULL THEN {number} ELSE {error} END)"


class rows_array(FunctionElement[Any]):
    """An array of arrays: the columns of several rows, in any order of the rows."""

    type = OrderedJson
    inherit_cache = True


@compiles(rows_array, "postgresql")
def _rows_array_postgresql(element: rows_array, compiler: Any, **kw: Any) -> str:
    columns = ", ".join(compiler.process(clause, **kw) for clause in element.clauses)
    return f"json_agg(json_build_array({columns}))"


@compiles(rows_array, "sqlite")
def _rows_array_sqlite(element: rows_array, compiler: Any, **kw: Any) -> str:
    # A column of JSON is text for SQLite, and would become text within the array.
    columns = [(compiler.process(clause, **kw), clause.type) for clause in element.clauses]
    listed = ", ".join(f"json({sql})" if is_json(type) else sql for sql, type in columns)
    return f"json_group_array(json_array({listed}))"


class error_in_json(FunctionElement[str]):
    """The `error` of a recorded reply, which is typed JSON: of a call that failed it is the first key."""

    type = sa.Text()
    inherit_cache = True


@compiles(error_in_json, "postgresql")
def _error_in_json_postgresql(element: error_in_json, compiler: Any, **kw: Any) -> str:
    reply = compiler.process(element.clauses, **kw)
    # PostgreSQL has no text with a NUL, and raises an error where it would be one.
    is_readable = f"""left({reply}, 9) = '{{"error":' AND strpos({reply}, '\\u0000') = 0"""
    return f"(CASE WHEN {is_readable} THEN CAST({reply} AS json) ->> 'error' END)"


@compiles(error_in_json, "sqlite")
def _error_in_json_sqlite(element: error_in_json, compiler: Any, **kw: Any) -> str:
    reply = compiler.process(element.clauses, **kw)
    return f"""(CASE WHEN substr({reply}, 1, 9) = '{{"error":' THEN json_extract({reply}, '$.error') END)"""


def one_of(column: str, statuses: Any) -> sa.CheckConstraint:
    names = ", ".join(f"'{status}'" for status in statuses)
    return sa.CheckConstraint(f"{column} IN ({names})", name=column)


class IndexOptions(TypedDict):
    """Options of an index."""

    info: dict[str, str]


def where(condition: str) -> IndexOptions:
    """Return the options of a partial index.

    Not `postgresql_where` and `sqlite_where`: SQLAlchemy imports a dialect, with all its drivers, to check its options.
    A migration that Alembic generates has no condition: add those options there.
    """
    return {"info": {_CONDITION: condition}}


_CONDITION = "wtb_where"


@compiles(sa.schema.CreateIndex)
def _create_index(element: sa.schema.CreateIndex, compiler: Any, **kw: Any) -> str:
    statement = compiler.visit_create_index(element, **kw)
    condition = element.element.info.get(_CONDITION)
    return f"{statement} WHERE {condition}" if condition else statement


def ref(target: str, *, deferred: bool = False) -> sa.ForeignKey:
    return sa.ForeignKey(
        target, ondelete="CASCADE", deferrable=deferred or None, initially="DEFERRED" if deferred else None
    )
