package catalog

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/firn-project/firn/catalog/catalogtest"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/sql"
)

// sts answers AssumeRole and keeps what it was asked.
func sts(t *testing.T) (server *httptest.Server, asked *url.Values) {
	t.Helper()
	asked = &url.Values{}
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		*asked, _ = url.ParseQuery(string(raw))
		asked.Set("signed-by", strings.Split(r.Header.Get("Authorization"), "/")[0])
		_, _ = io.WriteString(w, `<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>SCOPED</AccessKeyId><SecretAccessKey>S</SecretAccessKey>`+
			`<SessionToken>T</SessionToken><Expiration>`+time.Now().Add(15*time.Minute).UTC().Format(time.RFC3339)+`</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(objstore.CloseIdleConnections)
	return server, asked
}

var jobScope = objstore.Scope{Write: "s3://lake/t/data/j-1/"}

// TestKeysNarrowedBySTS: the scope is the session policy, and the keys are STS's.
func TestKeysNarrowedBySTS(t *testing.T) {
	server, asked := sts(t)
	set := openSQLWith(t, map[string]string{"s3.access-key-id": "OWN", "s3.secret-access-key": "K", "s3.sts-endpoint": server.URL, "s3.role-arn": "arn:aws:iam::1:role/x"})
	needed, warning, err := set.Scoping(t.Context(), airT)
	if !needed || warning != "" || err != nil {
		t.Errorf("%v %q %v", needed, warning, err)
	}
	k, err := set.Mint(t.Context(), airT, jobScope)
	if err != nil || k.AccessKeyID != "SCOPED" || k.SessionToken != "T" || time.Until(k.Expires) < 14*time.Minute {
		t.Fatalf("%s ends %v: %v", k.AccessKeyID, k.Expires, err)
	}
	const policy = `{"Statement":[{"Effect":"Allow","Action":["s3:PutObject","s3:GetObject","s3:AbortMultipartUpload","s3:ListMultipartUploadParts"],` +
		`"Resource":["arn:aws:s3:::lake/t/data/j-1/*"]}],"Version":"2012-10-17"}`
	if asked.Get("Policy") != policy || asked.Get("RoleArn") != "arn:aws:iam::1:role/x" || !strings.HasSuffix(asked.Get("signed-by"), "=OWN") {
		t.Errorf("STS was asked %v", asked)
	}
	for _, bad := range []objstore.Scope{{}, {Write: "s3://lake/t/data/j-1"}, {Write: "s3://lake/t/*/j-1/"}, {Write: "s3://lake/${aws:username}/"}, {Read: []string{"s3://lake/a?"}}, {Write: "/tmp/"}} {
		if k, err := set.Mint(t.Context(), airT, bad); err == nil {
			t.Errorf("%+v: keys %s", bad, k.AccessKeyID)
		}
	}
}

// TestKeysThatCantBeNarrowed are given only where that's allowed, and with a warning.
func TestKeysThatCantBeNarrowed(t *testing.T) {
	own := map[string]string{"s3.access-key-id": "OWN", "s3.secret-access-key": "K"}
	set := openSQLWith(t, own)
	if _, _, err := set.Scoping(t.Context(), airT); commit.CodeOf(err) != commit.CodeStorageUnscoped {
		t.Errorf("planned: %v", err)
	}
	if k, err := set.Mint(t.Context(), airT, jobScope); commit.CodeOf(err) != commit.CodeStorageUnscoped {
		t.Errorf("minted %s: %v", k.AccessKeyID, err)
	}
	own[PropertyAllowUnscoped] = "true"
	set = openSQLWith(t, own)
	if needed, warning, err := set.Scoping(t.Context(), airT); !needed || !strings.Contains(warning, "catalog lake") || err != nil {
		t.Errorf("%v %q %v", needed, warning, err)
	}
	if k, err := set.Mint(t.Context(), airT, jobScope); k.AccessKeyID != "OWN" || err != nil {
		t.Errorf("minted %s: %v", k.AccessKeyID, err)
	}
	if w := UnscopedWarning("x", own); !strings.Contains(w, "aren't scoped to a job") {
		t.Errorf("said at start: %q", w)
	}
	for _, quiet := range []map[string]string{
		nil,
		{"allow_unscoped": "true"},
		{"s3.access-key-id": "OWN"},
		{"s3.access-key-id": "OWN", "allow_unscoped": "false"},
		{"s3.access-key-id": "OWN", "allow_unscoped": "true", "s3.sts-endpoint": "http://h"},
	} {
		if w := UnscopedWarning("x", quiet); w != "" {
			t.Errorf("%v: said at start: %q", quiet, w)
		}
	}
	// Nothing to hand out, nothing to narrow.
	set = openSQLWith(t, nil)
	if needed, warning, err := set.Scoping(t.Context(), airT); needed || warning != "" || err != nil {
		t.Errorf("without keys: %v %q %v", needed, warning, err)
	}
}

// TestVendedKeys: what the catalog vends is given as it is, and narrowed where STS
// is there; never with anything of the catalog.
func TestVendedKeys(t *testing.T) {
	s := newRESTServer(t)
	s.vend = []vendedCredentials{{Prefix: "s3://lake/t", Config: map[string]string{
		"s3.access-key-id": "VENDED", "s3.secret-access-key": "V", "s3.session-token": "VT", "token": "TABLETOKEN",
	}}}
	open := func(props map[string]string) *Set {
		set := openREST1(t, s, props)
		_ = set.CreateNamespace(t.Context(), "lake", airT.Namespace, nil, true)
		if err := set.CreateTable(t.Context(), sql.TableDef{Name: airT, SchemaJSON: catalogtest.Schema(), IfNotExists: true}); err != nil {
			t.Fatal(err)
		}
		return set
	}
	set := open(nil)
	if needed, warning, err := set.Scoping(t.Context(), airT); !needed || warning != "" || err != nil {
		t.Errorf("%v %q %v", needed, warning, err)
	}
	if k, err := set.Mint(t.Context(), airT, jobScope); k.AccessKeyID != "VENDED" || k.SessionToken != "VT" || err != nil {
		t.Errorf("minted %s: %v", k.AccessKeyID, err)
	}
	if k, err := set.Mint(t.Context(), airT, objstore.Scope{Write: "s3://lake/other/data/j-1/"}); k.AccessKeyID != "" {
		t.Errorf("minted %s for another location: %v", k.AccessKeyID, err)
	}
	server, asked := sts(t)
	set = open(map[string]string{"s3.sts-endpoint": server.URL})
	if k, err := set.Mint(t.Context(), airT, jobScope); k.AccessKeyID != "SCOPED" || err != nil || !strings.HasSuffix(asked.Get("signed-by"), "=VENDED") {
		t.Errorf("minted %s, asked %v: %v", k.AccessKeyID, asked, err)
	}
}

func openSQLWith(t *testing.T, properties map[string]string) *Set {
	t.Helper()
	set, err := Open(t.Context(), []Config{{Name: "lake", Type: "sql", URI: t.TempDir() + "/c.db", Warehouse: "s3://lake/wh/", Properties: properties}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close() })
	return set
}
