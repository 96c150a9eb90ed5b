package main

import (
	"context"

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
	Kept    string `json:"kept,omitempty"`
}

func (a *app) tableOrphansCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	var remove bool
	cmd := &cobra.Command{
		Use: "orphans NAME [--delete]", Short: "Show, or delete, the files that jobs left and no version of the table can have",
		Long: `Shows the files that this scheduler's jobs wrote for a table and that no version of it has or can
get any more. It goes by the scheduler's record, not by the age of files: those of other writers, of
running jobs and of commits whose outcome isn't known are never among them. With --delete the files
are deleted.`,
		Args: arguments("the name of a table"),
	}
	cmd.Flags().BoolVar(&remove, "delete", false, "delete the files")
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		found, err := s.Orphans(ctx, args[0], remove)
		if err != nil {
			return err
		}
		return render.List(a.stdout, f, []string{"job", "state", "commit", "file", "deleted", "kept because"}, orphanObjects(found),
			func(o orphanJSON) []string {
				deleted := ""
				if o.Deleted {
					deleted = "deleted"
				}
				return []string{o.JobID, o.State, o.Commit, o.File, deleted, o.Kept}
			})
	})
	return cmd
}

func orphanObjects(found []client.Orphans) []orphanJSON {
	var all []orphanJSON
	for _, o := range found {
		line := orphanJSON{JobID: o.JobID, State: string(o.State), Commit: string(o.Commit), Deleted: o.Deleted, Kept: o.Kept}
		if o.Kept != "" {
			all = append(all, line)
		}
		for _, file := range o.Files {
			line.File = file
			all = append(all, line)
		}
	}
	return all
}
