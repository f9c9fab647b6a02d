"""The tables of schedules and their fires."""

from __future__ import annotations

import sqlalchemy as sa

from wtb.store.tables.column_types import Id, Json, Seconds, metadata, now, ref, where

schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("session_id", Id, ref("sessions.id"), nullable=False, index=True),
    sa.Column("name", sa.String(200), nullable=False, unique=True),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("file", sa.Text, nullable=False, comment="absolute path of the sweep file"),
    sa.Column("folder", sa.Text, nullable=False, comment="where its fires start"),
    sa.Column("cron", sa.String(200), nullable=False),
    sa.Column("tz", sa.String(100), nullable=False),
    sa.Column("missed", sa.String(8), nullable=False),
    sa.Column("queued", sa.Boolean, nullable=False, comment="workers run its sweeps"),
    sa.Column("baseline", sa.String(200), comment="the name of one, or `last`"),
    sa.Column("margin", Json, nullable=False, comment="metric -> the loss that would matter"),
    sa.Column("notify", Json, nullable=False, comment="notification targets"),
    sa.Column("next_at", Seconds, comment="its next fire; null while it is paused"),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.CheckConstraint("status IN ('active', 'paused')", name="status"),
    sa.CheckConstraint("missed IN ('skip', 'once')", name="missed"),
    sa.Index("ix_schedules_next_at", "next_at", **where("status = 'active'")),
)

fires = sa.Table(
    "fires",
    metadata,
    sa.Column("schedule_id", Id, ref("schedules.id"), primary_key=True),
    sa.Column("fire_at", Seconds, primary_key=True, comment="when it was due"),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("manual", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("token", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("lease_until", Seconds, comment="when its lease ends; set after its end if a notification is due"),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("sweep_id", Id, unique=True, comment="its sweep, set in the transaction that submits it"),
    sa.Column("baseline_id", Id, comment="the sweep that it was compared with"),
    sa.Column("verdict", sa.String(16)),
    sa.Column("why", Json, comment="sentences"),
    sa.Column("notified_at", Seconds),
    sa.Column("notify_tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("notify_error", sa.Text),
    sa.Column("started_at", Seconds),
    sa.Column("finished_at", Seconds),
    sa.CheckConstraint("status IN ('due', 'starting', 'running', 'judged', 'failed')", name="status"),
    sa.CheckConstraint(
        "verdict IN ('better', 'same', 'not worse', 'unclear', 'worse', 'cannot tell', 'failed')", name="verdict"
    ),
    sa.Index("ix_fires_open", "status", **where("status IN ('due', 'starting', 'running') OR lease_until IS NOT NULL")),
)
