//go:build integration

package servers_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/firn-project/firn/integration/servers"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/objstore/storetest"
)

// big is an object that takes several parts.
const big = 16 << 20

func TestMinIO(t *testing.T) {
	s := servers.StartMinIO(t)
	s.MakeBucket(t, "lake")
	storetest.Run(t, objstore.New(s.Config()), "s3://lake/x/", big, storetest.HiddenUploads)
	corrupted(t, s, "lake")
}

func TestSeaweedFS(t *testing.T) {
	s := servers.StartSeaweedFS(t)
	storetest.Run(t, objstore.New(s.Config()), "s3://"+servers.Bucket+"/x/", big)
	corrupted(t, s.S3, servers.Bucket)

	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {s.AccessKey}, "client_secret": {s.SecretKey}}
	req := request(t, http.MethodPost, s.Catalog+"/v1/oauth/tokens", strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var token struct {
		AccessToken string `json:"access_token"`
	}
	ask(t, req, &token)
	base := s.Catalog + "/v1/warehouse/namespaces"
	for _, c := range [][2]string{
		{base, `{"namespace":["air"]}`},
		{base + "/air/tables", `{"name":"t","schema":{"type":"struct","fields":[{"id":1,"name":"n","type":"long","required":false}]}}`},
	} {
		req := request(t, http.MethodPost, c[0], strings.NewReader(c[1]))
		req.Header.Set("Authorization", "Bearer "+token.AccessToken)
		ask(t, req, nil)
	}
	req = request(t, http.MethodGet, base+"/air/tables/t", nil)
	req.Header.Set("Authorization", "Bearer "+token.AccessToken)
	req.Header.Set("X-Iceberg-Access-Delegation", "vended-credentials")
	var loaded struct {
		Config map[string]string `json:"config"`
	}
	ask(t, req, &loaded)
	if loaded.Config["s3.session-token"] == "" {
		t.Errorf("no keys were vended: %v", loaded.Config)
	}
}

// corrupted: a body that changes on its way is refused by the store, and nothing
// stands there.
func corrupted(t *testing.T, s servers.S3, bucket string) {
	t.Helper()
	p := storetest.NewProxy(t, s.Endpoint)
	c := s.Config()
	c.Endpoint = p.URL
	for op, n := range map[storetest.Op]int{storetest.Put: 1000, storetest.Part: big} {
		p.Begin(func(r storetest.Request) storetest.Fault {
			if r.Op == op {
				return storetest.Corrupt
			}
			return storetest.None
		})
		uri := "s3://" + bucket + "/corrupted-" + string(op)
		err := objstore.WriteFile(t.Context(), objstore.New(c), uri, make([]byte, n))
		t.Logf("%s: %v", op, err)
		if err == nil {
			t.Errorf("a corrupted %s was taken", op)
		}
		if _, err := objstore.New(s.Config()).Stat(t.Context(), uri); !errors.Is(err, objstore.ErrNotFound) {
			t.Errorf("after a corrupted %s: %v", op, err)
		}
	}
}

func TestRESTCatalog(t *testing.T) {
	m := servers.StartMinIO(t)
	m.MakeBucket(t, "lake")
	c := servers.StartRESTCatalog(t, servers.RESTCatalog{Warehouse: "s3://lake/warehouse", Store: m})
	for _, r := range [][2]string{
		{"/v1/namespaces", `{"namespace":["air"]}`},
		{"/v1/namespaces/air/tables", `{"name":"t","schema":{"type":"struct","fields":[{"id":1,"name":"n","type":"long","required":false}]}}`},
	} {
		ask(t, request(t, http.MethodPost, c.URI+r[0], strings.NewReader(r[1])), nil)
	}
	store := objstore.New(m.Config())
	for o, err := range store.List(t.Context(), "s3://lake/warehouse/air/t/metadata/") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(o.URI, ".metadata.json") {
			return
		}
	}
	t.Error("the catalog has written no metadata file to the store")
}

func TestPostgreSQL(t *testing.T) {
	p := servers.StartPostgreSQL(t)
	if got := p.MakeDatabase(t, "one"); !strings.HasSuffix(got, "/one?sslmode=disable") {
		t.Errorf("URL %s", got)
	}
}

func request(t *testing.T, method, url string, body *strings.Reader) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	if body == nil {
		body = strings.NewReader("")
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}

func ask(t *testing.T, req *http.Request, into any) {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var body json.RawMessage
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s %v %s", req.Method, req.URL, res.Status, err, body)
	}
	if into != nil {
		if err := json.Unmarshal(body, into); err != nil {
			t.Fatal(err)
		}
	}
}
