"""Building blocks of tables: types of columns, the database's clock, constraints. Times are seconds since the epoch."""

from __future__ import annotations

from typing import Any, ClassVar, Final, TypedDict, TypeVar, dataclass_transform

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from wtb.core.ids import DEFAULT_PROJECT

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
class Record(msgspec.Struct, frozen=True):
    """A row as it is read. The annotations of a kind are its columns, in their order, after those of its base.

    It is a struct and no dataclass, because each command imports all kinds, and a dataclass compiles its methods when
    it is made.
    """


def column(*args: Any, **options: Any) -> Any:
    """Declare a column of a row's table. Its name and whether it may be null come from its annotation.

    Args:
        args: The arguments of `sqlalchemy.Column` without the name: the type, then foreign keys.
        options: The options of `sqlalchemy.Column`.
    """
    return sa.Column(*args, **options)


def project_column(*name: str) -> Any:
    """Declare the column of the project to which the rows of a table belong.

    It is no foreign key: projects are never removed or renamed, and SQLite cannot add a foreign key that is not null.
    """
    return column(*name, sa.String(200), nullable=False, server_default=DEFAULT_PROJECT)


class _RowMeta(msgspec.StructMeta):
    """Makes a table from the columns of a class, which are fields of its instances without a default."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> _RowMeta:
        table_name = namespace.pop("__tablename__", None)
        more = namespace.pop("__table_args__", ())
        *constraints, keywords = more if more and isinstance(more[-1], dict) else (*more, {})
        columns = {key: field for key, field in namespace.items() if isinstance(field, sa.Column)}
        for key, field in columns.items():
            del namespace[key]
            field.name = field.key = key
            field.nullable = namespace["__annotations__"][key].endswith("| None") and not field.primary_key
        row_class: Any = super().__new__(cls, name, bases, namespace, **options)
        if table_name is not None:
            row_class.__table__ = sa.Table(table_name, metadata, *columns.values(), *constraints, **keywords)
        return row_class  # type: ignore[no-any-return]


@dataclass_transform(frozen_default=True, field_specifiers=(column, project_column))
class Row(Record, metaclass=_RowMeta):
    """A row of a table, with all of its columns; see `Record`.

    A kind names its table by `__tablename__`. As in SQLAlchemy's declarative classes, `__table_args__` has constraints,
    indexes, columns that are not read with the row, and at its end a dictionary of options of the table. Fields without
    a column are added by the queries that select rows.

    Attributes:
        __table__: The table.
    """

    __table__: ClassVar[sa.Table]


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
    """JSON, which PostgreSQL stores as JSONB.

    It is no variant of `sa.JSON`, which would import PostgreSQL's dialect with all its drivers for SQLite as well.
    """

    impl = sa.JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        if dialect.name != "postgresql":
            return super().load_dialect_impl(dialect)
        from sqlalchemy.dialects.postgresql import JSONB

        return dialect.type_descriptor(JSONB(none_as_null=True))

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        return self.impl_instance.coerce_compared_value(op, value)  # for keys and positions, which are no JSON


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


class SqlFunction(FunctionElement[T]):
    """A function with its SQL by database, in which {0} stands for the first argument."""

    inherit_cache = True
    postgresql: ClassVar[str]
    sqlite: ClassVar[str]


@compiles(SqlFunction)
def _sql_function(expression: SqlFunction[Any], compiler: Any, **kw: Any) -> str:
    template: str = getattr(expression, compiler.dialect.name)
    return template.format(*(compiler.process(clause, **kw) for clause in expression.clauses))


class now(SqlFunction[float]):
    """The database's clock at this moment, not at the start of the transaction, in seconds since the epoch."""

    type = sa.Double()
    inherit_cache = True
    postgresql = "(extract(epoch from clock_timestamp())::double precision)"
    sqlite = "((julianday('now') - 2440587.5) * 86400.0)"


