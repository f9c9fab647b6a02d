"""Migration 1006: projects, which sessions, sweeps and tokens belong to, and budgets of tokens.

What was a word of sweeps and budgets becomes a project of that name; sweeps without one belong to the default one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.schema import now

revision = "1006"
down_revision = "1005"
branch_labels = None
depends_on = None

_KEPT = ("budgets", "reservations")


def upgrade() -> None:
    op.create_table(
        "projects",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("created_at", sa.Double, nullable=False, server_default=now()),
        sa.Column("created_by", sa.String(255), nullable=False),
    )
    op.execute("""
        INSERT INTO projects (name, created_by)
        SELECT 'default', 'WTB' UNION SELECT project, 'WTB' FROM sweeps WHERE project IS NOT NULL
        UNION SELECT key, 'WTB' FROM budgets WHERE scope = 'project'
    """)
    op.add_column("tokens", sa.Column("project", sa.String(200), comment="all that it is good for; null: all projects"))
    op.add_column("sessions", _project())
    op.add_column(
        "sweeps", sa.Column("token", sa.String(64), comment="by which it was submitted, and whose budget binds it")
    )
    # SQLite makes no column obligatory that is there already.
    op.execute("ALTER TABLE sweeps RENAME COLUMN project TO earlier_project")
    op.add_column("sweeps", _project())
    op.execute("UPDATE sweeps SET project = earlier_project WHERE earlier_project IS NOT NULL")
    op.drop_column("sweeps", "earlier_project")
    _allow_budgets_of_tokens()


def _project() -> sa.Column[str]:
    return sa.Column("project", sa.String(200), nullable=False, server_default="default")


def _allow_budgets_of_tokens() -> None:
    """Make both tables anew with their rows: SQLite changes no check of a table."""
    for table in _KEPT:
        op.execute(f"CREATE TEMPORARY TABLE kept_{table} AS SELECT * FROM {table}")
    for table in reversed(_KEPT):
        op.drop_table(table)
    _create_budgets()
    _create_reservations()
    for table in _KEPT:
        op.execute(f"INSERT INTO {table} SELECT * FROM kept_{table}")
        op.execute(f"DROP TABLE kept_{table}")


def _create_budgets() -> None:
    op.create_table(
        "budgets",
        sa.Column("scope", sa.String(8), primary_key=True),
        sa.Column(
            "key",
            sa.String(420),
            primary_key=True,
            comment="id of the session or sweep, name of the project or token",
        ),
        sa.Column("node", sa.String(200), primary_key=True, server_default="", comment="of a sweep; empty: all of it"),
        sa.Column("kind", sa.String(10), primary_key=True),
        sa.Column("most", sa.Double, nullable=False),
        sa.Column("spent", sa.Double, nullable=False, server_default="0"),
        sa.Column(
            "warned", sa.Double, nullable=False, server_default="0", comment="share of it that was warned of last"
        ),
        sa.CheckConstraint("scope IN ('session', 'project', 'sweep', 'token')", name="scope"),
        sa.CheckConstraint("kind IN ('usd', 'tokens', 'node_runs')", name="kind"),
    )


def _create_reservations() -> None:
    op.create_table(
        "reservations",
        sa.Column("id", sa.String(32), primary_key=True, comment="of an attempt of a node run"),
        sa.Column("scope", sa.String(8), primary_key=True),
        sa.Column("key", sa.String(420), primary_key=True),
        sa.Column("node", sa.String(200), primary_key=True, server_default=""),
        sa.Column("kind", sa.String(10), primary_key=True),
        sa.Column("amount", sa.Double, nullable=False),
        sa.Column("alone", sa.Boolean, nullable=False, comment="its cost is unknown: no other starts beside it"),
        sa.Column("execution_id", sa.String(32), nullable=False),
        sa.Column("runner_id", sa.String(32), nullable=False, index=True),
        sa.ForeignKeyConstraint(
            ["scope", "key", "node", "kind"],
            ["budgets.scope", "budgets.key", "budgets.node", "budgets.kind"],
            ondelete="CASCADE",
        ),
        comment="what node runs that are under way may still spend of a budget",
    )
