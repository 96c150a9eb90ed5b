package sql

import (
	"fmt"
	"time"
)

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

// constant is the cast of a literal that takes the place of n.
func (c clock) constant(kind string, n node) node {
	return node{
		"class": "CAST", "type": "OPERATOR_CAST", "alias": n["alias"], "query_location": n["query_location"], "try_cast": false,
		"cast_type": node{"id": kind, "type_info": nil},
		"child": node{
			"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "query_location": n["query_location"],
			"value": node{
				"type": node{"id": "VARCHAR", "type_info": nil}, "is_null": false,
				"value": c.now.Truncate(time.Microsecond).Format(layouts[kind]),
			},
		},
	}
}
