"""The script that Alembic runs: migrations on the connection and in the transaction of `Database.upgrade`."""

from __future__ import annotations

from typing import Any, Literal

import sqlalchemy as sa
from alembic import context
from alembic.autogenerate.api import AutogenContext

from wtb.store.tables.column_types import is_json
from wtb.store.tables.schema import metadata, now, transaction_number


def render(kind: str, schema_item: Any, autogenerate: AutogenContext) -> str | Literal[False]:
    """Return the source text for types and defaults that differ between the databases; the template defines these
    names.
    """
    if kind == "type" and is_json(schema_item):
        return "Json"
    if kind == "server_default" and isinstance(schema_item, sa.DefaultClause):
        if isinstance(schema_item.arg, now):
            return "now()"
        if isinstance(schema_item.arg, transaction_number):
            return "transaction_number()"
        if isinstance(schema_item.arg, sa.False_):
            return "sa.false()"
    return False


connection: sa.Connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_item=render)
with context.begin_transaction():
    context.run_migrations()
