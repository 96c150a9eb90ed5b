package cluster

import (
	"context"
	"log/slog"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/security"
)

// defaultListen is where the parts listen unless told otherwise.
const defaultListen = "127.0.0.1:0"

// secured is what a part's connections are made with.
type secured struct {
	dial   []grpc.DialOption
	server []grpc.ServerOption
	gate   *security.Gate
}

// secureScheduler sets up what the configuration asks for, and says what it leaves
// open.
func secureScheduler(cfg SchedulerConfig) (secured, error) {
	listen := cfg.Listen
	if listen == "" {
		listen = defaultListen
	}
	s, err := secure(cfg.TLS, listen, cfg.AllowPlaintext, cfg.Logger)
	if err != nil {
		return s, err
	}
	local := security.Loopback(listen)
	s.gate = &security.Gate{Tokens: security.OpenTokens(cfg.Dir), Own: cfg.OwnToken, Anonymous: local || cfg.AllowAnonymous}
	list, err := s.gate.Tokens.List()
	if err != nil {
		return s, err
	}
	if !local && cfg.AllowAnonymous && len(list) == 0 {
		warn(cfg.Logger, listen, "anybody who reaches the address may run statements and join as an executor")
	}
	return s, nil
}

// secureExecutor is the same for an executor, which authenticates the scheduler by
// its own means.
func secureExecutor(cfg config.Executor, logger *slog.Logger) (secured, error) {
	if err := security.CheckDial(cfg.Server, cfg.TLS != (config.TLS{}), cfg.AllowPlaintext); err != nil {
		return secured{}, err
	}
	return secure(cfg.TLS, cfg.Listen, cfg.AllowPlaintext, logger)
}

func secure(t config.TLS, listen string, plaintext bool, logger *slog.Logger) (secured, error) {
	var s secured
	warning, err := security.CheckListen(listen, t != config.TLS{}, plaintext)
	if err != nil {
		return s, err
	}
	if warning != "" {
		warn(logger, listen, warning)
	}
	if t == (config.TLS{}) {
		return s, nil
	}
	files := security.Files{Cert: t.Cert, Key: t.Key, CA: t.CA}
	server, err := files.Server(t.RequireClientCert)
	if err != nil {
		return s, err
	}
	client, err := files.Client()
	if err != nil {
		return s, err
	}
	s.server = []grpc.ServerOption{grpc.Creds(credentials.NewTLS(server))}
	s.dial = security.DialTLS(client)
	return s, nil
}

// warnUnscoped says of which stores executors get the scheduler's own keys.
func warnUnscoped(cfg SchedulerConfig) {
	if cfg.Logger == nil || cfg.AnyCatalog {
		return
	}
	say := func(of string, properties map[string]string) {
		if text := catalog.UnscopedWarning(of, properties); text != "" {
			cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "keys not scoped", slog.String("store", of), slog.String("risk", text))
		}
	}
	for _, c := range cfg.Catalogs {
		say("catalog "+c.Name, c.Properties)
	}
	for _, s := range slices.Concat(cfg.SourceStores, cfg.DeltaPaths) {
		say(s.Location, s.Properties)
	}
}

func warn(logger *slog.Logger, listen, text string) {
	if logger != nil {
		logger.LogAttrs(context.Background(), slog.LevelWarn, "not secured", slog.String("address", listen), slog.String("risk", text))
	}
}
