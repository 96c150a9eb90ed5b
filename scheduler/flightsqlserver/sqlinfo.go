package flightsqlserver

import (
	"context"
	"runtime/debug"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/schema_ref"
)

// Values of information about the server, of the enumerations of Flight SQL.
const (
	caseInsensitive int32 = 1 // SQL_CASE_SENSITIVITY_CASE_INSENSITIVE
	nullsLast       int32 = 3 // SQL_NULLS_SORTED_AT_END
	noTransactions  int32 = 0
	supported       int32 = 1
)

// registerInfo says what the server is, for clients that ask before they do anything.
func (s *service) registerInfo() error {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	all := map[flightsql.SqlInfo]any{
		flightsql.SqlInfoFlightSqlServerName:                        "Firn",
		flightsql.SqlInfoFlightSqlServerVersion:                     version,
		flightsql.SqlInfoFlightSqlServerArrowVersion:                arrow.PkgVersion,
		flightsql.SqlInfoFlightSqlServerReadOnly:                    false,
		flightsql.SqlInfoFlightSqlServerSql:                         true,
		flightsql.SqlInfoFlightSqlServerSubstrait:                   false,
		flightsql.SqlInfoFlightSqlServerTransaction:                 noTransactions,
		flightsql.SqlInfoFlightSqlServerCancel:                      true,
		flightsql.SqlInfoFlightSqlServerBulkIngestion:               true,
		flightsql.SqlInfoFlightSqlServerIngestTransactionsSupported: false,
		flightsql.SqlInfoDDLCatalog:                                 false,
		flightsql.SqlInfoDDLSchema:                                  true,
		flightsql.SqlInfoDDLTable:                                   true,
		flightsql.SqlInfoIdentifierCase:                             caseInsensitive,
		flightsql.SqlInfoIdentifierQuoteChar:                        `"`,
		flightsql.SqlInfoQuotedIdentifierCase:                       caseInsensitive,
		flightsql.SqlInfoAllTablesAreASelectable:                    true,
		flightsql.SqlInfoNullOrdering:                               nullsLast,
		flightsql.SqlInfoKeywords:                                   []string{"DESCRIBE", "EXPLAIN", "NAMESPACE", "SHOW", "SUMMARIZE"},
		flightsql.SqlInfoNumericFunctions:                           []string{"abs", "ceil", "floor", "ln", "mod", "power", "round", "sqrt"},
		flightsql.SqlInfoStringFunctions:                            []string{"concat", "length", "lower", "replace", "substring", "trim", "upper"},
		flightsql.SqlInfoSystemFunctions:                            []string{"coalesce", "nullif"},
		flightsql.SqlInfoDateTimeFunctions:                          []string{"date_part", "date_trunc", "now"},
		flightsql.SqlInfoSearchStringEscape:                         `\`,
		flightsql.SqlInfoSupportsColumnAliasing:                     true,
		flightsql.SqlInfoSchemaTerm:                                 "namespace",
		flightsql.SqlInfoCatalogTerm:                                "catalog",
		flightsql.SqlInfoCatalogAtStart:                             true,
		flightsql.SqlInfoMaxStatementLen:                            int64(maxStatement),
		flightsql.SqlInfoTransactionsSupported:                      false,
		flightsql.SqlInfoSavePointsSupported:                        false,
		flightsql.SqlInfoNamedParametersSupported:                   false,
		flightsql.SqlInfoBatchUpdatesSupported:                      false,
		flightsql.SqlInfoStoredProceduresSupported:                  false,
		flightsql.SqlInfoSelectForUpdateSupported:                   false,
	}
	for id, value := range all {
		if err := s.RegisterSqlInfo(id, value); err != nil {
			return err
		}
		s.infos = append(s.infos, uint32(id))
	}
	return nil
}

// infoIDs asks for information by its numbers.
type infoIDs []uint32

// GetInfo implements flightsql.GetSqlInfo.
func (i infoIDs) GetInfo() []uint32 { return i }

// DoGetSqlInfo implements flightsql.Server. What isn't known is left out: clients ask
// for more than any server has.
func (s *service) DoGetSqlInfo(ctx context.Context, c flightsql.GetSqlInfo) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	ids := c.GetInfo()
	if len(ids) == 0 {
		ids = s.infos
	}
	var known infoIDs
	for _, id := range ids {
		if slices.Contains(s.infos, id) {
			known = append(known, id)
		}
	}
	if len(known) == 0 {
		return list(ctx, schema_ref.SqlInfo, nil)
	}
	return s.BaseServer.DoGetSqlInfo(ctx, known)
}

// GetFlightInfoXdbcTypeInfo implements flightsql.Server.
func (*service) GetFlightInfoXdbcTypeInfo(_ context.Context, _ flightsql.GetXdbcTypeInfo, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return listing(d, schema_ref.XdbcTypeInfo)
}

// xdbcTypes are the types of columns with their numbers in ODBC and JDBC.
var xdbcTypes = []struct {
	name string
	id   int32
	size int32
	text bool
}{
	{"BOOLEAN", -7, 1, false},
	{"BIGINT", -5, 19, false},
	{"BLOB", -4, 0, true},
	{"INTEGER", 4, 10, false},
	{"DECIMAL", 3, 38, false},
	{"REAL", 7, 24, false},
	{"DOUBLE", 8, 53, false},
	{"VARCHAR", 12, 0, true},
	{"DATE", 91, 10, true},
	{"TIME", 92, 15, true},
	{"TIMESTAMP", 93, 26, true},
}

// DoGetXdbcTypeInfo implements flightsql.Server.
func (*service) DoGetXdbcTypeInfo(ctx context.Context, c flightsql.GetXdbcTypeInfo) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	var rows []map[string]any
	for _, t := range xdbcTypes {
		if only := c.GetDataType(); only != nil && *only != t.id {
			continue
		}
		row := map[string]any{
			"type_name": t.name, "data_type": t.id, "sql_data_type": t.id, "nullable": 1, "case_sensitive": t.name == "VARCHAR", "searchable": 3,
			"fixed_prec_scale": false, "unsigned_attribute": false, "auto_increment": false,
		}
		if t.size > 0 {
			row["column_size"] = t.size
		}
		if t.text {
			row["literal_prefix"], row["literal_suffix"] = "'", "'"
		}
		rows = append(rows, row)
	}
	return list(ctx, schema_ref.XdbcTypeInfo, rows)
}
