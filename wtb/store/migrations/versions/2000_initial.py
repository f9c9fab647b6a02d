"""Migration 2000: all tables, as the release of 0.1.0 wrote them out in SQL, because later migrations change them."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "2000"
down_revision = None
branch_labels = None
depends_on = None

SEPARATOR = "\n--\n"  # between statements, of which some have semicolons in them


def upgrade() -> None:
    connection = op.get_bind().execution_options(no_parameters=True)
    script = Path(__file__).with_name(f"2000_{connection.dialect.name}.sql").read_text("utf-8")
    for statement in script.split(SEPARATOR):
        connection.exec_driver_sql(statement)
