package catalog

import (
	"os"
	"path/filepath"
	"testing"
)

// Executors get the keys that a profile stands for, not the profile; nothing for
// local files.
func TestStorageOfAProfile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte("[lake]\naws_access_key_id = ID\naws_secret_access_key = KEY\nregion = eu-west-3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	t.Setenv("AWS_CONFIG_FILE", file+".none")
	t.Setenv("AWS_REGION", "")
	e := &entry{objects: Config{Properties: map[string]string{"s3.profile": "lake", "token": "CANARY"}}.objects()}
	got, err := e.storageFor(t.Context(), "s3://b/t")
	if err != nil || len(got) != 3 || got["s3.access-key-id"] != "ID" || got["s3.region"] != "eu-west-3" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := e.storageFor(t.Context(), "file:///t"); got != nil || err != nil {
		t.Errorf("local: %v, %v", got, err)
	}
	e.objects.Profile = "missing"
	if _, err := e.storageFor(t.Context(), "s3://b/t"); err == nil {
		t.Error("a profile that isn't there")
	}
}
