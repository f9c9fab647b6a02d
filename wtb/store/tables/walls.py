"""Walls between projects in PostgreSQL: row-level security, which holds even if a query forgets a condition.

There are three roles. None is a superuser or bypasses row-level security, which is forced on the owner, too:

- The owner of the tables creates and migrates them; the operator has a database URL of the owner.
- `wtb_worker` runs workers and the scheduler, which work for all projects.
- `wtb_server` answers requests. Each of its transactions sets its projects (`wtb.projects`), and sees nothing else;
  without that setting it sees nothing.

Rows of a sweep are walled by the sweep and have no column for the project, which would be written with every row of the
hot path. Policies of the owner and of workers are `true`, which PostgreSQL leaves out of their plans.

Source: the manual of PostgreSQL, "Row Security Policies" and "CREATE POLICY".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import sqlalchemy as sa

WORKER: Final = "wtb_worker"
SERVER: Final = "wtb_server"
ALL: Final = "*"  # of projects
_SEPARATOR = "\x1f"  # not in names of projects, which are printable
_SETTING = "(SELECT current_setting('wtb.projects', true))"  # as a subquery it is evaluated once a statement


def projects_setting(projects: frozenset[str] | None) -> str:
    """Return the setting `wtb.projects` for a transaction of the server; None stands for all projects."""
    if projects is None:
        return ALL
    return _SEPARATOR.join([ALL, ALL] if projects == {ALL} else sorted(projects))  # a project may have this name, too


def _of_project(column: str) -> str:
    return f"{column} = ANY (string_to_array({_SETTING}, chr({ord(_SEPARATOR)})))"


def projects_of(setting: str) -> frozenset[str] | None:
    """Return the projects from which `projects_setting` was made."""
    return None if setting == ALL else frozenset(setting.split(_SEPARATOR))


def _within_projects(column: str) -> str:
    """Return the condition that all projects of a row are the transaction's."""
    separator = f"chr({ord(_SEPARATOR)})"
    return f"string_to_array({column}, {separator}) <@ string_to_array({_SETTING}, {separator})"


def _of(table: str, column: str, owner: str) -> str:
    """Return the condition that the owner of a row is of the transaction's projects.

    PostgreSQL looks an owner up by its key, or collects the ids of all of these projects by the index, whichever it
    estimates as cheaper; in both cases it reads no rows of other projects. The owner's own policy, which is true for a
    transaction of all projects, would use no index.
    """
    return f"EXISTS (SELECT FROM {owner} AS owner WHERE owner.id = {table}.{column} AND {_of_project('owner.project')})"


def _owned_by(table: str, column: str, owner: str) -> str:
    """Return the condition that the owner of a row is visible, by its own policy."""
    return f"EXISTS (SELECT FROM {owner} AS owner WHERE owner.id = {table}.{column})"


_OF_SWEEPS = (
    *("alerts", "approvals", "cases", "cells", "checkpoints", "combinations", "comments", "executions", "exports"),
    *("labels", "matrices", "metrics", "node_runs", "rollbacks", "scores", "scorings", "tallies", "working"),
)
_OF_SESSIONS = ("files", "schedules", "session_memory", "thread_checkpoints", "thread_writes")

