CREATE TABLE values (
	digest VARCHAR(64) NOT NULL,
	data TEXT NOT NULL,
	CONSTRAINT pk_values PRIMARY KEY (digest)
)
--
COMMENT ON COLUMN values.data IS 'typed JSON'
--
CREATE TABLE thread_writes (
	session_id VARCHAR(32) NOT NULL,
	thread_id TEXT COLLATE "C" NOT NULL,
	namespace TEXT COLLATE "C" NOT NULL,
	checkpoint_id TEXT COLLATE "C" NOT NULL,
	task_id TEXT COLLATE "C" NOT NULL,
	number INTEGER NOT NULL,
	path TEXT COLLATE "C" NOT NULL,
	channel TEXT NOT NULL,
	digest VARCHAR(64),
	value TEXT,
	CONSTRAINT pk_thread_writes PRIMARY KEY (session_id, thread_id, namespace, checkpoint_id, task_id, number),
	CONSTRAINT ck_thread_writes_value CHECK ((digest IS NULL) <> (value IS NULL))
)
--
COMMENT ON COLUMN thread_writes.checkpoint_id IS 'that they were made from'
--
COMMENT ON COLUMN thread_writes.number IS 'negative: may be written again'
--
COMMENT ON COLUMN thread_writes.path IS 'of the task: what orders writes of one step'
--
COMMENT ON COLUMN thread_writes.digest IS 'of its value'
--
COMMENT ON COLUMN thread_writes.value IS 'the value itself, where it is short: typed JSON'
--
CREATE TABLE projects (
	name VARCHAR(200) NOT NULL,
	created_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	created_by VARCHAR(255) NOT NULL,
	retention JSONB,
	CONSTRAINT pk_projects PRIMARY KEY (name)
)
--
COMMENT ON COLUMN projects.retention IS 'of finished sweeps, where the policy does not hold'
--
CREATE TABLE tokens (
	id VARCHAR(32) NOT NULL,
	name VARCHAR(64) NOT NULL,
	digest VARCHAR(64) NOT NULL,
	scopes JSONB NOT NULL,
	created_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	created_by VARCHAR(200) NOT NULL,
	expires_at DOUBLE PRECISION,
	used_at DOUBLE PRECISION,
	revoked_at DOUBLE PRECISION,
	project VARCHAR(200),
	"user" VARCHAR(255),
	CONSTRAINT pk_tokens PRIMARY KEY (id),
	CONSTRAINT uq_tokens_name UNIQUE (name),
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
)
--
CREATE INDEX ix_tokens_project ON tokens (project)
--
COMMENT ON COLUMN tokens.name IS 'also of those revoked: events name it'
--
COMMENT ON COLUMN tokens.digest IS 'SHA-256 of the token, which is not kept'
--
COMMENT ON COLUMN tokens.scopes IS 'what its holder may do, by name'
--
COMMENT ON COLUMN tokens.used_at IS 'when it was last used, to the minute'
--
COMMENT ON COLUMN tokens.project IS 'all that it is good for; null: all projects'
--
COMMENT ON COLUMN tokens."user" IS 'whose roles bound what it is good for; null: nobody''s'
--
CREATE TABLE users (
	name VARCHAR(255) NOT NULL,
	created_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	created_by VARCHAR(255) NOT NULL,
	CONSTRAINT pk_users PRIMARY KEY (name)
)
--
CREATE TABLE teams (
	name VARCHAR(200) NOT NULL,
	created_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	created_by VARCHAR(255) NOT NULL,
	CONSTRAINT pk_teams PRIMARY KEY (name)
)
--
CREATE TABLE access (
	project VARCHAR(200) NOT NULL,
	"user" VARCHAR(255) DEFAULT '' NOT NULL,
	team VARCHAR(200) DEFAULT '' NOT NULL,
	role VARCHAR(10) NOT NULL,
	created_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	created_by VARCHAR(255) NOT NULL,
	CONSTRAINT pk_access PRIMARY KEY (project, "user", team),
	CONSTRAINT ck_access_holder CHECK (("user" = '') <> (team = '')),
	CONSTRAINT ck_access_role CHECK (role IN ('viewer', 'runner', 'approver', 'maintainer', 'admin'))
)
--
COMMENT ON COLUMN access.project IS 'empty: all projects'
--
CREATE TABLE sign_ins (
	id VARCHAR(32) NOT NULL,
	digest VARCHAR(64) NOT NULL,
	kind VARCHAR(8) NOT NULL,
	source VARCHAR(64) NOT NULL,
	name VARCHAR(200),
	scopes JSONB,
	address VARCHAR(64),
	created_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	used_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	expires_at DOUBLE PRECISION NOT NULL,
	CONSTRAINT pk_sign_ins PRIMARY KEY (id),
	CONSTRAINT ck_sign_ins_kind CHECK (kind IN ('operator', 'token', 'provider')),
	CONSTRAINT ck_sign_ins_name CHECK ((kind = 'provider') = (name IS NOT NULL AND scopes IS NOT NULL)),
	CONSTRAINT uq_sign_ins_digest UNIQUE (digest)
)
--
COMMENT ON COLUMN sign_ins.digest IS 'SHA-256 of the cookie, which is not kept'
--
COMMENT ON COLUMN sign_ins.source IS 'digest of their token, or of whom a provider knows'
--
COMMENT ON COLUMN sign_ins.name IS 'of whom a provider knows'
--
COMMENT ON COLUMN sign_ins.scopes IS 'what they may do'
--
COMMENT ON COLUMN sign_ins.address IS 'from where'
--
COMMENT ON COLUMN sign_ins.used_at IS 'to the minute'
--
CREATE TABLE audit (
	number BIGINT NOT NULL,
	at DOUBLE PRECISION NOT NULL,
	call VARCHAR(32) NOT NULL,
	by VARCHAR(255) NOT NULL,
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
COMMENT ON TABLE audit IS 'who changed what; rows are only added, but for the oldest, which may be pruned'
--
COMMENT ON COLUMN audit.number IS 'without gaps'
--
COMMENT ON COLUMN audit.call IS 'of the row that it began with and the one of its end'
--
COMMENT ON COLUMN audit.via IS 'command or route'
--
COMMENT ON COLUMN audit.address IS 'from where; null: this machine'
--
COMMENT ON COLUMN audit.token IS 'name of the token'
--
COMMENT ON COLUMN audit.arguments IS 'JSON; null in the second row of a call'
--
COMMENT ON COLUMN audit.outcome IS 'null: it has begun to change something'
--
COMMENT ON COLUMN audit.result IS 'JSON: what names it, such as an id'
--
COMMENT ON COLUMN audit.hash IS 'of this row and the hash of the one before'
--
CREATE TABLE idempotency_keys (
	digest VARCHAR(64) NOT NULL,
	request VARCHAR(64) NOT NULL,
	created_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
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
COMMENT ON COLUMN idempotency_keys.digest IS 'SHA-256 of who asks and the key'
--
COMMENT ON COLUMN idempotency_keys.request IS 'SHA-256 of what was asked for'
--
COMMENT ON COLUMN idempotency_keys.status IS 'of the answer; null until there is one'
--
COMMENT ON COLUMN idempotency_keys.body IS 'of the answer, JSON'
--
COMMENT ON COLUMN idempotency_keys.projects IS 'the projects that its answer may contain, in the form of wtb.projects'
--
CREATE TABLE operations (
	id VARCHAR(32) NOT NULL,
	name VARCHAR(50) NOT NULL,
	by VARCHAR(255) NOT NULL,
	projects TEXT NOT NULL,
	key VARCHAR(64),
	began_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	lease_until DOUBLE PRECISION NOT NULL,
	ended_at DOUBLE PRECISION,
	status INTEGER,
	location VARCHAR(500),
	body TEXT,
	CONSTRAINT pk_operations PRIMARY KEY (id),
	CONSTRAINT ck_operations_answer CHECK ((status IS NULL) = (ended_at IS NULL) AND (status IS NULL) = (body IS NULL)),
	CONSTRAINT ck_operations_projects CHECK (projects <> ''),
	CONSTRAINT uq_operations_key UNIQUE (key)
)
--
CREATE INDEX ix_operations_began ON operations (began_at)
--
COMMENT ON TABLE operations IS 'what takes longer than a request, with what came of it'
--
COMMENT ON COLUMN operations.name IS 'in the registry'
--
COMMENT ON COLUMN operations.projects IS 'the projects that it may contain, in the form of wtb.projects'
--
COMMENT ON COLUMN operations.key IS 'SHA-256 of who asked, of their Idempotency-Key and of what they asked'
--
COMMENT ON COLUMN operations.lease_until IS 'until then its server lives'
--
COMMENT ON COLUMN operations.status IS 'of the answer; null until there is one'
--
COMMENT ON COLUMN operations.body IS 'of the answer, JSON'
--
CREATE TABLE uploads (
	id VARCHAR(32) NOT NULL,
	project VARCHAR(200) DEFAULT 'default' NOT NULL,
	digest VARCHAR(64) NOT NULL,
	bytes BIGINT DEFAULT '0' NOT NULL,
	by VARCHAR(255) NOT NULL,
	created_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	completed_at DOUBLE PRECISION,
	CONSTRAINT pk_uploads PRIMARY KEY (id)
)
--
CREATE INDEX ix_uploads_digest ON uploads (digest)
--
CREATE INDEX ix_uploads_project ON uploads (project)
--
COMMENT ON TABLE uploads IS 'files that are sent before the sweeps that take their cases from them'
--
COMMENT ON COLUMN uploads.digest IS 'SHA-256 that its content has to have'
--
COMMENT ON COLUMN uploads.bytes IS 'of the parts that have come'
--
COMMENT ON COLUMN uploads.completed_at IS 'when all of it had arrived, and matched its digest'
--
CREATE TABLE budgets (
	scope VARCHAR(8) NOT NULL,
	key VARCHAR(420) NOT NULL,
	node VARCHAR(200) DEFAULT '' NOT NULL,
	kind VARCHAR(10) NOT NULL,
	most DOUBLE PRECISION NOT NULL,
	spent DOUBLE PRECISION DEFAULT '0' NOT NULL,
	warned DOUBLE PRECISION DEFAULT '0' NOT NULL,
	CONSTRAINT pk_budgets PRIMARY KEY (scope, key, node, kind),
	CONSTRAINT ck_budgets_scope CHECK (scope IN ('session', 'project', 'sweep', 'token')),
	CONSTRAINT ck_budgets_kind CHECK (kind IN ('usd', 'tokens', 'node_runs'))
)
--
COMMENT ON COLUMN budgets.key IS 'id of the session or sweep, name of the project or token'
--
COMMENT ON COLUMN budgets.node IS 'of a sweep; empty: all of it'
--
COMMENT ON COLUMN budgets.warned IS 'share of it that was warned of last'
--
CREATE TABLE exporters (
	endpoint VARCHAR(500) NOT NULL,
	began_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	owner_id VARCHAR(32),
	lease_until DOUBLE PRECISION,
	spans BIGINT DEFAULT '0' NOT NULL,
	rejected BIGINT DEFAULT '0' NOT NULL,
	sent_at DOUBLE PRECISION,
	failing_since DOUBLE PRECISION,
	error TEXT,
	CONSTRAINT pk_exporters PRIMARY KEY (endpoint),
	CONSTRAINT ck_exporters_failing CHECK ((failing_since IS NULL) = (error IS NULL))
)
--
COMMENT ON TABLE exporters IS 'collectors that are sent traces'
--
COMMENT ON COLUMN exporters.endpoint IS 'of a collector'
--
COMMENT ON COLUMN exporters.began_at IS 'sweeps that had ended are not sent'
--
COMMENT ON COLUMN exporters.owner_id IS 'the process that sends'
--
COMMENT ON COLUMN exporters.spans IS 'that were sent, those sent again included'
--
COMMENT ON COLUMN exporters.rejected IS 'those that it refused'
--
COMMENT ON COLUMN exporters.sent_at IS 'when it last took some'
--
COMMENT ON COLUMN exporters.error IS 'why it takes none'
--
CREATE TABLE looks (
	sweep_id VARCHAR(32) NOT NULL,
	project VARCHAR(200) DEFAULT 'default' NOT NULL,
	session_id VARCHAR(32) NOT NULL,
	workflow VARCHAR(200) NOT NULL,
	at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	final BOOLEAN DEFAULT false NOT NULL,
	cases BIGINT NOT NULL,
	sketch BYTEA NOT NULL,
	baseline VARCHAR(16) NOT NULL,
	combinations JSONB NOT NULL,
	metrics JSONB,
	claims JSONB DEFAULT '[]' NOT NULL,
	extended_id VARCHAR(32),
	CONSTRAINT pk_looks PRIMARY KEY (sweep_id)
)
--
CREATE INDEX ix_looks_workflow ON looks (workflow, project, at)
--
COMMENT ON TABLE looks IS 'what was tried over which cases; kept when sweeps are deleted'
--
COMMENT ON COLUMN looks.sweep_id IS 'the sweep, which may be deleted since'
--
COMMENT ON COLUMN looks.final IS 'over cases kept for the end'
--
COMMENT ON COLUMN looks.cases IS 'how many different ones'
--
COMMENT ON COLUMN looks.sketch IS 'the smallest digests of its cases'
--
COMMENT ON COLUMN looks.baseline IS 'key of the code that others are compared with'
--
COMMENT ON COLUMN looks.combinations IS 'keys of what others change'
--
COMMENT ON COLUMN looks.metrics IS 'that it scored, once it is deleted; until then its scores show them'
--
COMMENT ON COLUMN looks.claims IS '(metric, direction, key) of differences'
--
COMMENT ON COLUMN looks.extended_id IS 'the sweep that this look was before its extension'
--
CREATE TABLE sessions (
	id VARCHAR(32) NOT NULL,
	name VARCHAR(200) NOT NULL,
	quota JSONB,
	owner VARCHAR(200),
	metadata JSONB,
	project VARCHAR(200) DEFAULT 'default' NOT NULL,
	archived_at DOUBLE PRECISION,
	deleted_usd DOUBLE PRECISION DEFAULT '0' NOT NULL,
	created_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	CONSTRAINT pk_sessions PRIMARY KEY (id),
	CONSTRAINT uq_sessions_name UNIQUE (name)
)
--
CREATE INDEX ix_sessions_project ON sessions (project)
--
COMMENT ON COLUMN sessions.owner IS 'who is responsible for it'
--
COMMENT ON COLUMN sessions.metadata IS 'texts by name'
--
COMMENT ON COLUMN sessions.deleted_usd IS 'spent by sweeps deleted since'
--
CREATE TABLE runners (
	id VARCHAR(32) NOT NULL,
	host VARCHAR(255) NOT NULL,
	boot VARCHAR(64) NOT NULL,
	pid INTEGER NOT NULL,
	process_started_at DOUBLE PRECISION NOT NULL,
	created_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	session_id VARCHAR(32),
	slots INTEGER DEFAULT '0' NOT NULL,
	seen_at DOUBLE PRECISION,
	ended_at DOUBLE PRECISION,
	worker VARCHAR(255),
	pool VARCHAR(16),
	queues JSONB,
	version VARCHAR(40),
	clock_s DOUBLE PRECISION,
	refused JSONB,
	CONSTRAINT pk_runners PRIMARY KEY (id)
)
--
CREATE INDEX ix_runners_session_id ON runners (session_id)
--
COMMENT ON COLUMN runners.session_id IS 'whose slots it takes; null where it serves any session'
--
COMMENT ON COLUMN runners.slots IS 'node runs at a time'
--
COMMENT ON COLUMN runners.seen_at IS 'its last heartbeat'
--
COMMENT ON COLUMN runners.ended_at IS 'null while it runs, or where it died'
--
COMMENT ON COLUMN runners.worker IS 'name of the worker that it is a process of; null for `wtb run`'
--
COMMENT ON COLUMN runners.pool IS 'of the worker: prefork or threads'
--
COMMENT ON COLUMN runners.queues IS 'names of the queues that it takes executions from'
--
COMMENT ON COLUMN runners.clock_s IS 'how far its clock is ahead of the database''s, at its last heartbeat'
--
COMMENT ON COLUMN runners.refused IS 'ids of sweeps whose code it rejects; null if none'
--
CREATE TABLE workflows (
	id VARCHAR(64) NOT NULL,
	name VARCHAR(200) NOT NULL,
	version VARCHAR(200) NOT NULL,
	graph JSON NOT NULL,
	CONSTRAINT pk_workflows PRIMARY KEY (id)
)
--
COMMENT ON COLUMN workflows.id IS 'SHA-256 of the graph snapshot'
--
CREATE TABLE limited_nodes (
	workflow VARCHAR(200) NOT NULL,
	node VARCHAR(200) NOT NULL,
	next_at DOUBLE PRECISION DEFAULT '0' NOT NULL,
	CONSTRAINT pk_limited_nodes PRIMARY KEY (workflow, node)
)
--
COMMENT ON COLUMN limited_nodes.next_at IS 'when a node with a rate may start'
--
CREATE TABLE log_ids (
	last BIGINT NOT NULL,
	CONSTRAINT pk_log_ids PRIMARY KEY (last)
)
--
COMMENT ON TABLE log_ids IS 'the last id in the log, on SQLite; PostgreSQL has the sequence of events.id'
--
CREATE TABLE events (
	id BIGINT GENERATED BY DEFAULT AS IDENTITY,
	transaction BIGINT DEFAULT (pg_current_xact_id()::text::bigint) NOT NULL,
	session_id VARCHAR(32) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	execution_id VARCHAR(32),
	kind VARCHAR(40) NOT NULL,
	severity VARCHAR(8) NOT NULL,
	at DOUBLE PRECISION NOT NULL,
	data JSONB NOT NULL,
	CONSTRAINT pk_events PRIMARY KEY (id),
	CONSTRAINT ck_events_severity CHECK (severity IN ('debug', 'info', 'warning', 'error'))
)
--
CREATE INDEX ix_events_sweep_id_transaction_id ON events (sweep_id, transaction, id)
--
CREATE INDEX ix_events_alerting ON events (sweep_id, id) WHERE execution_id IS NULL OR kind IN ('approval.asked', 'execution.stalled')
--
CREATE TABLE publications (
	kind VARCHAR(12) NOT NULL,
	name VARCHAR(500) NOT NULL,
	path VARCHAR(500) NOT NULL,
	digest VARCHAR(64),
	description TEXT,
	published_at DOUBLE PRECISION,
	published_by VARCHAR(255),
	error TEXT,
	failed_at DOUBLE PRECISION,
	failed_by VARCHAR(255),
	CONSTRAINT pk_publications PRIMARY KEY (kind, name),
	CONSTRAINT ck_publications_kind CHECK (kind IN ('workflow', 'evaluator')),
	CONSTRAINT ck_publications_content CHECK (description IS NOT NULL OR error IS NOT NULL)
)
--
COMMENT ON COLUMN publications.name IS 'registered; of an evaluator its import path'
--
COMMENT ON COLUMN publications.path IS 'import path'
--
COMMENT ON COLUMN publications.digest IS 'SHA-256 of the description'
--
COMMENT ON COLUMN publications.description IS 'JSON, whose order counts; null where no worker could import it'
--
COMMENT ON COLUMN publications.published_by IS 'the worker that did'
--
COMMENT ON COLUMN publications.error IS 'why a worker cannot import it'
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
COMMENT ON COLUMN files.digest IS 'of a content or manifest that its snapshots refer to'
--
COMMENT ON COLUMN files.size IS 'bytes'
--
CREATE TABLE thread_checkpoints (
	session_id VARCHAR(32) NOT NULL,
	thread_id TEXT COLLATE "C" NOT NULL,
	namespace TEXT COLLATE "C" NOT NULL,
	id TEXT COLLATE "C" NOT NULL,
	parent_id TEXT COLLATE "C",
	run_id TEXT COLLATE "C",
	state JSONB NOT NULL,
	document TEXT NOT NULL,
	metadata JSONB NOT NULL,
	created_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	CONSTRAINT pk_thread_checkpoints PRIMARY KEY (session_id, thread_id, namespace, id),
	CONSTRAINT fk_thread_checkpoints_session_id FOREIGN KEY(session_id) REFERENCES sessions (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_thread_checkpoints_run_id ON thread_checkpoints (run_id) WHERE run_id IS NOT NULL
--
COMMENT ON COLUMN thread_checkpoints.namespace IS 'of a subgraph; empty: of the graph itself'
--
COMMENT ON COLUMN thread_checkpoints.state IS 'channel -> digest of its value'
--
COMMENT ON COLUMN thread_checkpoints.document IS 'typed JSON: rest of the checkpoint, and short values'
--
CREATE TABLE members (
	team VARCHAR(200) NOT NULL,
	"user" VARCHAR(255) NOT NULL,
	CONSTRAINT pk_members PRIMARY KEY (team, "user"),
	CONSTRAINT fk_members_team FOREIGN KEY(team) REFERENCES teams (name) ON DELETE CASCADE,
	CONSTRAINT fk_members_user FOREIGN KEY("user") REFERENCES users (name) ON DELETE CASCADE
)
--
CREATE INDEX ix_members_user ON members ("user")
--
CREATE TABLE upload_parts (
	upload_id VARCHAR(32) NOT NULL,
	number INTEGER NOT NULL,
	content BYTEA NOT NULL,
	CONSTRAINT pk_upload_parts PRIMARY KEY (upload_id, number),
	CONSTRAINT fk_upload_parts_upload_id FOREIGN KEY(upload_id) REFERENCES uploads (id) ON DELETE CASCADE
)
--
COMMENT ON COLUMN upload_parts.number IS 'from 0'
--
CREATE TABLE reservations (
	id VARCHAR(32) NOT NULL,
	scope VARCHAR(8) NOT NULL,
	key VARCHAR(420) NOT NULL,
	node VARCHAR(200) DEFAULT '' NOT NULL,
	kind VARCHAR(10) NOT NULL,
	amount DOUBLE PRECISION NOT NULL,
	alone BOOLEAN NOT NULL,
	execution_id VARCHAR(32) NOT NULL,
	runner_id VARCHAR(32) NOT NULL,
	CONSTRAINT pk_reservations PRIMARY KEY (id, scope, key, node, kind),
	CONSTRAINT fk_reservations_scope FOREIGN KEY(scope, key, node, kind) REFERENCES budgets (scope, key, node, kind) ON DELETE CASCADE
)
--
CREATE INDEX ix_reservations_runner_id ON reservations (runner_id)
--
COMMENT ON TABLE reservations IS 'what node runs that are under way may still spend of a budget'
--
COMMENT ON COLUMN reservations.id IS 'of an attempt of a node run'
--
COMMENT ON COLUMN reservations.alone IS 'its cost is unknown: no other starts beside it'
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
	queued BOOLEAN DEFAULT false NOT NULL,
	running_since DOUBLE PRECISION,
	spec JSON NOT NULL,
	fingerprints JSON NOT NULL,
	kind VARCHAR(8) DEFAULT 'sweep' NOT NULL,
	breakpoints JSONB,
	notify JSONB,
	cells BIGINT NOT NULL,
	priority INTEGER DEFAULT '0' NOT NULL,
	pinned BOOLEAN DEFAULT false NOT NULL,
	collected_usd DOUBLE PRECISION DEFAULT '0' NOT NULL,
	collected_node_runs BIGINT DEFAULT '0' NOT NULL,
	created_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	started_at DOUBLE PRECISION,
	finished_at DOUBLE PRECISION,
	root_s DOUBLE PRECISION,
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
COMMENT ON COLUMN sweeps.token IS 'by which it was submitted, and whose budget binds it'
--
COMMENT ON COLUMN sweeps.runner_id IS 'the process that runs it by itself, while it does'
--
COMMENT ON COLUMN sweeps.queued IS 'workers run it'
--
COMMENT ON COLUMN sweeps.running_since IS 'the time of its limit `wall` counts from here'
--
COMMENT ON COLUMN sweeps.spec IS 'the sweep as it was submitted, and where from'
--
COMMENT ON COLUMN sweeps.fingerprints IS 'node -> variant -> code fingerprint'
--
COMMENT ON COLUMN sweeps.kind IS 'sweep, or a single execution'
--
COMMENT ON COLUMN sweeps.breakpoints IS 'where executions pause, in words'
--
COMMENT ON COLUMN sweeps.notify IS 'notification targets and what each is sent; null if none'
--
COMMENT ON COLUMN sweeps.pinned IS 'retention keeps it'
--
COMMENT ON COLUMN sweeps.collected_usd IS 'of attempts collected since'
--
COMMENT ON COLUMN sweeps.root_s IS 'seconds that a root with its tree took a slot lately; null until measured'
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
COMMENT ON COLUMN permits.held IS 'node runs at a time, of a node with a limit'
--
CREATE TABLE session_memory (
	runner_id VARCHAR(32) NOT NULL,
	session_id VARCHAR(32) NOT NULL,
	used BIGINT NOT NULL,
	largest BIGINT NOT NULL,
	measured_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	CONSTRAINT pk_session_memory PRIMARY KEY (runner_id, session_id),
	CONSTRAINT ck_session_memory_sizes CHECK (used >= 0 AND largest >= 0),
	CONSTRAINT fk_session_memory_runner_id FOREIGN KEY(runner_id) REFERENCES runners (id) ON DELETE CASCADE,
	CONSTRAINT fk_session_memory_session_id FOREIGN KEY(session_id) REFERENCES sessions (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_session_memory_session_id ON session_memory (session_id)
--
COMMENT ON COLUMN session_memory.used IS 'bytes in the node processes of the runner that work for it'
--
COMMENT ON COLUMN session_memory.largest IS 'of them in the largest process in which something runs'
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
	margin JSONB NOT NULL,
	notify JSONB NOT NULL,
	next_at DOUBLE PRECISION,
	created_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
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
COMMENT ON COLUMN schedules.file IS 'absolute path of the sweep file'
--
COMMENT ON COLUMN schedules.folder IS 'where its fires start'
--
COMMENT ON COLUMN schedules.queued IS 'workers run its sweeps'
--
COMMENT ON COLUMN schedules.baseline IS 'the name of one, or `last`'
--
COMMENT ON COLUMN schedules.margin IS 'metric -> the loss that would matter'
--
COMMENT ON COLUMN schedules.notify IS 'notification targets'
--
COMMENT ON COLUMN schedules.next_at IS 'its next fire; null while it is paused'
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
	failure JSONB,
	owner_id VARCHAR(32),
	token BIGINT DEFAULT '0' NOT NULL,
	lease_until DOUBLE PRECISION,
	kills INTEGER DEFAULT '0' NOT NULL,
	losses INTEGER DEFAULT '0' NOT NULL,
	queue VARCHAR(100),
	choices JSONB,
	edited BOOLEAN DEFAULT false NOT NULL,
	asked JSONB,
	passed_id VARCHAR(32),
	stalled_at DOUBLE PRECISION,
	deferred JSONB,
	created_at DOUBLE PRECISION NOT NULL,
	finished_at DOUBLE PRECISION,
	ended_transaction BIGINT,
	ended_event BIGINT,
	task_id VARCHAR(32),
	task_token BIGINT,
	published_at DOUBLE PRECISION,
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
COMMENT ON COLUMN executions.combinations IS 'numbers of the combinations that it stands for'
--
COMMENT ON COLUMN executions.head_id IS 'null until the first step is prepared'
--
COMMENT ON COLUMN executions.losses IS 'leases that ran out in a node'
--
COMMENT ON COLUMN executions.choices IS 'node -> variant, of one that a person forked: it stands for no cell'
--
COMMENT ON COLUMN executions.edited IS 'a person changed its state'
--
COMMENT ON COLUMN executions.asked IS 'what a person wants of it while it runs: to, by, reason'
--
COMMENT ON COLUMN executions.passed_id IS 'the checkpoint at which nothing holds it up again'
--
COMMENT ON COLUMN executions.stalled_at IS 'since when its running node has reported nothing; null while it reports'
--
COMMENT ON COLUMN executions.deferred IS 'node -> its queue; of one that begins once others come to what differs'
--
COMMENT ON COLUMN executions.ended_transaction IS 'where the log has its end and those of its cells'
--
COMMENT ON COLUMN executions.ended_event IS 'the last of these; see wtb/store/log.py'
--
COMMENT ON COLUMN executions.task_id IS 'the task of workers that it was published in, or that runs or ran it'
--
COMMENT ON COLUMN executions.task_token IS 'its token when it was published; a claim makes another one'
--
COMMENT ON COLUMN executions.published_at IS 'when the message of its task was last sent'
--
COMMENT ON COLUMN executions.children IS 'into how many it forked, if its end in the log is that'
--
ALTER TABLE executions SET (fillfactor = 80)
--
CREATE FUNCTION reject_unfinished_execution() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF EXISTS (SELECT FROM checkpoints WHERE id = NEW.head_id AND json_array_length(position->'next') > 0)
                OR EXISTS (SELECT FROM node_runs WHERE checkpoint_id = NEW.head_id AND status = 'running')
            THEN
                RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'a completed execution has next nodes or a running node run at its head: ' || NEW.id;
            END IF;
            RETURN NEW;
        END $$
--
CREATE TRIGGER execution_completes BEFORE UPDATE ON executions FOR EACH ROW
        WHEN (NEW.status = 'completed' AND OLD.status <> 'completed') EXECUTE FUNCTION reject_unfinished_execution()
--
CREATE TRIGGER execution_is_born_completed BEFORE INSERT ON executions FOR EACH ROW
        WHEN (NEW.status = 'completed') EXECUTE FUNCTION reject_unfinished_execution()
--
CREATE TABLE working (
	runner_id VARCHAR(32) NOT NULL,
	slot INTEGER NOT NULL,
	session_id VARCHAR(32) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	execution_id VARCHAR(32) NOT NULL,
	since DOUBLE PRECISION NOT NULL,
	CONSTRAINT pk_working PRIMARY KEY (runner_id, slot),
	CONSTRAINT fk_working_runner_id FOREIGN KEY(runner_id) REFERENCES runners (id) ON DELETE CASCADE,
	CONSTRAINT fk_working_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_working_session_id ON working (session_id)
--
CREATE INDEX ix_working_sweep_id ON working (sweep_id)
--
COMMENT ON TABLE working IS 'the slots of workers that are busy'
--
COMMENT ON COLUMN working.execution_id IS 'that it was claimed for; it continues with what forks off'
--
CREATE TABLE approvals (
	id VARCHAR(32) NOT NULL,
	session_id VARCHAR(32) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	checkpoint_id VARCHAR(32) NOT NULL,
	key VARCHAR(64) NOT NULL,
	kind VARCHAR(8) NOT NULL,
	node VARCHAR(200) NOT NULL,
	number INTEGER NOT NULL,
	question TEXT NOT NULL,
	options JSONB,
	context TEXT,
	"default" JSONB,
	status VARCHAR(12) NOT NULL,
	answer JSONB,
	answered_by VARCHAR(255),
	asked_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	expires_at DOUBLE PRECISION,
	answered_at DOUBLE PRECISION,
	CONSTRAINT pk_approvals PRIMARY KEY (id),
	CONSTRAINT uq_approvals_checkpoint_id_key UNIQUE (checkpoint_id, key),
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
COMMENT ON COLUMN approvals.key IS 'of the question: one answer serves all that ask it here'
--
COMMENT ON COLUMN approvals.node IS 'that asks, or that comes next'
--
COMMENT ON COLUMN approvals.number IS 'of questions of its node run, or attempts so far'
--
COMMENT ON COLUMN approvals.options IS 'texts to choose from'
--
COMMENT ON COLUMN approvals.context IS 'typed JSON: what to look at'
--
COMMENT ON COLUMN approvals."default" IS 'the answer when time is up; null where there is none'
--
COMMENT ON COLUMN approvals.answer IS 'action, choice, feedback, set (key -> digest)'
--
CREATE TABLE scorings (
	id VARCHAR(32) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	evaluators JSONB NOT NULL,
	queue VARCHAR(200) NOT NULL,
	by VARCHAR(255) NOT NULL,
	asked_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	status VARCHAR(10) DEFAULT 'pending' NOT NULL,
	owner_id VARCHAR(32),
	lease_until DOUBLE PRECISION,
	token INTEGER DEFAULT '0' NOT NULL,
	scores BIGINT DEFAULT '0' NOT NULL,
	unjudged BIGINT DEFAULT '0' NOT NULL,
	reason TEXT,
	ended_at DOUBLE PRECISION,
	published_at DOUBLE PRECISION,
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
COMMENT ON TABLE scorings IS 'what workers are asked to score again'
--
COMMENT ON COLUMN scorings.evaluators IS 'as in a sweep file'
--
COMMENT ON COLUMN scorings.queue IS 'of the workers that may do it; empty: the default one'
--
COMMENT ON COLUMN scorings.owner_id IS 'the runner that does it'
--
COMMENT ON COLUMN scorings.token IS 'grows with each claim'
--
COMMENT ON COLUMN scorings.scores IS 'that were written since it was claimed'
--
COMMENT ON COLUMN scorings.unjudged IS 'executions that judges may cost no more'
--
COMMENT ON COLUMN scorings.reason IS 'why some are left, or why it failed or was cancelled'
--
COMMENT ON COLUMN scorings.published_at IS 'when its task was last sent; null while it waits for that'
--
CREATE TABLE alerts (
	event_id BIGINT NOT NULL,
	target INTEGER NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	sent_at DOUBLE PRECISION,
	tries INTEGER DEFAULT '0' NOT NULL,
	lease_until DOUBLE PRECISION,
	error TEXT,
	CONSTRAINT pk_alerts PRIMARY KEY (event_id, target),
	CONSTRAINT fk_alerts_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_alerts_sweep_id ON alerts (sweep_id)
--
CREATE INDEX ix_alerts_open ON alerts (sweep_id) WHERE sent_at IS NULL
--
COMMENT ON TABLE alerts IS 'events to notify somebody of'
--
COMMENT ON COLUMN alerts.target IS 'place in the sweep''s `notify`'
--
COMMENT ON COLUMN alerts.lease_until IS 'a notification is being sent, or waits for its next try'
--
COMMENT ON COLUMN alerts.error IS 'why its last notification failed'
--
CREATE TABLE exports (
	endpoint VARCHAR(500) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	transaction BIGINT NOT NULL,
	event BIGINT NOT NULL,
	CONSTRAINT pk_exports PRIMARY KEY (endpoint, sweep_id),
	CONSTRAINT fk_exports_endpoint FOREIGN KEY(endpoint) REFERENCES exporters (endpoint) ON DELETE CASCADE,
	CONSTRAINT fk_exports_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_exports_sweep_id ON exports (sweep_id)
--
COMMENT ON COLUMN exports.transaction IS 'up to where of its log everything was sent'
--
CREATE TABLE cells (
	sweep_id VARCHAR(32) NOT NULL,
	case_number INTEGER NOT NULL,
	repeat INTEGER NOT NULL,
	combination INTEGER NOT NULL,
	status VARCHAR(16) NOT NULL,
	execution_id VARCHAR(32),
	elapsed_s DOUBLE PRECISION,
	usd DOUBLE PRECISION,
	tokens_in BIGINT,
	tokens_out BIGINT,
	node_runs BIGINT,
	failure JSONB,
	edited BOOLEAN DEFAULT false NOT NULL,
	finished_at DOUBLE PRECISION,
	CONSTRAINT pk_cells PRIMARY KEY (sweep_id, case_number, repeat, combination),
	CONSTRAINT ck_cells_status CHECK (status IN ('pending', 'running', 'waiting', 'succeeded', 'failed', 'cancelled', 'skipped', 'set_aside')),
	CONSTRAINT fk_cells_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
COMMENT ON COLUMN cells.execution_id IS 'whose outcome it has, or the one that holds it'
--
COMMENT ON COLUMN cells.elapsed_s IS 'as if alone: accepted attempts, the longest of a parallel step'
--
ALTER TABLE cells SET (fillfactor = 40)
--
CREATE TABLE scores (
	sweep_id VARCHAR(32) NOT NULL,
	metric VARCHAR(200) NOT NULL,
	case_number INTEGER NOT NULL,
	repeat INTEGER NOT NULL,
	combination INTEGER NOT NULL,
	value DOUBLE PRECISION,
	error TEXT,
	observed TEXT,
	version VARCHAR(200),
	reason TEXT,
	CONSTRAINT pk_scores PRIMARY KEY (sweep_id, metric, case_number, repeat, combination),
	CONSTRAINT fk_scores_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
COMMENT ON COLUMN scores.observed IS 'the cell value of a figure over all cells of a row'
--
COMMENT ON COLUMN scores.version IS 'of what gave it, such as the model that a judge was answered by'
--
COMMENT ON COLUMN scores.reason IS 'why it has this value, in words'
--
CREATE TABLE metrics (
	sweep_id VARCHAR(32) NOT NULL,
	name VARCHAR(200) NOT NULL,
	number INTEGER NOT NULL,
	better VARCHAR(8) NOT NULL,
	declared BOOLEAN DEFAULT true NOT NULL,
	by_median BOOLEAN DEFAULT false NOT NULL,
	low DOUBLE PRECISION,
	high DOUBLE PRECISION,
	on_failure VARCHAR(32),
	figure VARCHAR(32),
	CONSTRAINT pk_metrics PRIMARY KEY (sweep_id, name),
	CONSTRAINT ck_metrics_better CHECK (better IN ('higher', 'lower')),
	CONSTRAINT fk_metrics_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
COMMENT ON COLUMN metrics.number IS 'their order in the matrix'
--
COMMENT ON COLUMN metrics.declared IS 'whether the direction was declared'
--
COMMENT ON COLUMN metrics.by_median IS 'combinations are compared by the median of their differences, else by the mean'
--
COMMENT ON COLUMN metrics.low IS 'the ends of the scale that was declared'
--
COMMENT ON COLUMN metrics.on_failure IS 'the score of a failed cell, or left_out; else that of the sweep'
--
COMMENT ON COLUMN metrics.figure IS 'over all cells of a row, which scores are parts of'
--
CREATE TABLE labels (
	sweep_id VARCHAR(32) NOT NULL,
	metric VARCHAR(200) NOT NULL,
	case_number INTEGER NOT NULL,
	repeat INTEGER NOT NULL,
	combination INTEGER NOT NULL,
	rater VARCHAR(255) NOT NULL,
	value DOUBLE PRECISION NOT NULL,
	asked VARCHAR(16) NOT NULL,
	probability DOUBLE PRECISION,
	at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	CONSTRAINT pk_labels PRIMARY KEY (sweep_id, metric, case_number, repeat, combination, rater),
	CONSTRAINT ck_labels_asked CHECK (asked IN ('random', 'disagreement')),
	CONSTRAINT fk_labels_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
COMMENT ON TABLE labels IS 'comments of people on cells'
--
COMMENT ON COLUMN labels.metric IS 'whose scores it is held against'
--
COMMENT ON COLUMN labels.asked IS 'why it was asked for'
--
COMMENT ON COLUMN labels.probability IS 'that its case was drawn with; null where it was not drawn here'
--
CREATE TABLE comments (
	sweep_id VARCHAR(32) NOT NULL,
	number INTEGER NOT NULL,
	case_number INTEGER NOT NULL,
	repeat INTEGER NOT NULL,
	combination INTEGER NOT NULL,
	by VARCHAR(255) NOT NULL,
	text TEXT NOT NULL,
	at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	CONSTRAINT pk_comments PRIMARY KEY (sweep_id, number),
	CONSTRAINT fk_comments_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_comments_cell ON comments (sweep_id, case_number)
--
COMMENT ON TABLE comments IS 'what people write about cells'
--
COMMENT ON COLUMN comments.number IS 'of the sweep, from 1'
--
CREATE TABLE tallies (
	sweep_id VARCHAR(32) NOT NULL,
	metric VARCHAR(200) NOT NULL,
	combination INTEGER NOT NULL,
	n BIGINT NOT NULL,
	total DOUBLE PRECISION NOT NULL,
	CONSTRAINT pk_tallies PRIMARY KEY (sweep_id, metric, combination),
	CONSTRAINT fk_tallies_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
COMMENT ON COLUMN tallies.n IS 'cells with a score'
--
COMMENT ON COLUMN tallies.total IS 'sum of their scores'
--
CREATE TABLE matrices (
	sweep_id VARCHAR(32) NOT NULL,
	transaction BIGINT DEFAULT '-1' NOT NULL,
	event_id BIGINT DEFAULT '0' NOT NULL,
	tallied_at DOUBLE PRECISION,
	document JSONB,
	frozen_at DOUBLE PRECISION,
	cells JSONB,
	CONSTRAINT pk_matrices PRIMARY KEY (sweep_id),
	CONSTRAINT fk_matrices_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
COMMENT ON COLUMN matrices.transaction IS 'tallied up to this event'
--
COMMENT ON COLUMN matrices.document IS 'the matrix, once the sweep is at its end'
--
COMMENT ON COLUMN matrices.cells IS 'how many there are of each status, once the matrix is kept'
--
CREATE TABLE baselines (
	session_id VARCHAR(32) NOT NULL,
	name VARCHAR(200) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	set_at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	noise_floor JSONB,
	reference_id VARCHAR(32),
	nights JSONB,
	CONSTRAINT pk_baselines PRIMARY KEY (session_id, name),
	CONSTRAINT fk_baselines_session_id FOREIGN KEY(session_id) REFERENCES sessions (id) ON DELETE CASCADE,
	CONSTRAINT fk_baselines_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id)
)
--
CREATE INDEX ix_baselines_reference_id ON baselines (reference_id)
--
CREATE INDEX ix_baselines_sweep_id ON baselines (sweep_id)
--
COMMENT ON COLUMN baselines.sweep_id IS 'not removed while it is'
--
COMMENT ON COLUMN baselines.noise_floor IS 'what repeats of the sweep differ by; null where nobody made any'
--
COMMENT ON COLUMN baselines.reference_id IS 'the sweep that was set by hand; null where it is still it'
--
COMMENT ON COLUMN baselines.nights IS 'sweeps that were compared with it since, the oldest first'
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
COMMENT ON TABLE pooled IS 'the sweeps whose cells a pool has'
--
COMMENT ON COLUMN pooled.sweep_id IS 'not removed while it is'
--
COMMENT ON COLUMN pooled.number IS 'the order of its runs among the pool''s repeats'
--
CREATE TABLE cases (
	sweep_id VARCHAR(32) NOT NULL,
	number INTEGER NOT NULL,
	id TEXT NOT NULL,
	input JSONB NOT NULL,
	expected TEXT,
	tags JSONB NOT NULL,
	workspace VARCHAR(64),
	cluster TEXT,
	erased_at DOUBLE PRECISION,
	erased_by VARCHAR(255),
	CONSTRAINT pk_cases PRIMARY KEY (sweep_id, number),
	CONSTRAINT uq_cases_sweep_id_id UNIQUE (sweep_id, id),
	CONSTRAINT fk_cases_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
COMMENT ON COLUMN cases.input IS 'key -> digest of its value'
--
COMMENT ON COLUMN cases.expected IS 'typed JSON'
--
COMMENT ON COLUMN cases.cluster IS 'what it came from with others, which are not independent of it'
--
COMMENT ON COLUMN cases.erased_at IS 'nothing but its id and number is left of it then'
--
CREATE TABLE combinations (
	sweep_id VARCHAR(32) NOT NULL,
	number INTEGER NOT NULL,
	choices JSON NOT NULL,
	stopped JSONB,
	CONSTRAINT pk_combinations PRIMARY KEY (sweep_id, number),
	CONSTRAINT fk_combinations_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_combinations_stopped ON combinations (sweep_id) WHERE stopped IS NOT NULL
--
COMMENT ON COLUMN combinations.choices IS 'varied node -> variant'
--
COMMENT ON COLUMN combinations.stopped IS 'by, reason, at: its open cells were skipped'
--
CREATE TABLE fires (
	schedule_id VARCHAR(32) NOT NULL,
	fire_at DOUBLE PRECISION NOT NULL,
	status VARCHAR(16) NOT NULL,
	manual BOOLEAN DEFAULT false NOT NULL,
	token BIGINT DEFAULT '0' NOT NULL,
	lease_until DOUBLE PRECISION,
	tries INTEGER DEFAULT '0' NOT NULL,
	sweep_id VARCHAR(32),
	baseline_id VARCHAR(32),
	verdict VARCHAR(16),
	why JSONB,
	notified_at DOUBLE PRECISION,
	notify_tries INTEGER DEFAULT '0' NOT NULL,
	notify_error TEXT,
	started_at DOUBLE PRECISION,
	finished_at DOUBLE PRECISION,
	CONSTRAINT pk_fires PRIMARY KEY (schedule_id, fire_at),
	CONSTRAINT ck_fires_status CHECK (status IN ('due', 'starting', 'running', 'judged', 'failed')),
	CONSTRAINT ck_fires_verdict CHECK (verdict IN ('better', 'same', 'not worse', 'unclear', 'worse', 'cannot tell', 'failed')),
	CONSTRAINT fk_fires_schedule_id FOREIGN KEY(schedule_id) REFERENCES schedules (id) ON DELETE CASCADE,
	CONSTRAINT uq_fires_sweep_id UNIQUE (sweep_id)
)
--
CREATE INDEX ix_fires_open ON fires (status) WHERE status IN ('due', 'starting', 'running') OR lease_until IS NOT NULL
--
COMMENT ON COLUMN fires.fire_at IS 'when it was due'
--
COMMENT ON COLUMN fires.lease_until IS 'when its lease ends; set after its end if a notification is due'
--
COMMENT ON COLUMN fires.sweep_id IS 'its sweep, set in the transaction that submits it'
--
COMMENT ON COLUMN fires.baseline_id IS 'the sweep that it was compared with'
--
COMMENT ON COLUMN fires.why IS 'sentences'
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
	trigger VARCHAR(16) NOT NULL,
	name VARCHAR(200),
	inside JSONB,
	pinned BOOLEAN DEFAULT false NOT NULL,
	created_at DOUBLE PRECISION NOT NULL,
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
COMMENT ON COLUMN checkpoints.position IS 'step, next nodes, arrived at joins, visits'
--
COMMENT ON COLUMN checkpoints.state IS 'key -> digest of its value'
--
COMMENT ON COLUMN checkpoints.writers IS '[node, variant, node run]'
--
COMMENT ON COLUMN checkpoints.inside IS 'of one taken inside a node: node_run, node, variant, saved (key -> digest)'
--
COMMENT ON COLUMN checkpoints.pinned IS 'retention keeps it'
--
COMMENT ON COLUMN checkpoints.created_transaction IS 'where the log has that it was made; see wtb/store/log.py'
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
COMMENT ON TABLE awaiting IS 'executions that wait for an answer'
--
CREATE TABLE rollbacks (
	id VARCHAR(32) NOT NULL,
	sweep_id VARCHAR(32) NOT NULL,
	execution_id VARCHAR(32) NOT NULL,
	from_id VARCHAR(32) NOT NULL,
	to_id VARCHAR(32) NOT NULL,
	head_id VARCHAR(32) NOT NULL,
	status VARCHAR(16) NOT NULL,
	nodes JSONB NOT NULL,
	superseded JSONB NOT NULL,
	by VARCHAR(255) NOT NULL,
	reason TEXT,
	at DOUBLE PRECISION DEFAULT (extract(epoch from clock_timestamp())::double precision) NOT NULL,
	redone_at DOUBLE PRECISION,
	CONSTRAINT pk_rollbacks PRIMARY KEY (id),
	CONSTRAINT fk_rollbacks_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id) ON DELETE CASCADE,
	CONSTRAINT fk_rollbacks_execution_id FOREIGN KEY(execution_id) REFERENCES executions (id) ON DELETE CASCADE
)
--
CREATE INDEX ix_rollbacks_sweep_id ON rollbacks (sweep_id)
--
CREATE INDEX ix_rollbacks_execution_id ON rollbacks (execution_id)
--
COMMENT ON COLUMN rollbacks.from_id IS 'the head of the line that was left'
--
COMMENT ON COLUMN rollbacks.to_id IS 'the checkpoint that was asked for'
--
COMMENT ON COLUMN rollbacks.head_id IS 'the new head, a child of it'
--
COMMENT ON COLUMN rollbacks.status IS 'what the execution was before'
--
COMMENT ON COLUMN rollbacks.nodes IS 'nodes rolled back, the last first'
--
COMMENT ON COLUMN rollbacks.superseded IS 'executions that had forked from the left line'
--
CREATE TABLE decisions (
	checkpoint_id VARCHAR(32) NOT NULL,
	number INTEGER NOT NULL,
	node VARCHAR(200) NOT NULL,
	"to" VARCHAR(200) NOT NULL,
	key TEXT,
	why TEXT NOT NULL,
	tried JSONB,
	CONSTRAINT pk_decisions PRIMARY KEY (checkpoint_id, number),
	CONSTRAINT fk_decisions_checkpoint_id FOREIGN KEY(checkpoint_id) REFERENCES checkpoints (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
)
--
COMMENT ON COLUMN decisions.tried IS '[to, condition or key, whether it was taken] of each edge that was tried'
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
	started_at DOUBLE PRECISION NOT NULL,
	duration_s DOUBLE PRECISION NOT NULL,
	usd DOUBLE PRECISION NOT NULL,
	tokens_in BIGINT NOT NULL,
	tokens_out BIGINT NOT NULL,
	started_transaction BIGINT,
	started_event BIGINT,
	ended_transaction BIGINT,
	ended_event BIGINT,
	ended_at DOUBLE PRECISION,
	replaces VARCHAR(200),
	begun_at DOUBLE PRECISION,
	lag_s DOUBLE PRECISION,
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
COMMENT ON COLUMN node_runs.task IS 'the node, or node and number where it fans out'
--
COMMENT ON COLUMN node_runs.cells IS 'how many cells take part in it'
--
COMMENT ON COLUMN node_runs.writes IS 'key -> digest of what the accepted attempt wrote'
--
COMMENT ON COLUMN node_runs.duration_s IS 'of the accepted attempt'
--
COMMENT ON COLUMN node_runs.usd IS 'of the accepted attempt'
--
COMMENT ON COLUMN node_runs.started_transaction IS 'where the log has its start; see wtb/store/log.py'
--
COMMENT ON COLUMN node_runs.ended_transaction IS 'where the log has its success'
--
COMMENT ON COLUMN node_runs.ended_at IS 'when it succeeded'
--
COMMENT ON COLUMN node_runs.replaces IS 'the default variant, if the first visit applies another one'
--
COMMENT ON COLUMN node_runs.begun_at IS 'when the first attempt began, if this row describes it: so far, or for good'
--
COMMENT ON COLUMN node_runs.lag_s IS 'how late the event loop was on average while the accepted attempt ran'
--
COMMENT ON COLUMN node_runs.stdout IS 'of that attempt: its beginning and its end, where it is long'
--
COMMENT ON COLUMN node_runs.stderr IS 'the same'
--
CREATE TABLE attempts (
	node_run_id VARCHAR(32) NOT NULL,
	number INTEGER NOT NULL,
	status VARCHAR(16) NOT NULL,
	started_at DOUBLE PRECISION NOT NULL,
	duration_s DOUBLE PRECISION NOT NULL,
	usd DOUBLE PRECISION NOT NULL,
	tokens_in BIGINT NOT NULL,
	tokens_out BIGINT NOT NULL,
	failure JSONB,
	fingerprint VARCHAR(64) NOT NULL,
	stdout TEXT,
	stderr TEXT,
	CONSTRAINT pk_attempts PRIMARY KEY (node_run_id, number),
	CONSTRAINT ck_attempts_status CHECK (status IN ('succeeded', 'failed')),
	CONSTRAINT fk_attempts_node_run_id FOREIGN KEY(node_run_id) REFERENCES node_runs (id) ON DELETE CASCADE
)
--
COMMENT ON COLUMN attempts.stdout IS 'its beginning and its end, where it is long'
--
COMMENT ON COLUMN attempts.stderr IS 'the same'
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
	usd DOUBLE PRECISION NOT NULL,
	duration_s DOUBLE PRECISION,
	at DOUBLE PRECISION NOT NULL,
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
COMMENT ON COLUMN calls.prompt IS 'typed JSON'
--
COMMENT ON COLUMN calls.response IS 'typed JSON'
--
COMMENT ON COLUMN calls.cached IS 'tokens of the prompt that were read from the provider''s cache'
--
COMMENT ON COLUMN calls.sweep_id IS 'of calls that the log has'
--
COMMENT ON COLUMN calls.logged_transaction IS 'the position in the log'
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
	at DOUBLE PRECISION NOT NULL,
	duration_s DOUBLE PRECISION NOT NULL,
	undone_at DOUBLE PRECISION,
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
--
COMMENT ON COLUMN invocations.arguments IS 'typed JSON'
--
COMMENT ON COLUMN invocations.result IS 'typed JSON'
--
COMMENT ON COLUMN invocations.version IS 'of the tool of a server: a digest of its description by the server'
--
COMMENT ON COLUMN invocations.sweep_id IS 'of calls that the log has'
--
COMMENT ON COLUMN invocations.logged_transaction IS 'the position in the log'
