CREATE TABLE "values" (
	digest VARCHAR(64) NOT NULL,
	data TEXT NOT NULL,
	CONSTRAINT pk_values PRIMARY KEY (digest)
)
--
CREATE TABLE thread_writes (
	session_id VARCHAR(32) NOT NULL,
	thread_id TEXT NOT NULL,
	namespace TEXT NOT NULL,
	checkpoint_id TEXT NOT NULL,
	task_id TEXT NOT NULL,
	number INTEGER NOT NULL,
	path TEXT NOT NULL,
	channel TEXT NOT NULL,
	digest VARCHAR(64),
	value TEXT,
	CONSTRAINT pk_thread_writes PRIMARY KEY (session_id, thread_id, namespace, checkpoint_id, task_id, number),
	CONSTRAINT ck_thread_writes_value CHECK ((digest IS NULL) <> (value IS NULL))
)
--
CREATE TABLE projects (
	name VARCHAR(200) NOT NULL,
	created_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	created_by VARCHAR(255) NOT NULL,
	retention JSON,
	CONSTRAINT pk_projects PRIMARY KEY (name)
)
--
CREATE TABLE tokens (
	id VARCHAR(32) NOT NULL,
	name VARCHAR(64) NOT NULL,
	digest VARCHAR(64) NOT NULL,
	scopes JSON NOT NULL,
	created_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	created_by VARCHAR(200) NOT NULL,
	expires_at DOUBLE,
	used_at DOUBLE,
	revoked_at DOUBLE,
	project VARCHAR(200),
	user VARCHAR(255),
	CONSTRAINT pk_tokens PRIMARY KEY (id),
	CONSTRAINT uq_tokens_name UNIQUE (name),
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
)
--
CREATE INDEX ix_tokens_project ON tokens (project)
--
CREATE TABLE users (
	name VARCHAR(255) NOT NULL,
	created_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	created_by VARCHAR(255) NOT NULL,
	CONSTRAINT pk_users PRIMARY KEY (name)
)
--
CREATE TABLE teams (
	name VARCHAR(200) NOT NULL,
	created_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	created_by VARCHAR(255) NOT NULL,
	CONSTRAINT pk_teams PRIMARY KEY (name)
)
--
CREATE TABLE access (
	project VARCHAR(200) NOT NULL,
	user VARCHAR(255) DEFAULT '' NOT NULL,
	team VARCHAR(200) DEFAULT '' NOT NULL,
	role VARCHAR(10) NOT NULL,
	created_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	created_by VARCHAR(255) NOT NULL,
	CONSTRAINT pk_access PRIMARY KEY (project, user, team),
	CONSTRAINT ck_access_holder CHECK (("user" = '') <> (team = '')),
	CONSTRAINT ck_access_role CHECK (role IN ('viewer', 'runner', 'approver', 'maintainer', 'admin'))
)
--
CREATE TABLE sign_ins (
	id VARCHAR(32) NOT NULL,
	digest VARCHAR(64) NOT NULL,
	kind VARCHAR(8) NOT NULL,
	source VARCHAR(64) NOT NULL,
	name VARCHAR(200),
	scopes JSON,
	address VARCHAR(64),
	created_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	used_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	expires_at DOUBLE NOT NULL,
	CONSTRAINT pk_sign_ins PRIMARY KEY (id),
	CONSTRAINT ck_sign_ins_kind CHECK (kind IN ('operator', 'token', 'provider')),
	CONSTRAINT ck_sign_ins_name CHECK ((kind = 'provider') = (name IS NOT NULL AND scopes IS NOT NULL)),
	CONSTRAINT uq_sign_ins_digest UNIQUE (digest)
)
--
CREATE TABLE audit (
	number BIGINT NOT NULL,
	at DOUBLE NOT NULL,
	call VARCHAR(32) NOT NULL,
	"by" VARCHAR(255) NOT NULL,
	via VARCHAR(255) NOT NULL,
	address VARCHAR(64),
	token VARCHAR(64),
	operation VARCHAR(64) NOT NULL,
	arguments TEXT,
	outcome VARCHAR(8),
	result TEXT,
	error TEXT,
	hash VARCHAR(64) NOT NULL,
	CONSTRAINT pk_audit PRIMARY KEY (number),
	CONSTRAINT ck_audit_outcome CHECK (outcome IN ('done', 'failed')),
	CONSTRAINT ck_audit_arguments CHECK (arguments IS NOT NULL OR outcome IS NOT NULL)
)
--
CREATE INDEX ix_audit_call ON audit (call)
--
CREATE TABLE idempotency_keys (
	digest VARCHAR(64) NOT NULL,
	request VARCHAR(64) NOT NULL,
	created_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	status INTEGER,
	location VARCHAR(500),
	body TEXT,
	projects TEXT DEFAULT '*' NOT NULL,
	CONSTRAINT pk_idempotency_keys PRIMARY KEY (digest),
	CONSTRAINT ck_idempotency_keys_answer CHECK ((status IS NULL) = (body IS NULL))
)
--
CREATE INDEX ix_idempotency_keys_created ON idempotency_keys (created_at)
--
CREATE TABLE operations (
	id VARCHAR(32) NOT NULL,
	name VARCHAR(50) NOT NULL,
	"by" VARCHAR(255) NOT NULL,
	projects TEXT NOT NULL,
	"key" VARCHAR(64),
	began_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	lease_until DOUBLE NOT NULL,
	ended_at DOUBLE,
	status INTEGER,
	location VARCHAR(500),
	body TEXT,
	CONSTRAINT pk_operations PRIMARY KEY (id),
	CONSTRAINT ck_operations_answer CHECK ((status IS NULL) = (ended_at IS NULL) AND (status IS NULL) = (body IS NULL)),
	CONSTRAINT ck_operations_projects CHECK (projects <> ''),
	CONSTRAINT uq_operations_key UNIQUE ("key")
)
--
CREATE INDEX ix_operations_began ON operations (began_at)
--
CREATE TABLE uploads (
	id VARCHAR(32) NOT NULL,
	project VARCHAR(200) DEFAULT 'default' NOT NULL,
	digest VARCHAR(64) NOT NULL,
	bytes BIGINT DEFAULT '0' NOT NULL,
	"by" VARCHAR(255) NOT NULL,
	created_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	completed_at DOUBLE,
	CONSTRAINT pk_uploads PRIMARY KEY (id)
)
--
CREATE INDEX ix_uploads_digest ON uploads (digest)
--
CREATE INDEX ix_uploads_project ON uploads (project)
--
CREATE TABLE budgets (
	scope VARCHAR(8) NOT NULL,
	"key" VARCHAR(420) NOT NULL,
	node VARCHAR(200) DEFAULT '' NOT NULL,
	kind VARCHAR(10) NOT NULL,
	most DOUBLE NOT NULL,
	spent DOUBLE DEFAULT '0' NOT NULL,
	warned DOUBLE DEFAULT '0' NOT NULL,
	CONSTRAINT pk_budgets PRIMARY KEY (scope, "key", node, kind),
	CONSTRAINT ck_budgets_scope CHECK (scope IN ('session', 'project', 'sweep', 'token')),
	CONSTRAINT ck_budgets_kind CHECK (kind IN ('usd', 'tokens', 'node_runs'))
)
--
CREATE TABLE exporters (
	endpoint VARCHAR(500) NOT NULL,
	began_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	owner_id VARCHAR(32),
	lease_until DOUBLE,
	spans BIGINT DEFAULT '0' NOT NULL,
	rejected BIGINT DEFAULT '0' NOT NULL,
	sent_at DOUBLE,
	failing_since DOUBLE,
	error TEXT,
	CONSTRAINT pk_exporters PRIMARY KEY (endpoint),
	CONSTRAINT ck_exporters_failing CHECK ((failing_since IS NULL) = (error IS NULL))
)
--
CREATE TABLE looks (
	sweep_id VARCHAR(32) NOT NULL,
	project VARCHAR(200) DEFAULT 'default' NOT NULL,
	session_id VARCHAR(32) NOT NULL,
	workflow VARCHAR(200) NOT NULL,
	at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	final BOOLEAN DEFAULT 0 NOT NULL,
	cases BIGINT NOT NULL,
	sketch BLOB NOT NULL,
	baseline VARCHAR(16) NOT NULL,
	combinations JSON NOT NULL,
	metrics JSON,
	claims JSON DEFAULT '[]' NOT NULL,
	extended_id VARCHAR(32),
	CONSTRAINT pk_looks PRIMARY KEY (sweep_id)
)
--
CREATE INDEX ix_looks_workflow ON looks (workflow, project, at)
--
CREATE TABLE sessions (
	id VARCHAR(32) NOT NULL,
	name VARCHAR(200) NOT NULL,
	quota JSON,
	owner VARCHAR(200),
	metadata JSON,
	project VARCHAR(200) DEFAULT 'default' NOT NULL,
	archived_at DOUBLE,
	deleted_usd DOUBLE DEFAULT '0' NOT NULL,
	created_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	CONSTRAINT pk_sessions PRIMARY KEY (id),
	CONSTRAINT uq_sessions_name UNIQUE (name)
)
--
CREATE INDEX ix_sessions_project ON sessions (project)
--
CREATE TABLE runners (
	id VARCHAR(32) NOT NULL,
	host VARCHAR(255) NOT NULL,
	boot VARCHAR(64) NOT NULL,
	pid INTEGER NOT NULL,
	process_started_at DOUBLE NOT NULL,
	created_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	session_id VARCHAR(32),
	slots INTEGER DEFAULT '0' NOT NULL,
	seen_at DOUBLE,
	ended_at DOUBLE,
	worker VARCHAR(255),
	pool VARCHAR(16),
	queues JSON,
	version VARCHAR(40),
	clock_s DOUBLE,
	refused JSON,
	CONSTRAINT pk_runners PRIMARY KEY (id)
)
--
CREATE INDEX ix_runners_session_id ON runners (session_id)
--
CREATE TABLE workflows (
	id VARCHAR(64) NOT NULL,
	name VARCHAR(200) NOT NULL,
	version VARCHAR(200) NOT NULL,
	graph JSON NOT NULL,
	CONSTRAINT pk_workflows PRIMARY KEY (id)
)
--
CREATE TABLE limited_nodes (
	workflow VARCHAR(200) NOT NULL,
	node VARCHAR(200) NOT NULL,
	next_at DOUBLE DEFAULT '0' NOT NULL,
	CONSTRAINT pk_limited_nodes PRIMARY KEY (workflow, node)
)
--
CREATE TABLE log_ids (
	last INTEGER NOT NULL,
	CONSTRAINT pk_log_ids PRIMARY KEY (last)
)
--
CREATE TABLE events (
	id INTEGER NOT NULL,
	"transaction" BIGINT DEFAULT 0 NOT NULL,
	session_id VARCHAR(32) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	execution_id VARCHAR(32),
	kind VARCHAR(40) NOT NULL,
	severity VARCHAR(8) NOT NULL,
	at DOUBLE NOT NULL,
	data JSON NOT NULL,
	CONSTRAINT pk_events PRIMARY KEY (id),
	CONSTRAINT ck_events_severity CHECK (severity IN ('debug', 'info', 'warning', 'error'))
)
--
CREATE INDEX ix_events_sweep_id_transaction_id ON events (sweep_id, "transaction", id)
--
CREATE INDEX ix_events_alerting ON events (sweep_id, id) WHERE execution_id IS NULL OR kind IN ('approval.asked', 'execution.stalled')
--
CREATE TABLE publications (
	kind VARCHAR(12) NOT NULL,
	name VARCHAR(500) NOT NULL,
	path VARCHAR(500) NOT NULL,
	digest VARCHAR(64),
	description TEXT,
	published_at DOUBLE,
	published_by VARCHAR(255),
	error TEXT,
	failed_at DOUBLE,
	failed_by VARCHAR(255),
	CONSTRAINT pk_publications PRIMARY KEY (kind, name),
	CONSTRAINT ck_publications_kind CHECK (kind IN ('workflow', 'evaluator')),
	CONSTRAINT ck_publications_content CHECK (description IS NOT NULL OR error IS NOT NULL)
)
--
CREATE TABLE files (
	session_id VARCHAR(32) NOT NULL,
	digest VARCHAR(64) NOT NULL,
	size BIGINT NOT NULL,
	CONSTRAINT pk_files PRIMARY KEY (session_id, digest),
	CONSTRAINT fk_files_session_id FOREIGN KEY(session_id) REFERENCES sessions (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_files_digest ON files (digest)
--
CREATE TABLE thread_checkpoints (
	session_id VARCHAR(32) NOT NULL,
	thread_id TEXT NOT NULL,
	namespace TEXT NOT NULL,
	id TEXT NOT NULL,
	parent_id TEXT,
	run_id TEXT,
	state JSON NOT NULL,
	document TEXT NOT NULL,
	metadata JSON NOT NULL,
	created_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	CONSTRAINT pk_thread_checkpoints PRIMARY KEY (session_id, thread_id, namespace, id),
	CONSTRAINT fk_thread_checkpoints_session_id FOREIGN KEY(session_id) REFERENCES sessions (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_thread_checkpoints_run_id ON thread_checkpoints (run_id) WHERE run_id IS NOT NULL
--
CREATE TABLE members (
	team VARCHAR(200) NOT NULL,
	user VARCHAR(255) NOT NULL,
	CONSTRAINT pk_members PRIMARY KEY (team, user),
	CONSTRAINT fk_members_team FOREIGN KEY(team) REFERENCES teams (name) ON DELETE CASCADE,
	CONSTRAINT fk_members_user FOREIGN KEY(user) REFERENCES users (name) ON DELETE CASCADE
)
--
CREATE INDEX ix_members_user ON members (user)
--
CREATE TABLE upload_parts (
	upload_id VARCHAR(32) NOT NULL,
	number INTEGER NOT NULL,
	content BLOB NOT NULL,
	CONSTRAINT pk_upload_parts PRIMARY KEY (upload_id, number),
	CONSTRAINT fk_upload_parts_upload_id FOREIGN KEY(upload_id) REFERENCES uploads (id) ON DELETE CASCADE
)
--
CREATE TABLE reservations (
	id VARCHAR(32) NOT NULL,
	scope VARCHAR(8) NOT NULL,
	"key" VARCHAR(420) NOT NULL,
	node VARCHAR(200) DEFAULT '' NOT NULL,
	kind VARCHAR(10) NOT NULL,
	amount DOUBLE NOT NULL,
	alone BOOLEAN NOT NULL,
	execution_id VARCHAR(32) NOT NULL,
	runner_id VARCHAR(32) NOT NULL,
	CONSTRAINT pk_reservations PRIMARY KEY (id, scope, "key", node, kind),
	CONSTRAINT fk_reservations_scope FOREIGN KEY(scope, "key", node, kind) REFERENCES budgets (scope, "key", node, kind) ON DELETE CASCADE
)
--
CREATE INDEX ix_reservations_runner_id ON reservations (runner_id)
--
CREATE TABLE sweeps (
	id VARCHAR(32) NOT NULL,
	session_id VARCHAR(32) NOT NULL,
	workflow_id VARCHAR(64) NOT NULL,
	name VARCHAR(200) NOT NULL,
	project VARCHAR(200) DEFAULT 'default' NOT NULL,
	token VARCHAR(64),
	status VARCHAR(16) NOT NULL,
	reason TEXT,
	runner_id VARCHAR(32),
	queued BOOLEAN DEFAULT 0 NOT NULL,
	running_since DOUBLE,
	spec JSON NOT NULL,
	fingerprints JSON NOT NULL,
	kind VARCHAR(8) DEFAULT 'sweep' NOT NULL,
	breakpoints JSON,
	notify JSON,
	cells BIGINT NOT NULL,
	priority INTEGER DEFAULT '0' NOT NULL,
	pinned BOOLEAN DEFAULT 0 NOT NULL,
	collected_usd DOUBLE DEFAULT '0' NOT NULL,
	collected_node_runs BIGINT DEFAULT '0' NOT NULL,
	created_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	started_at DOUBLE,
	finished_at DOUBLE,
	root_s DOUBLE,
	CONSTRAINT pk_sweeps PRIMARY KEY (id),
	CONSTRAINT ck_sweeps_status CHECK (status IN ('submitting', 'pending', 'running', 'paused', 'completed', 'failed', 'cancelled', 'deleting')),
	CONSTRAINT fk_sweeps_session_id FOREIGN KEY(session_id) REFERENCES sessions (id) ON DELETE CASCADE,
	CONSTRAINT fk_sweeps_workflow_id FOREIGN KEY(workflow_id) REFERENCES workflows (id)
)
--
CREATE INDEX ix_sweeps_project ON sweeps (project, created_at, id)
--
CREATE INDEX ix_sweeps_hidden ON sweeps (status) WHERE status IN ('submitting', 'deleting')
--
CREATE INDEX ix_sweeps_notify ON sweeps (id) WHERE notify IS NOT NULL
--
CREATE INDEX ix_sweeps_session_id ON sweeps (session_id)
--
CREATE INDEX ix_sweeps_name ON sweeps (name)
--
CREATE INDEX ix_sweeps_open ON sweeps (status, priority) WHERE queued AND status IN ('pending', 'running')
--
CREATE INDEX ix_sweeps_workflow_id ON sweeps (workflow_id)
--
CREATE TABLE permits (
	workflow VARCHAR(200) NOT NULL,
	node VARCHAR(200) NOT NULL,
	runner_id VARCHAR(32) NOT NULL,
	held INTEGER NOT NULL,
	CONSTRAINT pk_permits PRIMARY KEY (workflow, node, runner_id),
	CONSTRAINT fk_permits_runner_id FOREIGN KEY(runner_id) REFERENCES runners (id) ON DELETE CASCADE
)
--
CREATE TABLE session_memory (
	runner_id VARCHAR(32) NOT NULL,
	session_id VARCHAR(32) NOT NULL,
	used BIGINT NOT NULL,
	largest BIGINT NOT NULL,
	measured_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	CONSTRAINT pk_session_memory PRIMARY KEY (runner_id, session_id),
	CONSTRAINT ck_session_memory_sizes CHECK (used >= 0 AND largest >= 0),
	CONSTRAINT fk_session_memory_runner_id FOREIGN KEY(runner_id) REFERENCES runners (id) ON DELETE CASCADE,
	CONSTRAINT fk_session_memory_session_id FOREIGN KEY(session_id) REFERENCES sessions (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_session_memory_session_id ON session_memory (session_id)
--
CREATE TABLE schedules (
	id VARCHAR(32) NOT NULL,
	session_id VARCHAR(32) NOT NULL,
	name VARCHAR(200) NOT NULL,
	status VARCHAR(16) NOT NULL,
	file TEXT NOT NULL,
	folder TEXT NOT NULL,
	cron VARCHAR(200) NOT NULL,
	tz VARCHAR(100) NOT NULL,
	missed VARCHAR(8) NOT NULL,
	queued BOOLEAN NOT NULL,
	baseline VARCHAR(200),
	margin JSON NOT NULL,
	notify JSON NOT NULL,
	next_at DOUBLE,
	created_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	CONSTRAINT pk_schedules PRIMARY KEY (id),
	CONSTRAINT ck_schedules_status CHECK (status IN ('active', 'paused')),
	CONSTRAINT ck_schedules_missed CHECK (missed IN ('skip', 'once')),
	CONSTRAINT fk_schedules_session_id FOREIGN KEY(session_id) REFERENCES sessions (id) ON DELETE CASCADE,
	CONSTRAINT uq_schedules_name UNIQUE (name)
)
--
CREATE INDEX ix_schedules_next_at ON schedules (next_at) WHERE status = 'active'
--
CREATE INDEX ix_schedules_session_id ON schedules (session_id)
--
CREATE TABLE executions (
	id VARCHAR(32) NOT NULL,
	session_id VARCHAR(32) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	parent_id VARCHAR(32),
	origin VARCHAR(16) NOT NULL,
	case_number INTEGER NOT NULL,
	repeat INTEGER NOT NULL,
	combinations JSON NOT NULL,
	status VARCHAR(16) NOT NULL,
	reason TEXT,
	head_id VARCHAR(32),
	failure JSON,
	owner_id VARCHAR(32),
	token BIGINT DEFAULT '0' NOT NULL,
	lease_until DOUBLE,
	kills INTEGER DEFAULT '0' NOT NULL,
	losses INTEGER DEFAULT '0' NOT NULL,
	queue VARCHAR(100),
	choices JSON,
	edited BOOLEAN DEFAULT 0 NOT NULL,
	asked JSON,
	passed_id VARCHAR(32),
	stalled_at DOUBLE,
	"deferred" JSON,
	created_at DOUBLE NOT NULL,
	finished_at DOUBLE,
	ended_transaction BIGINT,
	ended_event BIGINT,
	task_id VARCHAR(32),
	task_token BIGINT,
	published_at DOUBLE,
	children INTEGER,
	CONSTRAINT pk_executions PRIMARY KEY (id),
	CONSTRAINT ck_executions_status CHECK (status IN ('pending', 'running', 'forked', 'waiting', 'paused', 'completed', 'failed', 'cancelled')),
	CONSTRAINT ck_executions_origin CHECK (origin IN ('root', 'fork', 'retry', 'manual')),
	CONSTRAINT ck_executions_owner CHECK ((status = 'running') = (owner_id IS NOT NULL)),
	CONSTRAINT fk_executions_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_executions_open ON executions (sweep_id, status, id) WHERE status IN ('pending', 'running', 'waiting', 'paused')
--
CREATE INDEX ix_executions_deferred ON executions (sweep_id) WHERE deferred IS NOT NULL
--
CREATE INDEX ix_executions_begun ON executions (sweep_id, id) WHERE status = 'pending' AND head_id IS NOT NULL
--
CREATE INDEX ix_executions_owner_id ON executions (owner_id) WHERE owner_id IS NOT NULL
--
CREATE INDEX ix_executions_published ON executions (task_id) WHERE status = 'pending' AND task_token = token
--
CREATE INDEX ix_executions_ended ON executions (sweep_id, ended_transaction, ended_event) WHERE ended_event IS NOT NULL
--
CREATE INDEX ix_executions_case ON executions (sweep_id, case_number, repeat)
--
CREATE TRIGGER execution_completes BEFORE UPDATE OF status ON executions WHEN NEW.status = 'completed' AND OLD.status <> 'completed'
        BEGIN
            SELECT raise(ABORT, 'a completed execution has next nodes or a running node run at its head')
            WHERE EXISTS (
                SELECT 1 FROM checkpoints WHERE id = NEW.head_id AND json_array_length(position, '$.next') > 0
            ) OR EXISTS (SELECT 1 FROM node_runs WHERE checkpoint_id = NEW.head_id AND status = 'running');
        END
--
CREATE TRIGGER execution_is_born_completed BEFORE INSERT ON executions WHEN NEW.status = 'completed'
        BEGIN
            SELECT raise(ABORT, 'a completed execution has next nodes or a running node run at its head')
            WHERE EXISTS (
                SELECT 1 FROM checkpoints WHERE id = NEW.head_id AND json_array_length(position, '$.next') > 0
            ) OR EXISTS (SELECT 1 FROM node_runs WHERE checkpoint_id = NEW.head_id AND status = 'running');
        END
--
CREATE TABLE working (
	runner_id VARCHAR(32) NOT NULL,
	slot INTEGER NOT NULL,
	session_id VARCHAR(32) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	execution_id VARCHAR(32) NOT NULL,
	since DOUBLE NOT NULL,
	CONSTRAINT pk_working PRIMARY KEY (runner_id, slot),
	CONSTRAINT fk_working_runner_id FOREIGN KEY(runner_id) REFERENCES runners (id) ON DELETE CASCADE,
	CONSTRAINT fk_working_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_working_session_id ON working (session_id)
--
CREATE INDEX ix_working_sweep_id ON working (sweep_id)
--
CREATE TABLE approvals (
	id VARCHAR(32) NOT NULL,
	session_id VARCHAR(32) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	checkpoint_id VARCHAR(32) NOT NULL,
	"key" VARCHAR(64) NOT NULL,
	kind VARCHAR(8) NOT NULL,
	node VARCHAR(200) NOT NULL,
	number INTEGER NOT NULL,
	question TEXT NOT NULL,
	options JSON,
	context TEXT,
	"default" JSON,
	status VARCHAR(12) NOT NULL,
	answer JSON,
	answered_by VARCHAR(255),
	asked_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	expires_at DOUBLE,
	answered_at DOUBLE,
	CONSTRAINT pk_approvals PRIMARY KEY (id),
	CONSTRAINT uq_approvals_checkpoint_id_key UNIQUE (checkpoint_id, "key"),
	CONSTRAINT ck_approvals_kind CHECK (kind IN ('ask', 'before', 'after', 'error', 'action')),
	CONSTRAINT ck_approvals_status CHECK (status IN ('open', 'answered', 'expired', 'withdrawn')),
	CONSTRAINT ck_approvals_answer CHECK ((status IN ('answered', 'expired')) = (answer IS NOT NULL)),
	CONSTRAINT fk_approvals_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_approvals_sweep_id ON approvals (sweep_id)
--
CREATE INDEX ix_approvals_open ON approvals (expires_at) WHERE status = 'open'
--
CREATE TABLE scorings (
	id VARCHAR(32) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	evaluators JSON NOT NULL,
	queue VARCHAR(200) NOT NULL,
	"by" VARCHAR(255) NOT NULL,
	asked_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	status VARCHAR(10) DEFAULT 'pending' NOT NULL,
	owner_id VARCHAR(32),
	lease_until DOUBLE,
	token INTEGER DEFAULT '0' NOT NULL,
	scores BIGINT DEFAULT '0' NOT NULL,
	unjudged BIGINT DEFAULT '0' NOT NULL,
	reason TEXT,
	ended_at DOUBLE,
	published_at DOUBLE,
	CONSTRAINT pk_scorings PRIMARY KEY (id),
	CONSTRAINT ck_scorings_status CHECK (status IN ('pending', 'running', 'succeeded', 'failed', 'cancelled')),
	CONSTRAINT ck_scorings_owner CHECK ((status = 'running') = (owner_id IS NOT NULL)),
	CONSTRAINT ck_scorings_lease CHECK ((owner_id IS NULL) = (lease_until IS NULL)),
	CONSTRAINT fk_scorings_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_scorings_open ON scorings (queue) WHERE status IN ('pending', 'running')
--
CREATE INDEX ix_scorings_sweep_id ON scorings (sweep_id)
--
CREATE TABLE alerts (
	event_id BIGINT NOT NULL,
	target INTEGER NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	sent_at DOUBLE,
	tries INTEGER DEFAULT '0' NOT NULL,
	lease_until DOUBLE,
	error TEXT,
	CONSTRAINT pk_alerts PRIMARY KEY (event_id, target),
	CONSTRAINT fk_alerts_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_alerts_sweep_id ON alerts (sweep_id)
--
CREATE INDEX ix_alerts_open ON alerts (sweep_id) WHERE sent_at IS NULL
--
CREATE TABLE exports (
	endpoint VARCHAR(500) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	"transaction" BIGINT NOT NULL,
	event BIGINT NOT NULL,
	CONSTRAINT pk_exports PRIMARY KEY (endpoint, sweep_id),
	CONSTRAINT fk_exports_endpoint FOREIGN KEY(endpoint) REFERENCES exporters (endpoint) ON DELETE CASCADE,
	CONSTRAINT fk_exports_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_exports_sweep_id ON exports (sweep_id)
--
CREATE TABLE cells (
	sweep_id VARCHAR(32) NOT NULL,
	case_number INTEGER NOT NULL,
	repeat INTEGER NOT NULL,
	combination INTEGER NOT NULL,
	status VARCHAR(16) NOT NULL,
	execution_id VARCHAR(32),
	elapsed_s DOUBLE,
	usd DOUBLE,
	tokens_in BIGINT,
	tokens_out BIGINT,
	node_runs BIGINT,
	failure JSON,
	edited BOOLEAN DEFAULT 0 NOT NULL,
	finished_at DOUBLE,
	CONSTRAINT pk_cells PRIMARY KEY (sweep_id, case_number, repeat, combination),
	CONSTRAINT ck_cells_status CHECK (status IN ('pending', 'running', 'waiting', 'succeeded', 'failed', 'cancelled', 'skipped', 'set_aside')),
	CONSTRAINT fk_cells_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE TABLE scores (
	sweep_id VARCHAR(32) NOT NULL,
	metric VARCHAR(200) NOT NULL,
	case_number INTEGER NOT NULL,
	repeat INTEGER NOT NULL,
	combination INTEGER NOT NULL,
	value DOUBLE,
	error TEXT,
	observed TEXT,
	version VARCHAR(200),
	reason TEXT,
	CONSTRAINT pk_scores PRIMARY KEY (sweep_id, metric, case_number, repeat, combination),
	CONSTRAINT fk_scores_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE TABLE metrics (
	sweep_id VARCHAR(32) NOT NULL,
	name VARCHAR(200) NOT NULL,
	number INTEGER NOT NULL,
	better VARCHAR(8) NOT NULL,
	declared BOOLEAN DEFAULT 1 NOT NULL,
	by_median BOOLEAN DEFAULT 0 NOT NULL,
	low DOUBLE,
	high DOUBLE,
	on_failure VARCHAR(32),
	figure VARCHAR(32),
	CONSTRAINT pk_metrics PRIMARY KEY (sweep_id, name),
	CONSTRAINT ck_metrics_better CHECK (better IN ('higher', 'lower')),
	CONSTRAINT fk_metrics_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE TABLE labels (
	sweep_id VARCHAR(32) NOT NULL,
	metric VARCHAR(200) NOT NULL,
	case_number INTEGER NOT NULL,
	repeat INTEGER NOT NULL,
	combination INTEGER NOT NULL,
	rater VARCHAR(255) NOT NULL,
	value DOUBLE NOT NULL,
	asked VARCHAR(16) NOT NULL,
	probability DOUBLE,
	at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	CONSTRAINT pk_labels PRIMARY KEY (sweep_id, metric, case_number, repeat, combination, rater),
	CONSTRAINT ck_labels_asked CHECK (asked IN ('random', 'disagreement')),
	CONSTRAINT fk_labels_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE TABLE comments (
	sweep_id VARCHAR(32) NOT NULL,
	number INTEGER NOT NULL,
	case_number INTEGER NOT NULL,
	repeat INTEGER NOT NULL,
	combination INTEGER NOT NULL,
	"by" VARCHAR(255) NOT NULL,
	text TEXT NOT NULL,
	at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	CONSTRAINT pk_comments PRIMARY KEY (sweep_id, number),
	CONSTRAINT fk_comments_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_comments_cell ON comments (sweep_id, case_number)
--
CREATE TABLE tallies (
	sweep_id VARCHAR(32) NOT NULL,
	metric VARCHAR(200) NOT NULL,
	combination INTEGER NOT NULL,
	n BIGINT NOT NULL,
	total DOUBLE NOT NULL,
	CONSTRAINT pk_tallies PRIMARY KEY (sweep_id, metric, combination),
	CONSTRAINT fk_tallies_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE TABLE matrices (
	sweep_id VARCHAR(32) NOT NULL,
	"transaction" BIGINT DEFAULT '-1' NOT NULL,
	event_id BIGINT DEFAULT '0' NOT NULL,
	tallied_at DOUBLE,
	document JSON,
	frozen_at DOUBLE,
	cells JSON,
	CONSTRAINT pk_matrices PRIMARY KEY (sweep_id),
	CONSTRAINT fk_matrices_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE TABLE baselines (
	session_id VARCHAR(32) NOT NULL,
	name VARCHAR(200) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	set_at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	noise_floor JSON,
	reference_id VARCHAR(32),
	nights JSON,
	CONSTRAINT pk_baselines PRIMARY KEY (session_id, name),
	CONSTRAINT fk_baselines_session_id FOREIGN KEY(session_id) REFERENCES sessions (id) ON DELETE CASCADE,
	CONSTRAINT fk_baselines_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id)
)
--
CREATE INDEX ix_baselines_reference_id ON baselines (reference_id)
--
CREATE INDEX ix_baselines_sweep_id ON baselines (sweep_id)
--
CREATE TABLE pooled (
	pool_id VARCHAR(32) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	number INTEGER NOT NULL,
	CONSTRAINT pk_pooled PRIMARY KEY (pool_id, sweep_id),
	CONSTRAINT fk_pooled_pool_id FOREIGN KEY(pool_id) REFERENCES sweeps (id) ON DELETE CASCADE,
	CONSTRAINT fk_pooled_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id)
)
--
CREATE INDEX ix_pooled_sweep_id ON pooled (sweep_id)
--
CREATE TABLE cases (
	sweep_id VARCHAR(32) NOT NULL,
	number INTEGER NOT NULL,
	id TEXT NOT NULL,
	input JSON NOT NULL,
	expected TEXT,
	tags JSON NOT NULL,
	workspace VARCHAR(64),
	cluster TEXT,
	erased_at DOUBLE,
	erased_by VARCHAR(255),
	CONSTRAINT pk_cases PRIMARY KEY (sweep_id, number),
	CONSTRAINT uq_cases_sweep_id_id UNIQUE (sweep_id, id),
	CONSTRAINT fk_cases_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE TABLE combinations (
	sweep_id VARCHAR(32) NOT NULL,
	number INTEGER NOT NULL,
	choices JSON NOT NULL,
	stopped JSON,
	CONSTRAINT pk_combinations PRIMARY KEY (sweep_id, number),
	CONSTRAINT fk_combinations_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_combinations_stopped ON combinations (sweep_id) WHERE stopped IS NOT NULL
--
CREATE TABLE fires (
	schedule_id VARCHAR(32) NOT NULL,
	fire_at DOUBLE NOT NULL,
	status VARCHAR(16) NOT NULL,
	manual BOOLEAN DEFAULT 0 NOT NULL,
	token BIGINT DEFAULT '0' NOT NULL,
	lease_until DOUBLE,
	tries INTEGER DEFAULT '0' NOT NULL,
	sweep_id VARCHAR(32),
	baseline_id VARCHAR(32),
	verdict VARCHAR(16),
	why JSON,
	notified_at DOUBLE,
	notify_tries INTEGER DEFAULT '0' NOT NULL,
	notify_error TEXT,
	started_at DOUBLE,
	finished_at DOUBLE,
	CONSTRAINT pk_fires PRIMARY KEY (schedule_id, fire_at),
	CONSTRAINT ck_fires_status CHECK (status IN ('due', 'starting', 'running', 'judged', 'failed')),
	CONSTRAINT ck_fires_verdict CHECK (verdict IN ('better', 'same', 'not worse', 'unclear', 'worse', 'cannot tell', 'failed')),
	CONSTRAINT fk_fires_schedule_id FOREIGN KEY(schedule_id) REFERENCES schedules (id) ON DELETE CASCADE,
	CONSTRAINT uq_fires_sweep_id UNIQUE (sweep_id)
)
--
CREATE INDEX ix_fires_open ON fires (status) WHERE status IN ('due', 'starting', 'running') OR lease_until IS NOT NULL
--
CREATE TABLE checkpoints (
	id VARCHAR(32) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	execution_id VARCHAR(32) NOT NULL,
	parent_id VARCHAR(32),
	position JSON NOT NULL,
	state JSON NOT NULL,
	writers JSON NOT NULL,
	workspace VARCHAR(64),
	totals JSON NOT NULL,
	"trigger" VARCHAR(16) NOT NULL,
	name VARCHAR(200),
	inside JSON,
	pinned BOOLEAN DEFAULT 0 NOT NULL,
	created_at DOUBLE NOT NULL,
	created_transaction BIGINT,
	created_event BIGINT,
	CONSTRAINT pk_checkpoints PRIMARY KEY (id),
	CONSTRAINT ck_checkpoints_trigger CHECK (trigger IN ('step', 'time', 'manual', 'durable', 'error')),
	CONSTRAINT fk_checkpoints_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE,
	CONSTRAINT fk_checkpoints_execution_id FOREIGN KEY(execution_id) REFERENCES executions (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
)
--
CREATE INDEX ix_checkpoints_created ON checkpoints (sweep_id, created_transaction, created_event)
--
CREATE INDEX ix_checkpoints_inside ON checkpoints (parent_id) WHERE inside IS NOT NULL
--
CREATE INDEX ix_checkpoints_execution_id ON checkpoints (execution_id)
--
CREATE INDEX ix_checkpoints_pinned ON checkpoints (sweep_id) WHERE pinned
--
CREATE TABLE awaiting (
	approval_id VARCHAR(32) NOT NULL,
	execution_id VARCHAR(32) NOT NULL,
	CONSTRAINT pk_awaiting PRIMARY KEY (approval_id, execution_id),
	CONSTRAINT fk_awaiting_approval_id FOREIGN KEY(approval_id) REFERENCES approvals (id) ON DELETE CASCADE,
	CONSTRAINT fk_awaiting_execution_id FOREIGN KEY(execution_id) REFERENCES executions (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_awaiting_execution_id ON awaiting (execution_id)
--
CREATE TABLE rollbacks (
	id VARCHAR(32) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	execution_id VARCHAR(32) NOT NULL,
	from_id VARCHAR(32) NOT NULL,
	to_id VARCHAR(32) NOT NULL,
	head_id VARCHAR(32) NOT NULL,
	status VARCHAR(16) NOT NULL,
	nodes JSON NOT NULL,
	superseded JSON NOT NULL,
	"by" VARCHAR(255) NOT NULL,
	reason TEXT,
	at DOUBLE DEFAULT ((julianday('now') - 2440587.5) * 86400.0) NOT NULL,
	redone_at DOUBLE,
	CONSTRAINT pk_rollbacks PRIMARY KEY (id),
	CONSTRAINT fk_rollbacks_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE,
	CONSTRAINT fk_rollbacks_execution_id FOREIGN KEY(execution_id) REFERENCES executions (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_rollbacks_sweep_id ON rollbacks (sweep_id)
--
CREATE INDEX ix_rollbacks_execution_id ON rollbacks (execution_id)
--
CREATE TABLE decisions (
	checkpoint_id VARCHAR(32) NOT NULL,
	number INTEGER NOT NULL,
	node VARCHAR(200) NOT NULL,
	"to" VARCHAR(200) NOT NULL,
	"key" TEXT,
	why TEXT NOT NULL,
	tried JSON,
	CONSTRAINT pk_decisions PRIMARY KEY (checkpoint_id, number),
	CONSTRAINT fk_decisions_checkpoint_id FOREIGN KEY(checkpoint_id) REFERENCES checkpoints (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
)
--
CREATE TABLE node_runs (
	id VARCHAR(32) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	execution_id VARCHAR(32) NOT NULL,
	checkpoint_id VARCHAR(32) NOT NULL,
	task VARCHAR(300) NOT NULL,
	node VARCHAR(200) NOT NULL,
	variant VARCHAR(200) NOT NULL,
	visit INTEGER NOT NULL,
	status VARCHAR(16) NOT NULL,
	attempts INTEGER NOT NULL,
	cells INTEGER NOT NULL,
	fingerprint VARCHAR(64) NOT NULL,
	writes JSON,
	workspace VARCHAR(64),
	started_at DOUBLE NOT NULL,
	duration_s DOUBLE NOT NULL,
	usd DOUBLE NOT NULL,
	tokens_in BIGINT NOT NULL,
	tokens_out BIGINT NOT NULL,
	started_transaction BIGINT,
	started_event BIGINT,
	ended_transaction BIGINT,
	ended_event BIGINT,
	ended_at DOUBLE,
	replaces VARCHAR(200),
	begun_at DOUBLE,
	lag_s DOUBLE,
	stdout TEXT,
	stderr TEXT,
	CONSTRAINT pk_node_runs PRIMARY KEY (id),
	CONSTRAINT uq_node_runs_checkpoint_id_task_variant UNIQUE (checkpoint_id, task, variant),
	CONSTRAINT ck_node_runs_status CHECK (status IN ('running', 'succeeded', 'failed', 'skipped')),
	CONSTRAINT fk_node_runs_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE,
	CONSTRAINT fk_node_runs_checkpoint_id FOREIGN KEY(checkpoint_id) REFERENCES checkpoints (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
)
--
CREATE INDEX ix_node_runs_ended ON node_runs (sweep_id, ended_transaction, ended_event)
--
CREATE INDEX ix_node_runs_execution_id ON node_runs (execution_id)
--
CREATE INDEX ix_node_runs_started ON node_runs (sweep_id, started_transaction, started_event) WHERE started_event IS NOT NULL
--
CREATE TABLE attempts (
	node_run_id VARCHAR(32) NOT NULL,
	number INTEGER NOT NULL,
	status VARCHAR(16) NOT NULL,
	started_at DOUBLE NOT NULL,
	duration_s DOUBLE NOT NULL,
	usd DOUBLE NOT NULL,
	tokens_in BIGINT NOT NULL,
	tokens_out BIGINT NOT NULL,
	failure JSON,
	fingerprint VARCHAR(64) NOT NULL,
	stdout TEXT,
	stderr TEXT,
	CONSTRAINT pk_attempts PRIMARY KEY (node_run_id, number),
	CONSTRAINT ck_attempts_status CHECK (status IN ('succeeded', 'failed')),
	CONSTRAINT fk_attempts_node_run_id FOREIGN KEY(node_run_id) REFERENCES node_runs (id) ON DELETE CASCADE
)
--
CREATE TABLE calls (
	id VARCHAR(32) NOT NULL,
	node_run_id VARCHAR(32) NOT NULL,
	attempt INTEGER NOT NULL,
	model VARCHAR(200),
	tool VARCHAR(200),
	prompt TEXT,
	response TEXT,
	tokens_in BIGINT NOT NULL,
	tokens_out BIGINT NOT NULL,
	usd DOUBLE NOT NULL,
	duration_s DOUBLE,
	at DOUBLE NOT NULL,
	cached BIGINT,
	sweep_id VARCHAR(32),
	logged_transaction BIGINT,
	logged_event BIGINT,
	CONSTRAINT pk_calls PRIMARY KEY (id),
	CONSTRAINT fk_calls_node_run_id FOREIGN KEY(node_run_id) REFERENCES node_runs (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_calls_node_run_id ON calls (node_run_id)
--
CREATE INDEX ix_calls_logged ON calls (sweep_id, logged_transaction, logged_event)
--
CREATE TABLE invocations (
	node_run_id VARCHAR(32) NOT NULL,
	attempt INTEGER NOT NULL,
	number INTEGER NOT NULL,
	tool VARCHAR(200) NOT NULL,
	arguments TEXT NOT NULL,
	result TEXT,
	status VARCHAR(8) NOT NULL,
	error TEXT,
	at DOUBLE NOT NULL,
	duration_s DOUBLE NOT NULL,
	undone_at DOUBLE,
	version VARCHAR(200),
	sweep_id VARCHAR(32),
	logged_transaction BIGINT,
	logged_event BIGINT,
	CONSTRAINT pk_invocations PRIMARY KEY (node_run_id, attempt, number),
	CONSTRAINT ck_invocations_status CHECK (status IN ('done', 'failed', 'undone')),
	CONSTRAINT fk_invocations_node_run_id FOREIGN KEY(node_run_id) REFERENCES node_runs (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_invocations_logged ON invocations (sweep_id, logged_transaction, logged_event)
