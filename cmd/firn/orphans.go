package main

import (
	"context"
	"fmt"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/render"
	"github.com/spf13/cobra"
)

// orphanJSON is one line of `firn table orphans -o json`.
type orphanJSON struct {
	JobID   string `json:"job_id"`
	State   string `json:"state"`
	Commit  string `json:"commit"`
	File    string `json:"file,omitempty"`
	Deleted bool   `json:"deleted"`
	// Orphan says why no version of the table can have the file, Kept why it stays.
	Orphan string `json:"orphan,omitempty"`
	Kept   string `json:"kept,omitempty"`
}

func (a *app) tableOrphansCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	var opts client.OrphansOptions
	cmd := &cobra.Command{
		Use: "orphans NAME [--delete] [--wait]", Short: "Show, or delete, the files that jobs left and no version of the table can have",
		Long: `Shows the files that this scheduler's jobs wrote for a table and that no version of it has or can
get any more, with the reason, and those that stay although it doesn't have them: of jobs that run, of
commits that are parked and of those whose outcome isn't known. It goes by the scheduler's record, not
by the age of files, and files of other writers are never among them. With --delete those of the first
kind are deleted. The scheduler does so by itself, once when a job has ended and once more some time
after; --wait waits for that.`,
		Args: arguments("the name of a table"),
	}
	cmd.Flags().BoolVar(&opts.Delete, "delete", false, "delete the files")
	cmd.Flags().BoolVar(&opts.Wait, "wait", false, "wait until the scheduler has swept what ended jobs left")
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		found, err := s.Orphans(ctx, args[0], opts)
		if err != nil {
			return err
		}
		return render.List(a.stdout, f, []string{"job", "state", "commit", "file", "deleted", "because"}, orphanObjects(found),
			func(o orphanJSON) []string {
				deleted, because := "no", o.Orphan
				switch {
				case o.Kept != "":
					deleted, because = "kept", o.Kept
				case o.Deleted:
					deleted = "deleted"
				}
				return []string{o.JobID, o.State, o.Commit, o.File, deleted, because}
			})
	})
	return cmd
}

func orphanObjects(found []client.Orphans) []orphanJSON {
	var all []orphanJSON
	for _, o := range found {
		line := orphanJSON{JobID: o.JobID, State: string(o.State), Commit: string(o.Commit), Deleted: o.Deleted, Orphan: o.Why, Kept: o.Kept}
		if len(o.Files) == 0 {
			all = append(all, line)
		}
		for _, file := range o.Files {
			line.File = file
			all = append(all, line)
		}
		if o.More > 0 {
			line.File = fmt.Sprintf("… and %d more", o.More)
			all = append(all, line)
		}
	}
	return all
}
