"""All tables. Times are seconds since the epoch (UTC); the database's own clock decides about leases.

`REVISION` names the migration that leads to exactly these tables, which a test checks. Importing `metadata` from this
module guarantees that it has all tables.
"""

from __future__ import annotations

from wtb.store.tables.access import access as access
from wtb.store.tables.access import audit as audit
from wtb.store.tables.access import idempotency_keys as idempotency_keys
from wtb.store.tables.access import members as members
from wtb.store.tables.access import operations as operations
from wtb.store.tables.access import projects as projects
from wtb.store.tables.access import sign_ins as sign_ins
from wtb.store.tables.access import teams as teams
from wtb.store.tables.access import tokens as tokens
from wtb.store.tables.access import upload_parts as upload_parts
from wtb.store.tables.access import uploads as uploads
from wtb.store.tables.access import users as users
from wtb.store.tables.column_types import metadata as metadata
from wtb.store.tables.column_types import now as now
from wtb.store.tables.column_types import transaction_number as transaction_number
from wtb.store.tables.control import alerts as alerts
from wtb.store.tables.control import approvals as approvals
from wtb.store.tables.control import awaiting as awaiting
from wtb.store.tables.control import budgets as budgets
from wtb.store.tables.control import exporters as exporters
from wtb.store.tables.control import exports as exports
from wtb.store.tables.control import invocations as invocations
from wtb.store.tables.control import reservations as reservations
from wtb.store.tables.control import rollbacks as rollbacks
from wtb.store.tables.control import scorings as scorings
from wtb.store.tables.executions import checkpoints as checkpoints
from wtb.store.tables.executions import decisions as decisions
from wtb.store.tables.executions import executions as executions
from wtb.store.tables.executions import files as files
from wtb.store.tables.executions import is_leased as is_leased
from wtb.store.tables.executions import is_pending as is_pending
from wtb.store.tables.executions import is_published as is_published
from wtb.store.tables.executions import is_running as is_running
from wtb.store.tables.executions import is_unpublished as is_unpublished
from wtb.store.tables.executions import thread_checkpoints as thread_checkpoints
from wtb.store.tables.executions import thread_writes as thread_writes
from wtb.store.tables.executions import values as values
from wtb.store.tables.executions import working as working
from wtb.store.tables.node_runs import attempts as attempts
from wtb.store.tables.node_runs import calls as calls
from wtb.store.tables.node_runs import node_run_columns as node_run_columns
from wtb.store.tables.node_runs import node_runs as node_runs
from wtb.store.tables.node_runs import took_one_attempt as took_one_attempt
from wtb.store.tables.results import baselines as baselines
from wtb.store.tables.results import cells as cells
from wtb.store.tables.results import comments as comments
from wtb.store.tables.results import labels as labels
from wtb.store.tables.results import looks as looks
from wtb.store.tables.results import matrices as matrices
from wtb.store.tables.results import metrics as metrics
from wtb.store.tables.results import pooled as pooled
from wtb.store.tables.results import scores as scores
from wtb.store.tables.results import tallies as tallies
from wtb.store.tables.sweeps import ALERTING as ALERTING
from wtb.store.tables.sweeps import cases as cases
from wtb.store.tables.sweeps import combinations as combinations
from wtb.store.tables.sweeps import events as events
from wtb.store.tables.sweeps import fires as fires
from wtb.store.tables.sweeps import is_case as is_case
from wtb.store.tables.sweeps import is_kept as is_kept
from wtb.store.tables.sweeps import is_visible as is_visible
from wtb.store.tables.sweeps import limited_nodes as limited_nodes
from wtb.store.tables.sweeps import log_ids as log_ids
from wtb.store.tables.sweeps import permits as permits
from wtb.store.tables.sweeps import publications as publications
from wtb.store.tables.sweeps import runners as runners
from wtb.store.tables.sweeps import schedules as schedules
from wtb.store.tables.sweeps import session_memory as session_memory
from wtb.store.tables.sweeps import sessions as sessions
from wtb.store.tables.sweeps import sweeps as sweeps
from wtb.store.tables.sweeps import workflows as workflows

REVISION = "2000"
