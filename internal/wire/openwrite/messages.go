package openwrite

import (
	"time"
)

// Version is the version of the protocol. A request of another version is refused.
const Version = 1

// Actions are the types of the Flight actions (DoAction), each with a JSON body and
// one JSON answer.
const (
	ActionBegin  = "firn.v1.BeginWrite"
	ActionCommit = "firn.v1.CommitWrite"
	ActionAbort  = "firn.v1.AbortWrite"
	ActionStatus = "firn.v1.WriteStatus"
	ActionRenew  = "firn.v1.RenewWrite"
	ActionResume = "firn.v1.ResumeWrite"
)

// DescriptorManifest is the first part of the descriptor's path of a DoPut that
// hands a manifest in; the write's id and the attempt's follow.
const DescriptorManifest = "firn.v1.manifest"

// Begin is the body of ActionBegin. Unknown fields are an error.
type Begin struct {
	Version int `json:"version"`
	// Table is a name as SQL has it, with catalog and namespace.
	Table string `json:"table"`
	// Branch is empty for main, Operation for append.
	Branch    string `json:"branch,omitempty"`
	Operation string `json:"operation,omitempty"`
	// Key is the idempotency key. Empty: the scheduler makes one.
	Key string `json:"idempotency_key,omitempty"`
	// KeyIsNew says that the key was made for this very request, and never used.
	KeyIsNew bool `json:"key_is_new,omitempty"`
	// TTLSeconds is how long the write stays open without a renewal; 0 for the
	// scheduler's default. More than the scheduler allows is cut.
	TTLSeconds int64 `json:"ttl_seconds,omitempty"`
	// DryRun: the commit ends where it would be sealed, and the files are deleted.
	DryRun bool `json:"dry_run,omitempty"`
	// AfterDeadline is what may be done by itself for a commit whose outcome isn't
	// known: "" (look), "fence" or "retry".
	AfterDeadline string `json:"after_deadline,omitempty"`
	// Engine names who writes, for people: "pyspark 4.1".
	Engine string `json:"engine,omitempty"`
}

// Commit is the body of ActionCommit.
type Commit struct {
	Version int    `json:"version"`
	WriteID string `json:"write_id"`
	// Handles are those of the attempts that won, in any order.
	Handles []string `json:"handles"`
	// WaitSeconds is how long the answer may wait for the outcome; nil for 30.
	WaitSeconds *int64 `json:"wait_seconds,omitempty"`
}

// Ref is the body of ActionAbort, ActionStatus and ActionRenew.
type Ref struct {
	Version int    `json:"version"`
	WriteID string `json:"write_id"`
	// WaitSeconds is, for ActionStatus, how long the answer may wait for an outcome.
	WaitSeconds *int64 `json:"wait_seconds,omitempty"`
	// Expired is, for ActionRenew, the id of a key that the store takes no longer.
	Expired string `json:"expired_access_key_id,omitempty"`
}

// Resume is the body of ActionResume.
type Resume struct {
	Version int    `json:"version"`
	Key     string `json:"idempotency_key"`
}

// Answer is what every action answers.
type Answer struct {
	Version int `json:"version"`
	// Result says what the action came to, one of the Result constants.
	Result string `json:"result"`
	Status Status `json:"status"`
	// Context is there for an open write that was begun, resumed or renewed.
	Context *Context `json:"context,omitempty"`
}

// Results of actions.
const (
	// ResultOpen: the write is open; the answer has its context.
	ResultOpen = "open"
	// ResultSealed: this call has sealed the write.
	ResultSealed = "sealed"
	// ResultJoined: the write was sealed before, with the same handles.
	ResultJoined = "joined"
	// ResultOtherHandles: other handles are what the key stands for. The write was
	// sealed with them before, and they are in Status.SealedHandles; or another
	// submission of the key is in the table, whose handles aren't known here, and
	// Status has none.
	ResultOtherHandles = "sealed_with_other_handles"
	// ResultAborted: the write was given up, now or before.
	ResultAborted = "aborted"
	// ResultNotOpen: the write has ended without a seal, or is sealed, so that what
	// was asked for can't be had. Status says how it is.
	ResultNotOpen = "not_open"
	// ResultStatus is all that ActionStatus and ActionResume have to say of a write
	// that isn't open.
	ResultStatus = "status"
)

