package cluster

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/internal/config"
)

// TestUnscopedKeysAreSaidAtStart: of which stores executors get the scheduler's own
// keys, and of no others.
func TestUnscopedKeysAreSaidAtStart(t *testing.T) {
	unscoped := map[string]string{"s3.access-key-id": "K", "s3.secret-access-key": "CANARY", "allow_unscoped": "true"}
	var log bytes.Buffer
	warnUnscoped(SchedulerConfig{
		Logger:       slog.New(slog.NewTextHandler(&log, nil)),
		Catalogs:     []catalog.Config{{Name: "open", Properties: unscoped}, {Name: "closed", Properties: map[string]string{"s3.access-key-id": "K"}}},
		SourceStores: []config.SourceStore{{Location: "s3://landing", Properties: unscoped}},
		DeltaPaths:   []config.SourceStore{{Location: "s3://delta", Properties: unscoped}},
	})
	for _, want := range []string{"catalog open", "s3://landing", "s3://delta"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no warning of %s in\n%s", want, log.String())
		}
	}
	if n := strings.Count(log.String(), "keys not scoped"); n != 3 || strings.Contains(log.String(), "CANARY") {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
}
