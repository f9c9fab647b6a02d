"""Rollbacks that have begun and whose head has not moved yet: who is at them, and what they keep others from.

Such an execution is paused, and its `asked` holds the rollback: to_id, redoes, was, superseded, and holder with until.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from wtb.core.errors import ConflictError
from wtb.store.database import Database
from wtb.store.process_identity import identity, may_live
from wtb.store.tables.schema import executions, now

Row = Mapping[str, Any]

LEASE_S = 600.0  # how long somebody on another machine is believed to be at one reverse


def unfinished(row: Row) -> Row | None:
    """The rollback of an execution that has not come to its end, where there is one."""
    return (row["asked"] or {}).get("rollback") if row["status"] == "paused" else None


def finish_first(row: Row, what: str) -> ConflictError:
    """Why something has to wait for the rollback that an execution is in. what: such as "resumed"."""
    return ConflictError(
        f"execution {row['id']} cannot be {what}: it is {row['asked']['to']}, and that is not done; finish it first: "
        f"{command(row['id'], row['asked']['rollback'])}"
    )


def command(execution_id: str, found: Row) -> str:
    return (
        f"wtb rollback {execution_id} --undo"
        if found["redoes"]
        else f"wtb rollback {execution_id} --to {found['to_id']}"
    )


def find_resumable(connection: sa.Connection, row: Row, to_id: str, redoes: str | None) -> Row | None:
    """The unfinished rollback that one to `to_id` goes on with, if any.

    Raises ConflictError where somebody is at it now, or where it leads elsewhere.
    """
    found = unfinished(row)
    if found is None:
        return None
    holder = found["holder"]
    if holder is not None and may_live({**holder, "expired": found["until"] < _clock(connection)}):
        raise ConflictError(
            f"execution {row['id']} is {row['asked']['to']} {row['asked']['reason']} just now (process "
            f"{holder['pid']} on {holder['host']}); wait until that is done, or cancel the execution"
        )
    if (found["to_id"], found["redoes"]) != (to_id, redoes):
        raise finish_first(row, "taken elsewhere")
    return found


def start(connection: sa.Connection, rollback: Row) -> dict[str, Any]:
    """A rollback that this process is at from now on. rollback: to_id, redoes, was and superseded."""
    return {**rollback, "holder": identity(), "until": _clock(connection) + LEASE_S}


def renew(connection: sa.Connection, execution: Row) -> None:
    """Whoever is at the rollback of an execution still is."""
    asked = execution["asked"]
    rollback = {**asked["rollback"], "until": _clock(connection) + LEASE_S}
    mine = executions.c.id == execution["id"]
    connection.execute(executions.update().where(mine).values(asked={**asked, "rollback": rollback}))


def release(database: Database, execution: Row) -> None:
    """Let others finish a rollback that was interrupted here. Does nothing if it has ended or is another process's."""
    asked = execution["asked"]
    mine = executions.c.id == execution["id"], executions.c.token == execution["token"]
    held = executions.update().where(*mine, executions.c.status == "paused", executions.c.asked.is_not(None))
    database.execute(held.values(asked={**asked, "rollback": {**asked["rollback"], "holder": None}}))


def superseded_by(found: Row | None, ids: Sequence[str]) -> list[str]:
    """What a rollback supersedes, with what it did before it was interrupted."""
    return list(dict.fromkeys([*(found["superseded"] if found else ()), *ids]))


def _clock(connection: sa.Connection) -> float:
    return float(connection.scalar(sa.select(now())) or 0.0)