// State is how a write is, in one word.
type State string

// States of a write.
const (
	// StateOpen: files can be written and manifests handed in.
	StateOpen State = "open"
	// StateCommitting: sealed, and what becomes of it isn't decided.
	StateCommitting State = "committing"
	// StateCommitted: the table has exactly the files of the sealed handles. In a
	// status without a SealDigest the key was committed before the write could open.
	StateCommitted State = "committed"
	// StateCommittedByOther: the table has another submission of the key, once, and of
	// this write's sealed handles nothing that isn't in that one too.
	StateCommittedByOther State = "committed_by_other"
	// StateRefused: nothing was committed. Status.Error has the reason.
	StateRefused State = "refused"
	// StateUnknown: not proven either way. The files are kept.
	StateUnknown State = "unknown"
	// StateFailed: it ended without its commit having been tried, or before
	// anything was sent: nothing was committed.
	StateFailed State = "failed"
	// StateAborted: given up by its owner before it was sent.
	StateAborted State = "aborted"
	// StateExpired: nobody renewed it in time.
	StateExpired State = "expired"
	// StateVerified: a dry run that would have been committed.
	StateVerified State = "verified"
)

// Status is what is known of a write.
type Status struct {
	WriteID string `json:"write_id"`
	Key     string `json:"idempotency_key"`
	State   State  `json:"state"`
	// Commit is the job's own field: none, preparing, in_flight, committed, refused
	// or unknown.
	Commit string `json:"commit"`
	// Manifests counts the attempts that handed one in while the write is open.
	Manifests int `json:"manifests"`
	// SealedHandles are sorted, SealDigest is theirs; empty while it isn't sealed, and
	// in StateCommittedByOther, so that nobody takes them for what is committed.
	SealedHandles []string `json:"sealed_handles,omitempty"`
	SealDigest    string   `json:"seal_digest,omitempty"`
	// WaitsFor is what a commit that isn't through waits for.
	WaitsFor string `json:"waits_for,omitempty"`
	// Expires is when an open write expires unless it is renewed.
	Expires *time.Time `json:"expires_at,omitempty"`
	Report  *Report    `json:"report,omitempty"`
	Error   *Fault     `json:"error,omitempty"`
}

// Report is what became of the table, as jobs have it.
type Report struct {
	Table     string `json:"table"`
	Format    string `json:"format,omitempty"`
	Operation string `json:"operation,omitempty"`
	Commit    string `json:"commit"`
	// Deduplicated: it was in the table before this run of the commit.
	Deduplicated bool `json:"deduplicated,omitempty"`
	// RolledBack: it was committed, and was taken out of the table's history before
	// this became known. It isn't committed again.
	RolledBack bool `json:"rolled_back,omitempty"`
	// OtherSubmission: the table has another submission of the same key, and all
	// that stands here is of that one.
	OtherSubmission bool   `json:"other_submission,omitempty"`
	Rows            int64  `json:"rows"`
	Files           int64  `json:"files"`
	Bytes           int64  `json:"bytes"`
	SnapshotID      string `json:"snapshot_id,omitempty"`
	Attempts        int64  `json:"attempts"`
	Conflicts       int64  `json:"conflicts"`
	Committed       string `json:"committed,omitempty"`
}

