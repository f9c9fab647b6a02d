"""Rollbacks that have begun and whose head has not moved yet: who is at them, and what they keep others from.

Such an execution is paused, and its `asked` holds the rollback: to_id, redoes, was, superseded, and holder with until.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from wtb.core.errors import ConflictError
from wtb.store.database import Database
from wtb.store.process_identity import ProcessIdentity, identity, may_live
from wtb.store.tables.executions import ExecutionRow, StoredProcess, UnfinishedRollback
from wtb.store.tables.schema import executions
from wtb.store.transactions import clock

LEASE_S = 600.0  # how long somebody on another machine is believed to be at one reverse


def unfinished(row: ExecutionRow) -> UnfinishedRollback | None:
    """The rollback of an execution that has not come to its end, where there is one."""
    return row.asked.get("rollback") if row.asked is not None and row.status == "paused" else None


def finish_first(row: ExecutionRow, what: str) -> ConflictError:
    """Why something has to wait for the rollback that an execution is in. what: such as "resumed"."""
    asked = row.asked
    assert asked is not None, "it is in a rollback"
    return ConflictError(
        f"execution {row.id} cannot be {what}: it is {asked['to']}, and that is not done; finish it first: "
        f"{command(row.id, asked['rollback'])}"
    )


def command(execution_id: str, found: UnfinishedRollback) -> str:
    return (
        f"wtb rollback {execution_id} --undo"
        if found["redoes"]
        else f"wtb rollback {execution_id} --to {found['to_id']}"
    )


def find_resumable(
    connection: sa.Connection, row: ExecutionRow, to_id: str, redoes: str | None
) -> UnfinishedRollback | None:
    """The unfinished rollback that one to `to_id` continues with, if any.

    Raises ConflictError where somebody is at it now, or where it leads elsewhere.
    """
    pending, asked = unfinished(row), row.asked
    if pending is None or asked is None:
        return None
    holder = pending["holder"]
    if holder is not None and may_live(ProcessIdentity(**holder), expired=pending["until"] < clock(connection)):
        raise ConflictError(
            f"execution {row.id} is {asked['to']} {asked['reason']} just now (process "
            f"{holder['pid']} on {holder['host']}); wait until that is done, or cancel the execution"
        )
    if (pending["to_id"], pending["redoes"]) != (to_id, redoes):
        raise finish_first(row, "taken elsewhere")
    return pending


def start(
    connection: sa.Connection, *, to_id: str, redoes: str | None, was: str, superseded: list[str]
) -> UnfinishedRollback:
    """A rollback that this process is at from now on."""
    return {
        "to_id": to_id,
        "redoes": redoes,
        "was": was,
        "superseded": superseded,
        "holder": _this_process(),
        "until": clock(connection) + LEASE_S,
    }


def _this_process() -> StoredProcess:
    me = identity()
    return {
        "id": me.id,
        "host": me.host,
        "boot": me.boot,
        "pid": me.pid,
        "process_started_at": me.process_started_at,
    }


def renew(connection: sa.Connection, execution: ExecutionRow) -> None:
    """Whoever is at the rollback of an execution still is."""
    asked = execution.asked
    assert asked is not None, "it is in a rollback"
    rollback = {**asked["rollback"], "until": clock(connection) + LEASE_S}
    mine = executions.c.id == execution.id
    connection.execute(executions.update().where(mine).values(asked={**asked, "rollback": rollback}))


def release(database: Database, execution: ExecutionRow) -> None:
    """Let others finish a rollback that was interrupted here. Does nothing if it has ended or is another process's."""
    asked = execution.asked
    if asked is None:
        return
    mine = executions.c.id == execution.id, executions.c.token == execution.token
    held = executions.update().where(*mine, executions.c.status == "paused", executions.c.asked.is_not(None))
    database.execute(held.values(asked={**asked, "rollback": {**asked["rollback"], "holder": None}}))


def superseded_by(found: UnfinishedRollback | None, ids: Sequence[str]) -> list[str]:
    """What a rollback supersedes, with what it did before it was interrupted."""
    return list(dict.fromkeys([*(found["superseded"] if found else ()), *ids]))
