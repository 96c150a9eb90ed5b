package iceberg_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/firn-project/firn/commit"
)

// BenchmarkCommit is one read, build and send of one file, on a table that keeps
// all its snapshots: what a commit costs beyond the format's own metadata file
// and manifest list must not grow with them.
func BenchmarkCommit(b *testing.B) {
	for _, history := range []int{0, 500, 2000} {
		b.Run(fmt.Sprintf("history=%d", history), func(b *testing.B) {
			f := newFixture(b, idKV(), nil, nil)
			base := f.file(false, rows(nil, 1))
			u := f.unit("x", base)
			n := 0
			one := func() {
				n++
				u.Token = commit.NewToken(commit.TokenInput{Key: fmt.Sprint(n)})
				m := f.read()
				if _, found := m.Find("main", u.Token); found {
					b.Fatal("found")
				}
				r, err := f.driver.Build(context.Background(), m, []commit.Unit{u})
				if err != nil {
					b.Fatal(err)
				}
				if a := f.driver.Send(context.Background(), r); a.Class != commit.AnswerOK {
					b.Fatal(a)
				}
			}
			for range history {
				one()
			}
			for b.Loop() {
				one()
			}
		})
	}
}
