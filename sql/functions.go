package sql

import (
	"fmt"
	"strings"
	"time"
)

// tableFunctions are the table functions that a query may call beside the file
// readers: those that make rows from their arguments. All others are refused,
// because some read files or the engine's state (read_text, duckdb_logs), some
// change it (enable_logging), and some hide references from a walk of the tree
// (query, query_table, json_execute_serialized_sql).
var tableFunctions = setOf("range generate_series unnest repeat repeat_row json_each json_tree test_all_types")

// deniedFunctions are scalar functions that a query may not call, with why.
var deniedFunctions = reasons(map[string]string{
	"it reads the environment of the process": "getenv",
	"it reads the engine's settings or state": "current_setting getvariable which_secret get_block_size stats vector_type in_search_path parse_duckdb_log_message",
	"it changes the engine's state":           "setseed write_log nextval currval enable_logging disable_logging checkpoint force_checkpoint",
	"it only makes the query wait":            "sleep_ms",
	"it hides what a query reads":             "query query_table json_execute_serialized_sql json_serialize_plan json_serialize_sql json_deserialize_sql",
	"it tells about the engine that runs a task, not about your session": "version user current_user session_user current_role current_catalog " +
		"current_database current_schema current_schemas current_query current_query_id current_connection_id current_transaction_id txid_current " +
		"inet_client_addr inet_client_port inet_server_addr inet_server_port col_description obj_description shobj_description " +
		"format_pg_type format_type map_to_pg_oid has_any_column_privilege has_column_privilege has_database_privilege " +
		"has_foreign_data_wrapper_privilege has_function_privilege has_language_privilege has_schema_privilege " +
		"has_sequence_privilege has_server_privilege has_table_privilege has_tablespace_privilege",
	"it reads files past the list of sources": "read_text read_blob glob sniff_csv read_duckdb parquet_metadata parquet_schema parquet_file_metadata parquet_kv_metadata parquet_full_metadata parquet_bloom_probe",
})

// reasons turns reason → words into word → reason.
func reasons(m map[string]string) map[string]string {
	out := map[string]string{}
	for reason, words := range m {
		for w := range strings.FieldsSeq(words) {
			out[w] = reason
		}
	}
	return out
}

// deniedFunction says why a function is refused, "" when it isn't.
func deniedFunction(name string) string {
	if reason := deniedFunctions[name]; reason != "" {
		return reason
	}
	switch {
	case name == "pg_typeof" || name == "pg_size_pretty":
		return ""
	case strings.HasPrefix(name, "pg_"), strings.HasPrefix(name, "duckdb_"), strings.HasPrefix(name, "pragma_"):
		return "it reads the engine's catalog"
	case strings.HasPrefix(name, "__internal"):
		return "it is the engine's own"
	}
	return ""
}

// deniedTableFunction says why a table function is refused.
func deniedTableFunction(name string) string {
	if reason := deniedFunction(name); reason != "" {
		return reason
	}
	return "it isn't one of those that a query may call"
}

// asciiLower folds case as DuckDB does for names.
func asciiLower(s string) string {
	for i := range len(s) {
		if s[i] >= 'A' && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if b[i] >= 'A' && b[i] <= 'Z' {
					b[i] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}

// clockFunctions are the functions that read the clock, with the type they
// give; clockWords are those that are written without parentheses.
var (
	clockFunctions = map[string]string{
		"now": "TIMESTAMP WITH TIME ZONE", "transaction_timestamp": "TIMESTAMP WITH TIME ZONE",
		"get_current_timestamp": "TIMESTAMP WITH TIME ZONE", "current_timestamp": "TIMESTAMP WITH TIME ZONE",
		"today": "DATE", "current_date": "DATE",
		"get_current_time": "TIME WITH TIME ZONE", "current_time": "TIME WITH TIME ZONE",
		"current_localtime": "TIME", "localtime": "TIME",
		"current_localtimestamp": "TIMESTAMP", "localtimestamp": "TIMESTAMP",
	}
	clockWords = map[string]string{
		"current_timestamp": "TIMESTAMP WITH TIME ZONE", "current_date": "DATE", "current_time": "TIME WITH TIME ZONE",
		"localtime": "TIME", "localtimestamp": "TIMESTAMP",
	}
)

// clock is a job's time, in the session's time zone. Every task of every
// attempt gets the same constants, so a rerun gives the same rows.
type clock struct{ now time.Time }

func newClock(now time.Time, zone string) (clock, error) {
	if zone == "" {
		zone = "UTC"
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return clock{}, fmt.Errorf("the time zone %q isn't known", zone)
	}
	return clock{now: now.In(loc)}, nil
}

// layouts are how DuckDB reads the types' values.
var layouts = map[string]string{
	"TIMESTAMP WITH TIME ZONE": "2006-01-02 15:04:05.000000-07:00",
	"TIMESTAMP":                "2006-01-02 15:04:05.000000",
	"DATE":                     "2006-01-02",
	"TIME":                     "15:04:05.000000",
	"TIME WITH TIME ZONE":      "15:04:05.000000-07:00",
}

// constant is the time as a literal of the type, in place of n.
func (c clock) constant(kind string, n node) node {
	return castOf(kind, c.now.Truncate(time.Microsecond).Format(layouts[kind]), n)
}

// castOf is CAST('value' AS kind) in place of n.
func castOf(kind, value string, n node) node {
	return node{
		"class": "CAST", "type": "OPERATOR_CAST", "alias": n["alias"], "query_location": n["query_location"], "try_cast": false,
		"cast_type": node{"id": kind, "type_info": nil},
		"child": node{
			"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "query_location": n["query_location"],
			"value": node{"type": node{"id": "VARCHAR", "type_info": nil}, "is_null": false, "value": value},
		},
	}
}
