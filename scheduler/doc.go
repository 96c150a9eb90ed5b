// Package scheduler is the service that admits statements, plans jobs, hands
// their tasks to executors and runs scheduler roots.
//
// One goroutine, the event loop, owns every job's graph, the executors and the
// queue of tasks; all that waits (planning, binding, roots, the journal, calls
// to executors) happens on goroutines of its own and comes back as a function
// that the loop runs. So nothing here needs a lock, and a job that plans,
// commits or talks to a dead executor delays no other.
//
// The scheduler is the only process that holds catalogs, and it sees them
// through the interface Catalogs. Executors get fragments of plans, never a
// root; what comes back from them is untrusted until package
// scheduler/committer verified it.
package scheduler
