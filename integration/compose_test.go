package integration_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/firn-project/firn/internal/config"
)

// TestComposeFile: the compose file of the how-to is well formed, its images are
// pinned, its ports are on the loopback interface, what services wait for is
// there, and the scheduler's file beside it fits.
func TestComposeFile(t *testing.T) {
	raw, err := os.ReadFile("../examples/minio/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image       string               `yaml:"image"`
			Command     any                  `yaml:"command"`
			Entrypoint  []string             `yaml:"entrypoint"`
			Environment map[string]string    `yaml:"environment"`
			Ports       []string             `yaml:"ports"`
			Volumes     []string             `yaml:"volumes"`
			DependsOn   map[string]yaml.Node `yaml:"depends_on"`
			Healthcheck map[string]any       `yaml:"healthcheck"`
		} `yaml:"services"`
		Volumes map[string]map[string]any `yaml:"volumes"`
	}
	dec := yaml.NewDecoder(strings.NewReader(string(raw)))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil {
		t.Fatal(err)
	}
	pinned := regexp.MustCompile(`^[a-z0-9-]+/[a-z0-9-]+:(RELEASE\.\d{4}-\d{2}-\d{2}T[\d-]+Z|\d+\.\d+\.\d+)$`)
	port := regexp.MustCompile(`^127\.0\.0\.1:\d+:\d+$`)
	if len(file.Services) < 3 {
		t.Errorf("%d services", len(file.Services))
	}
	for name, s := range file.Services {
		if !pinned.MatchString(s.Image) {
			t.Errorf("%s: the image %q isn't pinned to a release", name, s.Image)
		}
		for _, p := range s.Ports {
			if !port.MatchString(p) {
				t.Errorf("%s: port %q isn't on the loopback interface", name, p)
			}
		}
		for other := range s.DependsOn {
			if _, ok := file.Services[other]; !ok {
				t.Errorf("%s waits for %s, which isn't there", name, other)
			}
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			if _, ok := file.Volumes[volume]; !ok {
				t.Errorf("%s uses the volume %s, which isn't there", name, volume)
			}
		}
	}
	s, err := config.LoadScheduler("../examples/minio/scheduler.yaml", func(name string) (string, bool) { return "x", strings.HasPrefix(name, "FIRN_S3_") })
	if err != nil {
		t.Fatal(err)
	}
	if s.Catalogs["lake"].Properties["s3.access-key-id"] != "x" || len(s.Sources.Stores) != 1 {
		t.Errorf("scheduler.yaml: %v", s)
	}
}
