package flightsqlserver

import (
	"context"
	"maps"
	"runtime/debug"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/schema_ref"
)

// Values of information about the server, of the enumerations of Flight SQL. Where
// several may hold, a value is a set of bits.
const (
	caseInsensitive int32 = 1
	nullsLast       int32 = 3
	none            int32 = 0
	first           int32 = 1 << 0
	second          int32 = 1 << 1
)

// infoValues are what the server is. Drivers ask for all that Flight SQL has before they do
// anything, and some break on what is left out.
var infoValues = map[flightsql.SqlInfo]any{
	flightsql.SqlInfoFlightSqlServerName:                                 "Firn",
	flightsql.SqlInfoFlightSqlServerArrowVersion:                         arrow.PkgVersion,
	flightsql.SqlInfoFlightSqlServerTransaction:                          none,
	flightsql.SqlInfoIdentifierCase:                                      caseInsensitive,
	flightsql.SqlInfoQuotedIdentifierCase:                                caseInsensitive,
	flightsql.SqlInfoIdentifierQuoteChar:                                 `"`,
	flightsql.SqlInfoNullOrdering:                                        nullsLast,
	flightsql.SqlInfoKeywords:                                            []string{"DESCRIBE", "EXPLAIN", "NAMESPACE", "SHOW", "SUMMARIZE"},
	flightsql.SqlInfoNumericFunctions:                                    []string{"abs", "ceil", "floor", "ln", "mod", "power", "round", "sqrt"},
	flightsql.SqlInfoStringFunctions:                                     []string{"concat", "length", "lower", "replace", "substring", "trim", "upper"},
	flightsql.SqlInfoSystemFunctions:                                     []string{"coalesce", "nullif"},
	flightsql.SqlInfoDateTimeFunctions:                                   []string{"date_part", "date_trunc", "now"},
	flightsql.SqlInfoSearchStringEscape:                                  `\`,
	flightsql.SqlInfoExtraNameChars:                                      "",
	flightsql.SqlInfoSchemaTerm:                                          "namespace",
	flightsql.SqlInfoCatalogTerm:                                         "catalog",
	flightsql.SqlInfoProcedureTerm:                                       "procedure",
	flightsql.SqlInfoSupportsConvert:                                     map[int32][]int32{},
	flightsql.SqlInfoSupportedGroupBy:                                    first | second,
	flightsql.SqlInfoSupportedGrammar:                                    first,
	flightsql.SqlInfoANSI92SupportedLevel:                                first,
	flightsql.SqlInfoOuterJoinsSupportLevel:                              second | 1<<2,
	flightsql.SqlInfoSchemasSupportedActions:                             none,
	flightsql.SqlInfoCatalogsSupportedActions:                            none,
	flightsql.SqlInfoSupportedPositionedCommands:                         none,
	flightsql.SqlInfoSupportedSubqueries:                                 first | second | 1<<2 | 1<<3,
	flightsql.SqlInfoSupportedUnions:                                     first | second,
	flightsql.SqlInfoDefaultTransactionIsolation:                         int64(0), // as the JDBC driver reads it
	flightsql.SqlInfoSupportedTransactionsIsolationlevels:                first,
	flightsql.SqlInfoSupportedResultSetTypes:                             second,
	flightsql.SqlInfoSupportedConcurrenciesForResultSetUnspecified:       none,
	flightsql.SqlInfoSupportedConcurrenciesForResultSetForwardOnly:       second,
	flightsql.SqlInfoSupportedConcurrenciesForResultSetScrollSensitive:   none,
	flightsql.SqlInfoSupportedConcurrenciesForResultSetScrollInsensitive: none,
	flightsql.SqlInfoMaxStatementLen:                                     int64(maxStatement),
}

// infoYes, infoNo and infoAny are what holds, what doesn't, and what has no bound.
var (
	infoYes = []flightsql.SqlInfo{
		flightsql.SqlInfoFlightSqlServerSql, flightsql.SqlInfoFlightSqlServerCancel, flightsql.SqlInfoFlightSqlServerBulkIngestion,
		flightsql.SqlInfoDDLSchema, flightsql.SqlInfoDDLTable, flightsql.SqlInfoAllTablesAreASelectable, flightsql.SqlInfoSupportsColumnAliasing,
		flightsql.SqlInfoNullPlusNullIsNull, flightsql.SqlInfoSupportsTableCorrelationNames, flightsql.SqlInfoSupportsExpressionsInOrderBy,
		flightsql.SqlInfoSupportsOrderByUnrelated, flightsql.SqlInfoSupportsLikeEscapeClause, flightsql.SqlInfoSupportsNonNullableColumns,
		flightsql.SqlInfoCatalogAtStart, flightsql.SqlInfoCorrelatedSubqueriesSupported,
	}
	infoNo = []flightsql.SqlInfo{
		flightsql.SqlInfoFlightSqlServerReadOnly, flightsql.SqlInfoFlightSqlServerSubstrait, flightsql.SqlInfoFlightSqlServerIngestTransactionsSupported,
		flightsql.SqlInfoDDLCatalog, flightsql.SqlInfoSupportsDifferentTableCorrelationNames, flightsql.SqlInfoSupportsIntegrityEnhancementFacility,
		flightsql.SqlInfoSelectForUpdateSupported, flightsql.SqlInfoStoredProceduresSupported, flightsql.SqlInfoMaxRowSizeIncludesBlobs,
		flightsql.SqlInfoTransactionsSupported, flightsql.SqlInfoDataDefinitionCausesTransactionCommit, flightsql.SqlInfoDataDefinitionsInTransactionsIgnored,
		flightsql.SqlInfoBatchUpdatesSupported, flightsql.SqlInfoSavePointsSupported, flightsql.SqlInfoNamedParametersSupported,
		flightsql.SqlInfoLocatorsUpdateCopy, flightsql.SqlInfoStoredFunctionsUsingCallSyntaxSupported,
	}
	infoAny = []flightsql.SqlInfo{
		flightsql.SqlInfoMaxBinaryLiteralLen, flightsql.SqlInfoMaxCharLiteralLen, flightsql.SqlInfoMaxColumnNameLen, flightsql.SqlInfoMaxColumnsInGroupBy,
		flightsql.SqlInfoMaxColumnsInIndex, flightsql.SqlInfoMaxColumnsInOrderBy, flightsql.SqlInfoMaxColumnsInSelect, flightsql.SqlInfoMaxColumnsInTable,
		flightsql.SqlInfoMaxConnections, flightsql.SqlInfoMaxCursorNameLen, flightsql.SqlInfoMaxIndexLen, flightsql.SqlInfoDBSchemaNameLen,
		flightsql.SqlInfoMaxProcedureNameLen, flightsql.SqlInfoMaxCatalogNameLen, flightsql.SqlInfoMaxRowSize, flightsql.SqlInfoMaxStatements,
		flightsql.SqlInfoMaxTableNameLen, flightsql.SqlInfoMaxTablesInSelect, flightsql.SqlInfoMaxUsernameLen,
	}
)

// registerInfo says what the server is.
func (s *service) registerInfo() error {
	all := maps.Clone(infoValues)
	all[flightsql.SqlInfoFlightSqlServerVersion] = "devel"
	if build, ok := debug.ReadBuildInfo(); ok && build.Main.Version != "" {
		all[flightsql.SqlInfoFlightSqlServerVersion] = build.Main.Version
	}
	for value, ids := range map[any][]flightsql.SqlInfo{true: infoYes, false: infoNo, int64(0): infoAny} {
		for _, id := range ids {
			all[id] = value
		}
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
