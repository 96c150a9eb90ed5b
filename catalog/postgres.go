package catalog

import (
	"context"
	"errors"
	"strings"
	"time"

	icesql "github.com/apache/iceberg-go/catalog/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// postgresSchemes begin the URIs of PostgreSQL catalogs: libpq's, SQLAlchemy's
// (PyIceberg) and JDBC's (Java).
var postgresSchemes = []string{"postgres://", "postgresql://", "postgresql+psycopg2://", "postgresql+psycopg://", "jdbc:postgresql://"}

func postgresURI(uri string) bool {
	for _, s := range postgresSchemes {
		if strings.HasPrefix(uri, s) {
			return true
		}
	}
	return false
}

var postgresDialect = dialect{
	library: icesql.Postgres,
	// By the search path, as the other statements find the table.
	typed: `SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('iceberg_tables') AND attname = 'iceberg_type' AND NOT attisdropped`,
	bind:  func(s string) string { return strings.ReplaceAll(s, "?", "$") },
	fault: postgresFault,
}

// postgresFault sorts by SQLSTATE. Serialization failures and deadlocks aren't
// among what is known to have done nothing: a proxy between may have sent the
// statement twice, and reading tells.
func postgresFault(err error) sqlFault {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return faultOther
	}
	switch {
	case e.Code == "23505": // unique_violation
		return faultExists
	case e.Code == "42501", e.Code == "25006", strings.HasPrefix(e.Code, "28"): // insufficient_privilege, read_only_sql_transaction, invalid_authorization
		return faultPermission
	case e.Code == "55P03", e.Code == "57P03", strings.HasPrefix(e.Code, "53"): // lock_not_available, cannot_connect_now, insufficient_resources
		return faultBusy
	}
	return faultOther
}

// postgresConfig reads the URI. User and password may be properties of their
// own, so that a URI needs no secret.
func postgresConfig(c Config) (*pgx.ConnConfig, error) {
	uri := c.URI
	for _, s := range postgresSchemes {
		if rest, ok := strings.CutPrefix(uri, s); ok {
			uri = "postgresql://" + rest
		}
	}
	cfg, err := pgx.ParseConfig(uri)
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"user", "jdbc.user"} {
		if v := c.Properties[key]; v != "" {
			cfg.User = v
		}
	}
	for _, key := range []string{"password", "jdbc.password"} {
		if v := c.Properties[key]; v != "" {
			cfg.Password = v
		}
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 10 * time.Second
	}
	// Nothing is prepared by name, so that poolers may stand between.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	// A standby would show the past, and a commit's fate is read.
	if cfg.ValidateConnect == nil {
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	return cfg, nil
}

func (s *sqlCatalog) openPostgres(c Config) error {
	cfg, err := postgresConfig(c)
	if err != nil {
		return configError(c.Name, err)
	}
	s.dialect, s.place = postgresDialect, "PostgreSQL, "+cfg.Host+"/"+cfg.Database
	// What is acknowledged must survive a crash of the server, also for a role
	// whose default is otherwise.
	durable := stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'`)
		return err
	})
	s.db = stdlib.OpenDB(*cfg, durable)
	s.db.SetMaxOpenConns(8)
	s.db.SetMaxIdleConns(8)
	s.db.SetConnMaxIdleTime(time.Minute)
	s.db.SetConnMaxLifetime(time.Hour)
	return nil
}
