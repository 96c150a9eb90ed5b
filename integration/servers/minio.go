package servers

import (
	"context"
	"fmt"
	"os/exec"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// StartMinIO starts MinIO, with STS at the same endpoint.
func StartMinIO(t testing.TB) S3 {
	t.Helper()
	s := S3{
		Endpoint: fmt.Sprintf("http://127.0.0.1:%d", freePorts(t, 1)[0]), Region: "us-east-1",
		AccessKey: "firn-minio", SecretKey: "firn-minio-secret",
	}
	dir := tempDir(t)
	cmd := exec.Command(installed(t, "minio", "minio"), "server", "--address", s.Endpoint[len("http://"):], dir)
	cmd.Dir = dir
	cmd.Env = []string{
		"MINIO_ROOT_USER=" + s.AccessKey, "MINIO_ROOT_PASSWORD=" + s.SecretKey, "MINIO_REGION=" + s.Region,
		"MINIO_BROWSER=off", "MINIO_UPDATE=off", "MINIO_API_REQUESTS_MAX=256",
	}
	// It says that it's ready before it takes requests.
	client := s.Client()
	start(t, "minio", interrupt, cmd).await(t, func(ctx context.Context) error {
		_, err := client.ListBuckets(ctx, &s3.ListBucketsInput{})
		return err
	})
	return s
}
