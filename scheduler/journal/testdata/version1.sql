CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE jobs (
	seq INTEGER PRIMARY KEY AUTOINCREMENT,
	id TEXT NOT NULL UNIQUE,
	namespace TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL,
	statement TEXT NOT NULL, sql TEXT NOT NULL, tbl TEXT NOT NULL,
	state TEXT NOT NULL, commit_state TEXT NOT NULL, error TEXT NOT NULL,
	status BLOB NOT NULL,
	submitted_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX jobs_by_key ON jobs (namespace, key, seq);
CREATE INDEX jobs_by_state ON jobs (state, seq);
CREATE TABLE units (
	job_id TEXT PRIMARY KEY,
	namespace TEXT NOT NULL, key TEXT NOT NULL,
	token TEXT NOT NULL, digest TEXT NOT NULL,
	table_name TEXT NOT NULL, table_uuid TEXT NOT NULL, branch TEXT NOT NULL,
	operation TEXT NOT NULL, schema_id INTEGER NOT NULL, spec_id INTEGER NOT NULL,
	schema_json BLOB NOT NULL, spec_json BLOB NOT NULL,
	prefix TEXT NOT NULL, files INTEGER NOT NULL, row_count INTEGER NOT NULL,
	bytes INTEGER NOT NULL, tasks INTEGER NOT NULL, sealed_ms INTEGER NOT NULL,
	state TEXT NOT NULL, reason TEXT NOT NULL, cause TEXT NOT NULL
) STRICT;
CREATE TABLE manifests (job_id TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE sends (
	request_id TEXT PRIMARY KEY,
	snapshot_id TEXT NOT NULL, head TEXT NOT NULL,
	seat INTEGER NOT NULL, pointer TEXT NOT NULL, metadata_files TEXT NOT NULL,
	at_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE sent_tokens (
	token TEXT NOT NULL, request_id TEXT NOT NULL REFERENCES sends (request_id),
	PRIMARY KEY (token, request_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX units_by_token ON units (token);
INSERT INTO meta VALUES ('incarnation', 'inc-1');
INSERT INTO jobs VALUES (1, 'j-1', 'default', 'k', 'f', 'INSERT', 'INSERT …', 'lake.air.t', 'running', 'in_flight', '', x'', 1000, 0);
INSERT INTO units VALUES ('j-1', 'default', 'k', '00000000-0000-8000-8000-000000000001', '0000000000000000000000000000000000000000000000000000000000000007',
	'{"Catalog":"lake","Namespace":["air"],"Name":"t"}', 'uuid', 'main', 'append', 0, 0, x'', x'', 'file:///w/j-1/', 1, 10, 100, 1, 2000, 'sent', '', '');
INSERT INTO manifests VALUES ('j-1', x'6d');
INSERT INTO sends VALUES ('r-1', '1', '', 1, '', '[]', 3000);
INSERT INTO sent_tokens VALUES ('00000000-0000-8000-8000-000000000001', 'r-1');
PRAGMA user_version = 1;
