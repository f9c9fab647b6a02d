"""A table and the row that is read of it, declared once."""

from __future__ import annotations

from typing import Any, ClassVar, dataclass_transform

import msgspec
import sqlalchemy as sa

from wtb.core.ids import DEFAULT_PROJECT
from wtb.store.rows.record import Record
from wtb.store.tables.column_types import metadata


def column(*args: Any, **options: Any) -> Any:
    """Declare a column of a row's table. Its name and whether it may be null come from its annotation.

    Args:
        args: Of `sqlalchemy.Column` but for the name: the type, then foreign keys.
        options: Of `sqlalchemy.Column`.
    """
    return sa.Column(*args, **options)


def project_column(*name: str) -> Any:
    """The project that the rows of a table belong to.

    Not a reference: projects are never removed and never get another name, and SQLite adds no reference that is needed.
    """
    return column(*name, sa.String(200), nullable=False, server_default=DEFAULT_PROJECT)


class _RowMeta(msgspec.StructMeta):
    """Makes a table of the columns of a class, which are fields of its instances without a default."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> _RowMeta:
        table_name = namespace.pop("__tablename__", None)
        more = namespace.pop("__table_args__", ())
        *items, keywords = more if more and isinstance(more[-1], dict) else (*more, {})
        columns = {key: value for key, value in namespace.items() if isinstance(value, sa.Column)}
        for key, value in columns.items():
            del namespace[key]
            value.name = value.key = key
            value.nullable = namespace["__annotations__"][key].endswith("| None") and not value.primary_key
        row_class: Any = super().__new__(cls, name, bases, namespace, **options)
        if table_name is not None:
            row_class.__table__ = sa.Table(table_name, metadata, *columns.values(), *items, **keywords)
        return row_class  # type: ignore[no-any-return]


@dataclass_transform(frozen_default=True, field_specifiers=(column, project_column))
class Row(Record, metaclass=_RowMeta):
    """A row of a table, with all of its columns; see `Record`.

    A kind names its table by `__tablename__`. As in SQLAlchemy's declarative classes, `__table_args__` has constraints,
    indexes and columns that are read by themselves, and at its end a dictionary of options of the table. Fields without
    a column come from elsewhere: whoever selects rows adds them.

    Attributes:
        __table__: The table.
    """

    __table__: ClassVar[sa.Table]