// Context is what it takes to write for one write. It holds nothing of the catalog.
type Context struct {
	WriteID string `json:"write_id"`
	Key     string `json:"idempotency_key"`
	// Table is the name, Namespace and Catalog its parts.
	Table         string   `json:"table"`
	Catalog       string   `json:"catalog"`
	Namespace     []string `json:"namespace"`
	Name          string   `json:"name"`
	TableUUID     string   `json:"table_uuid"`
	Format        string   `json:"format"`
	FormatVersion int      `json:"format_version"`
	Branch        string   `json:"branch"`
	Operation     string   `json:"operation"`
	// Prefix is a URI that ends in a slash. Every file lies under it, and its name
	// begins with its attempt's id and a dash.
	Prefix string `json:"prefix"`
	// ArrowSchema is an Arrow IPC stream without batches.
	ArrowSchema []byte `json:"arrow_schema"`
	// SchemaJSON is the schema in the format's own serialisation.
	SchemaJSON string `json:"schema_json"`
	SchemaID   int    `json:"schema_id"`
	SpecJSON   string `json:"spec_json"`
	SpecID     int    `json:"spec_id"`
	// Partition are the partition fields, in the spec's order.
	Partition []PartitionField `json:"partition"`
	// SortOrderJSON is the default sort order; empty when there is none.
	SortOrderJSON  string            `json:"sort_order_json,omitempty"`
	Properties     map[string]string `json:"properties"`
	TargetFileSize int64             `json:"target_file_size"`
	// FileColumns are the top-level columns that files hold, in order: all of an
	// Iceberg table's, and of a Delta table's those that it isn't partitioned by.
	FileColumns []string `json:"file_columns"`
	Storage     Storage  `json:"storage"`
	// Manifests are the schemas of manifests by mode, as Arrow IPC streams without
	// batches.
	Manifests map[string][]byte `json:"manifest_schemas"`
	Limits    Limits            `json:"limits"`
	Begun     time.Time         `json:"begun_at"`
	// Expires is when the write expires unless it is renewed, MaxExpires the latest
	// to which it can be.
	Expires    time.Time `json:"expires_at"`
	MaxExpires time.Time `json:"max_expires_at"`
	// WorkerToken lets its bearer hand manifests of this write in and renew it, and
	// nothing else. It ends at WorkerTokenExpires.
	WorkerToken        string    `json:"worker_token"`
	WorkerTokenExpires time.Time `json:"worker_token_expires_at"`
	DryRun             bool      `json:"dry_run,omitempty"`
}

// Modes of manifests.
const (
	ManifestComplete = "complete"
	ManifestPaths    = "paths"
)

// PartitionField is one field of the partition spec.
type PartitionField struct {
	FieldID   int    `json:"field_id"`
	Name      string `json:"name"`
	SourceID  int    `json:"source_id"`
	Source    string `json:"source"`
	Transform string `json:"transform"`
	// Type is the type of the field's values, as the format writes it.
	Type string `json:"type"`
}

// Kinds of stores.
const (
	StoreLocal = "file"
	StoreS3    = "s3"
)

// Storage is how the prefix is written to.
type Storage struct {
	// Kind is StoreLocal or StoreS3.
	Kind     string `json:"kind"`
	Endpoint string `json:"endpoint,omitempty"`
	Region   string `json:"region,omitempty"`
	// PathStyle: the bucket is part of the path.
	PathStyle bool `json:"path_style,omitempty"`
	// Credentials are good for the prefix alone; nil where none are needed.
	Credentials *Credentials `json:"credentials,omitempty"`
	// Warning is there where the store can't narrow keys and the scheduler is
	// allowed to hand out its own.
	Warning string `json:"warning,omitempty"`
}

// Credentials are keys of a store.
type Credentials struct {
	AccessKeyID     string `json:"access_key_id"`
	SecretAccessKey string `json:"secret_access_key"`
	SessionToken    string `json:"session_token,omitempty"`
	// Expires is nil for keys that don't end.
	Expires *time.Time `json:"expires_at,omitempty"`
}

// Limits bound a write.
type Limits struct {
	// ManifestBytes and ManifestFiles bound one manifest, Manifests, Files and Bytes
	// those of a write: Bytes is the sum of its manifests' as they are kept.
	ManifestBytes int64 `json:"manifest_bytes"`
	ManifestFiles int64 `json:"manifest_files"`
	Manifests     int64 `json:"manifests"`
	Files         int64 `json:"files"`
	Bytes         int64 `json:"bytes"`
}

// PathsRow is one row of a manifest that only names files.
type PathsRow struct {
	Path string
	// Size and Rows are what the writer says; -1 where it doesn't.
	Size, Rows int64
	// Partition are partition values by the name of the partition field, nil for
	// null; nil where the writer says none.
	Partition map[string]*string
}
