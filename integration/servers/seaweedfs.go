package servers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// SeaweedFS is an S3 server with STS and an Iceberg REST catalog.
type SeaweedFS struct {
	S3
	// Catalog is the URI of the catalog; its warehouse is Warehouse. OAuth
	// takes S3.AccessKey and S3.SecretKey as client credentials, and the
	// catalog vends temporary keys for each table.
	Catalog   string
	Warehouse string
	// Role may be assumed by STS, and may do everything: a session policy
	// narrows it.
	Role string
}

// Bucket is a bucket of each SeaweedFS beside the warehouse.
const Bucket = "data"

// StartSeaweedFS starts SeaweedFS.
func StartSeaweedFS(t testing.TB) SeaweedFS {
	t.Helper()
	p := freePorts(t, 9)
	admin := adminPort(t)
	url := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
	s := SeaweedFS{
		S3:      S3{Endpoint: url(p[0]), Region: "us-east-1", AccessKey: "firn-seaweed", SecretKey: "firn-seaweed-secret"},
		Catalog: url(p[1]), Warehouse: "s3://warehouse", Role: "arn:aws:iam::role/Vend",
	}
	dir := tempDir(t)
	iam := filepath.Join(dir, "iam.json")
	config, err := json.Marshal(s.iam())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(iam, config, 0o600); err != nil {
		t.Fatal(err)
	}
	flags := map[string]any{
		"dir": dir, "ip": "127.0.0.1", "ip.bind": "127.0.0.1", "master.telemetry": false, "webdav": false, "admin.ui": false,
		"s3.port": p[0], "s3.port.iceberg": p[1], "s3.port.grpc": p[2], "s3.port.lance": 0,
		"master.port": p[3], "master.port.grpc": p[4], "volume.port": p[5], "volume.port.grpc": p[6],
		"filer.port": p[7], "filer.port.grpc": p[8], "admin.port": admin, "admin.port.grpc": admin + workerOffset,
		"s3.config": iam, "s3.iam.config": iam, "s3.externalUrl": s.Endpoint,
		"s3.iceberg.credentialRole": s.Role, "s3.iceberg.credentialDurationSeconds": 900,
		"tableBucket": "warehouse", "bucket": Bucket,
	}
	args := []string{"mini"}
	for name, value := range flags {
		args = append(args, fmt.Sprintf("-%s=%v", name, value))
	}
	cmd := exec.Command(installed(t, "seaweedfs", "weed"), args...)
	cmd.Dir = dir
	server := start(t, "seaweedfs", interrupt, cmd)
	server.await(t, answers(s.Catalog+"/v1/config?warehouse="+s.Warehouse))
	// The buckets are made last.
	client := s.Client()
	server.await(t, func(ctx context.Context) error {
		_, err := client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: aws.String(Bucket)})
		return err
	})
	return s
}

// workerOffset is what the server's own worker adds to the admin server's port to
// find its gRPC port, whatever the flag says.
const workerOffset = 10000

// adminPort finds a free port of which that one is free too.
func adminPort(t testing.TB) int {
	t.Helper()
	for {
		port := freePorts(t, 1)[0]
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port-workerOffset))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return port - workerOffset
	}
}

// iam is the server's configuration of users, roles and policies.
func (s SeaweedFS) iam() any {
	type object = map[string]any
	type list = []any
	everything := object{"Effect": "Allow", "Action": list{"s3:*", "sts:*"}, "Resource": list{"*"}}
	const version = "2012-10-17"
	return object{
		"identities": list{object{
			"name": "admin", "credentials": list{object{"accessKey": s.AccessKey, "secretKey": s.SecretKey}},
			"actions": list{"Admin", "Read", "Write", "List", "Tagging"},
		}},
		"sts": object{
			"tokenDuration": "1h", "maxSessionLength": "12h", "issuer": "firn-tests",
			"signingKey": base64.StdEncoding.EncodeToString([]byte("a key of 32 bytes, for tests only")),
		},
		"policy":   object{"defaultEffect": "Deny", "storeType": "memory"},
		"policies": list{object{"name": "Everything", "document": object{"Version": version, "Statement": list{everything}}}},
		"roles": list{object{
			"roleName": "Vend", "roleArn": s.Role, "attachedPolicies": list{"Everything"},
			"trustPolicy": object{"Version": version, "Statement": list{
				// Without this one the catalog vends nothing, and says so only in its log.
				object{"Effect": "Allow", "Principal": object{"Federated": "iceberg-catalog"}, "Action": list{"sts:AssumeRoleWithCredentials"}},
				object{"Effect": "Allow", "Principal": object{"AWS": "*"}, "Action": list{"sts:AssumeRole"}},
			}},
		}},
	}
}
