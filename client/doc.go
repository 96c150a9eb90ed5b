// Package client is the Go client of Firn: it sends statements to a scheduler,
// follows their jobs, reads the rows of queries straight from the executors, and
// streams Arrow batches into a table with one commit at the end.
//
//	c, err := client.Dial(ctx, "127.0.0.1:7350")
//	res, err := c.Execute(ctx, client.Statement{SQL: "INSERT INTO lake.air.flights SELECT …"})
//	status, err := res.Job.Wait(ctx)
//	fmt.Println(status.Report.Rows, status.Report.SnapshotID)
//
// Programs that write data files themselves have Firn commit them: BeginWrite gives
// the context that their workers need, HandInFiles takes what a worker has written,
// and Write.Commit commits exactly the files of the attempts that won.
//
// Cancelling a context stops waiting; it never stops a job. Job.Cancel stops the
// job, or says that its commit is already under way.
//
// Every job has an idempotency key. Submitting the same statement again with the
// same key never writes twice: it gives the first result, marked deduplicated,
// or waits for the job that is running.
//
// Errors that say something about the work are *commit.Error: commit.CodeOf and
// commit.KindOf tell a conflict (nothing was committed) from a commit whose
// outcome isn't known, a missing table or a lack of permission. They are the
// same values that the scheduler made; the wire keeps them.
package client