def is_ahead(stored: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a moment, which should be past or near, was stored while the clock was ahead.

    A moment that was derived from it, such as an end, is then too late by as much.
    """
    return stored > now() + FARTHEST_S


def is_over(lease_until: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a lease has expired.

    A lease that ends later than any lease lasts was given while the database's clock was ahead, and nobody holds it.
    """
    return sa.or_(lease_until <= now(), is_ahead(lease_until))


class transaction_number(SqlFunction[int]):
    """A number that orders events of transactions that commit out of order; on SQLite, with its one writer, a
    constant.
    """

    type = sa.BigInteger()
    inherit_cache = True
    postgresql = "(pg_current_xact_id()::text::bigint)"
    sqlite = "0"


class array_length(SqlFunction[int]):
    """The length of an array in a column of `OrderedJson`."""

    type = sa.Integer()
    inherit_cache = True
    postgresql = sqlite = "json_array_length({0})"


class array_elements(SqlFunction[Any]):
    """The elements of an array in a column of `OrderedJson`: rows of one column `value`."""

    inherit_cache = True
    postgresql = "json_array_elements_text({0})"
    sqlite = "json_each({0})"


class score_object(SqlFunction[Any]):
    """An object of the scores of several rows (metric, value, error): the value or the error by metric."""

    type = Json
    inherit_cache = True
    postgresql = "jsonb_object_agg({0}, coalesce(to_jsonb({2}), to_jsonb({1})))"
    # By itself SQLite writes 15 digits of a number, which is read as a different number.
    _number = "json(CASE WHEN {1} IS NOT NULL THEN printf('%!.17g', {1}) END)"
    sqlite = f"json_group_object({{0}}, CASE WHEN {{2}} IS NULL THEN {_number} ELSE {{2}} END)"


class rows_array(FunctionElement[Any]):
    """An array of arrays: the columns of several rows, in any order of the rows."""

    type = OrderedJson
    inherit_cache = True


@compiles(rows_array, "postgresql")
def _rows_array_postgresql(expression: rows_array, compiler: Any, **kw: Any) -> str:
    columns = ", ".join(compiler.process(clause, **kw) for clause in expression.clauses)
    return f"json_agg(json_build_array({columns}))"


@compiles(rows_array, "sqlite")
def _rows_array_sqlite(expression: rows_array, compiler: Any, **kw: Any) -> str:
    # A column of JSON is text for SQLite, and would become text within the array.
    columns = [(compiler.process(clause, **kw), clause.type) for clause in expression.clauses]
    listed = ", ".join(f"json({sql})" if is_json(type) else sql for sql, type in columns)
    return f"json_group_array(json_array({listed}))"


class error_in_json(SqlFunction[str]):
    """The `error` of a recorded reply, which is typed JSON, and has it as its first key if the call failed."""

    type = sa.Text()
    inherit_cache = True
    # PostgreSQL has no text with a NUL, and raises an error instead of returning one.
    _is_readable = """left({0}, 9) = '{{"error":' AND strpos({0}, '\\u0000') = 0"""
    postgresql = f"(CASE WHEN {_is_readable} THEN CAST({{0}} AS json) ->> 'error' END)"
    sqlite = """(CASE WHEN substr({0}, 1, 9) = '{{"error":' THEN json_extract({0}, '$.error') END)"""


def one_of(column: str, statuses: Any) -> sa.CheckConstraint:
    names = ", ".join(f"'{status}'" for status in statuses)
    return sa.CheckConstraint(f"{column} IN ({names})", name=column)


class IndexOptions(TypedDict):
    """Options of an index."""

    info: dict[str, str]


def where(condition: str) -> IndexOptions:
    """Return the options of a partial index.

    They are not `postgresql_where` and `sqlite_where`, for which SQLAlchemy imports a dialect with all its drivers. A
    migration that Alembic generates has no condition: add those options there.
    """
    return {"info": {_CONDITION: condition}}


_CONDITION = "wtb_where"


@compiles(sa.schema.CreateIndex)
def _create_index(create: sa.schema.CreateIndex, compiler: Any, **kw: Any) -> str:
    statement = compiler.visit_create_index(create, **kw)
    condition = create.element.info.get(_CONDITION)
    return f"{statement} WHERE {condition}" if condition else statement


def ref(target: str, *, deferred: bool = False) -> sa.ForeignKey:
    return sa.ForeignKey(
        target, ondelete="CASCADE", deferrable=deferred or None, initially="DEFERRED" if deferred else None
    )
