"""The tables of threads: the checkpoints that another engine, such as LangGraph, keeps here by itself.

A thread belongs to a session. Values that are longer than their digest stand in `values`, once for all; shorter ones
stand in the row itself.
"""

from __future__ import annotations

import sqlalchemy as sa

from wtb.store.tables.column_types import Digest, Id, Json, Seconds, metadata, now, ref, where

# Names that others choose, compared byte by byte: the order of checkpoints is that of their ids.
Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

thread_checkpoints = sa.Table(
    "thread_checkpoints",
    metadata,
    sa.Column("session_id", Id, ref("sessions.id"), primary_key=True),
    sa.Column("thread_id", Name, primary_key=True),
    sa.Column("namespace", Name, primary_key=True, comment="of a subgraph; empty: of the graph itself"),
    sa.Column("id", Name, primary_key=True),
    sa.Column("parent_id", Name),
    sa.Column("run_id", Name),
    sa.Column("state", Json, nullable=False, comment="channel -> digest of its value"),
    sa.Column("document", sa.Text, nullable=False, comment="typed JSON: rest of the checkpoint, and short values"),
    sa.Column("metadata", Json, nullable=False),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.Index("ix_thread_checkpoints_run_id", "run_id", **where("run_id IS NOT NULL")),
)

thread_writes = sa.Table(
    "thread_writes",
    metadata,
    # No reference: writes may be stored before their checkpoint, and each reference costs a step that it waits for.
    sa.Column("session_id", Id, primary_key=True),
    sa.Column("thread_id", Name, primary_key=True),
    sa.Column("namespace", Name, primary_key=True),
    sa.Column("checkpoint_id", Name, primary_key=True, comment="that they were made from"),
    sa.Column("task_id", Name, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False, comment="negative: may be written again"),
    sa.Column("path", Name, nullable=False, comment="of the task: what orders writes of one step"),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("digest", Digest, comment="of its value"),
    sa.Column("value", sa.Text, comment="the value itself, where it is short: typed JSON"),
    sa.CheckConstraint("(digest IS NULL) <> (value IS NULL)", name="value"),
)
