// Package chaos breaks whole clusters on purpose and has the table judge them.
//
// A run starts a scheduler and executors as processes over a REST catalog behind a
// proxy of faults (package restcatalog), and several clients that insert units of
// distinct rows, each unit under its own key. Meanwhile commit requests and replies
// are lost, late, doubled and falsified, processes are killed (at random, and at the
// fail points of package failpoint) and frozen, and
// other writers and a second scheduler commit to the same table. Clients that
// aren't told an outcome ask again under the same key, or give up. Then everything
// is put right, what is still open is settled, and package history compares what
// the clients were told with what plain DuckDB reads.
//
// The number of a run is its seed: it fixes which faults come, at which request,
// and what the clients do. The scheduling of processes isn't fixed, so the same
// seed meets the same faults, not the same interleaving. Each run has faults that
// must happen in it; a run in which one didn't is a failed run.
//
// TestDeltaChaos does the same to a Delta table, in a directory or on an S3 server
// whose replies to the puts of versions are lost, late or false. The log is judged
// by its commits alone, from the first one on.
//
// TestJobChaos runs jobs of several stages, INSERTs and SELECTs with joins and
// aggregates over Parquet files. Executors are killed, frozen, slowed down, cut off
// from their scheduler, and have a full disk; the scheduler is killed. Each statement
// has the rows that plain DuckDB gives for its query, which are also those of a run
// without faults.
//
// TestSoak (`make soak`) does that for minutes, and watches what the processes hold:
// memory, goroutines, open files, the scheduler's directory and the executors'.
//
// `make chaos RUNS=200` runs the seeds 0 to 199, `make chaos RUN=7` one,
// `make chaos-smoke` those first few that have each fault once.
package chaos
