package config

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// The secrets of stores that statements read from are masked as those of catalogs
// are.
func TestViewMasksSourceStores(t *testing.T) {
	path := write(t, "c", "delta:\n  paths:\n    - location: s3://lake\n      properties:\n        s3.secret-access-key: CANARY\nsources:\n  stores:\n    - location: s3://land/x\n      properties:\n        s3.secret-access-key: CANARY\n        s3.session-token_env: TOKEN\n        s3.region: eu\n        allow_unscoped: \"true\"\n")
	got, err := View(pflag.NewFlagSet("x", pflag.ContinueOnError), pflag.NewFlagSet("y", pflag.ContinueOnError), nil, path, env(map[string]string{"TOKEN": "CANARY"}))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, s := range got {
		all.WriteString(s.Key + "=" + s.Value + " " + s.Origin + "\n")
	}
	if strings.Contains(all.String(), "CANARY") || !strings.Contains(all.String(), "s3.region=eu") || !strings.Contains(all.String(), "variable TOKEN") ||
		!strings.Contains(all.String(), "warning: executors may get the scheduler's own keys") {
		t.Errorf("shown:\n%s", all.String())
	}
}
