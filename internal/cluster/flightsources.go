package cluster

import (
	"context"
	"os"
	"path/filepath"

	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/scheduler/flightsource"
)

// openFlightSources are the Flight SQL engines that statements may name.
func openFlightSources(cfg SchedulerConfig) (*flightsource.Registry, error) {
	o := flightsource.Options{
		State: filepath.Join(cfg.Dir, "sources.json"), Any: cfg.AnyCatalog,
		Read: func(ctx context.Context, props map[string]string) (map[string]string, error) {
			return config.ResolveProperties(ctx, props, config.SecretSources{Getenv: os.LookupEnv, Any: true})
		},
	}
	for name, f := range cfg.FlightSources {
		o.Configs = append(o.Configs, flightsource.Config{
			Name: name, URI: f.URI, Token: f.Properties["token"], User: f.Properties["username"], Password: f.Properties["password"],
			CA: []byte(f.Properties["ca"]), Headers: f.Headers(), Locations: f.Locations, ReadTimeout: f.ReadTimeout, Timeout: f.Timeout,
			AllowPlaintext: f.AllowPlaintext,
		})
	}
	return flightsource.Open(o)
}