# The condition that rows are of a transaction's projects, by table.
POLICIES: Final[Mapping[str, str]] = {
    "projects": _of_project("name"),
    **{table: _of_project("project") for table in ("access", "looks", "sessions", "sweeps", "tokens", "uploads")},
    **{table: _of(table, "sweep_id", "sweeps") for table in _OF_SWEEPS},
    **{table: _of(table, "session_id", "sessions") for table in _OF_SESSIONS},
    "baselines": f"{_of('baselines', 'session_id', 'sessions')} AND {_of('baselines', 'sweep_id', 'sweeps')}",
    "pooled": _of("pooled", "pool_id", "sweeps"),
    "events": (
        f"{_of('events', 'sweep_id', 'sweeps')} OR sweep_id IS NULL AND {_of('events', 'session_id', 'sessions')}"
    ),
    "fires": _owned_by("fires", "schedule_id", "schedules"),
    **{table: _owned_by(table, "node_run_id", "node_runs") for table in ("attempts", "calls", "invocations")},
    "decisions": _owned_by("decisions", "checkpoint_id", "checkpoints"),
    "upload_parts": _owned_by("upload_parts", "upload_id", "uploads"),
    "awaiting": _owned_by("awaiting", "execution_id", "executions"),
    "reservations": _owned_by("reservations", "execution_id", "executions"),
    "budgets": (
        f"scope = 'project' AND {_of_project('key')}"
        f" OR scope = 'session' AND {_of('budgets', 'key', 'sessions')}"
        f" OR scope = 'sweep' AND {_of('budgets', 'key', 'sweeps')}"
        " OR scope = 'token' AND EXISTS"
        f" (SELECT FROM tokens AS token WHERE token.name = budgets.key AND {_of_project('token.project')})"
    ),
    "operations": _within_projects("projects"),
    "workflows": (
        f"EXISTS (SELECT FROM sweeps AS one WHERE one.workflow_id = workflows.id AND {_of_project('one.project')})"
    ),
}
# The reasons for which other tables have no walls.
OPEN: Final[Mapping[str, str]] = {
    "audit": "its rows are one chain, which whoever changes something adds to and only those of all projects read",
    "values": "values are stored once for all projects, and no operation gives one for its digest alone",
    "publications": "code is of no project",
    "users": "people are of no project",
    "teams": "people are of no project",
    "members": "people are of no project",
    "idempotency_keys": "a row is found by a digest of who asks and of a key that they alone know",
    "sign_ins": "who asks is found out before it is known for which projects",
    "exporters": "collectors are of the whole system, and no operation of a project names one",
    "runners": "processes work for all projects",
    "permits": "limits of nodes hold for all projects",
    "limited_nodes": "limits of nodes hold for all projects",
    "log_ids": "a sequence",
}
_NEW_FIRST = {"workflows"}  # a graph is stored before the sweep that makes it visible


def build_walls(connection: sa.Connection) -> None:
    """Create policies and rights as they have to be now, whatever they were; for the owner of the tables.

    Args:
        connection: In the transaction that creates or migrates the tables. SQLite has one tenant, and no walls.
    """
    if connection.dialect.name != "postgresql":
        return
    role_names = connection.scalars(sa.text("SELECT rolname FROM pg_roles WHERE rolname IN (:worker, :server)"), _ROLES)
    roles = set(role_names)
    # Policies for roles that the server lacks would be rejected, so each role is optional.
    for table, condition in POLICIES.items():
        for statement in _statements(table, condition, roles):
            connection.exec_driver_sql(statement)
    for role in sorted(roles):
        for statement in _RIGHTS:
            connection.exec_driver_sql(statement.format(role=role))


def is_worker(connection: sa.Connection) -> bool:
    """Return whether this is the role of workers, so that the database has walls between projects."""
    if connection.dialect.name != "postgresql":
        return False
    return bool(connection.scalar(sa.text("SELECT current_user = :worker"), {"worker": WORKER}))


def has_walls(connection: sa.Connection) -> bool:
    """Return whether this database lets workers in by their own role, whatever role this connection has.

    Migrations give that role its policies, if the server has it: see `build_walls`.
    """
    if connection.dialect.name != "postgresql":
        return False
    policy = "schemaname = current_schema() AND tablename = 'sweeps' AND policyname = 'worker'"
    return bool(connection.scalar(sa.text(f"SELECT EXISTS (SELECT FROM pg_policies WHERE {policy})")))


_ROLES = {"worker": WORKER, "server": SERVER}
_RIGHTS = (
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}",
    "REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM {role}",
    "REVOKE UPDATE, DELETE ON audit FROM {role}",  # its rows are only added; the owner prunes it
)


def _statements(table: str, condition: str, roles: set[str]) -> list[str]:
    statements = [f"ALTER TABLE {table} {how} ROW LEVEL SECURITY" for how in ("ENABLE", "FORCE")]
    statements += [f"DROP POLICY IF EXISTS {name} ON {table}" for name in ("owner", "worker", "server")]
    statements.append(f"CREATE POLICY owner ON {table} TO CURRENT_USER USING (true)")
    if WORKER in roles:
        statements.append(f"CREATE POLICY worker ON {table} TO {WORKER} USING (true)")
    if SERVER in roles:
        check = " WITH CHECK (true)" if table in _NEW_FIRST else ""
        statements.append(
            f"CREATE POLICY server ON {table} TO {SERVER} USING ({_SETTING} = '{ALL}' OR {condition}){check}"
        )
    return statements
