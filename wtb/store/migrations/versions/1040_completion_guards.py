"""Migration 1040: an execution completes only if its head has no next nodes and no running node run."""

from __future__ import annotations

from alembic import op

revision = "1040"
down_revision = "1039"
branch_labels = None
depends_on = None

_UNFINISHED = "a completed execution has next nodes or a running node run at its head"
_ON_POSTGRESQL = (
    f"""
    CREATE FUNCTION reject_unfinished_execution() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM checkpoints WHERE id = NEW.head_id AND jsonb_array_length(position->'next') > 0)
            OR EXISTS (SELECT FROM node_runs WHERE checkpoint_id = NEW.head_id AND status = 'running')
        THEN
            RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = '{_UNFINISHED}: ' || NEW.id;
        END IF;
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER execution_completes BEFORE UPDATE ON executions FOR EACH ROW
    WHEN (NEW.status = 'completed' AND OLD.status <> 'completed') EXECUTE FUNCTION reject_unfinished_execution()
    """,
    """
    CREATE TRIGGER execution_is_born_completed BEFORE INSERT ON executions FOR EACH ROW
    WHEN (NEW.status = 'completed') EXECUTE FUNCTION reject_unfinished_execution()
    """,
)
_ON_SQLITE = [
    f"""
    CREATE TRIGGER {name} BEFORE {event} ON executions WHEN {condition}
    BEGIN
        SELECT raise(ABORT, '{_UNFINISHED}')
        WHERE EXISTS (
            SELECT 1 FROM checkpoints WHERE id = NEW.head_id AND json_array_length(position, '$.next') > 0
        ) OR EXISTS (SELECT 1 FROM node_runs WHERE checkpoint_id = NEW.head_id AND status = 'running');
    END
    """
    for name, event, condition in (
        ("execution_completes", "UPDATE OF status", "NEW.status = 'completed' AND OLD.status <> 'completed'"),
        ("execution_is_born_completed", "INSERT", "NEW.status = 'completed'"),
    )
]


def upgrade() -> None:
    connection = op.get_bind()
    for statement in _ON_POSTGRESQL if connection.dialect.name == "postgresql" else _ON_SQLITE:
        connection.exec_driver_sql(statement)
