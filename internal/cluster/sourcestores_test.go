package cluster

import (
	"testing"
)

func TestSourceStores(t *testing.T) {
	with := func(key string) map[string]string {
		return map[string]string{"s3.access-key-id": key, "token": "CANARY"}
	}
	s := sourceStores{{Location: "s3://land", Properties: with("a")}, {Location: "s3://land/eu/", Properties: with("b")}, {Location: "s3://other/x", Properties: with("c")}}
	for uri, want := range map[string]string{
		"s3://land/f.parquet": "a", "s3://land/eu/*.parquet": "b", "s3://land/europe/f": "a", "s3://landing/f": "", "s3://other/f": "", "s3://other/x/f": "c",
	} {
		got, err := s.reach(t.Context(), uri)
		if err != nil || got["s3.access-key-id"] != want || got["token"] != "" {
			t.Errorf("%s: %v, %v; want %q", uri, got, err, want)
		}
	}
}
