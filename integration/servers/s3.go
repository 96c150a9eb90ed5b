package servers

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/firn-project/firn/internal/objstore"
)

// S3 is an S3-compatible server with one user, who may do everything.
type S3 struct {
	Endpoint, Region     string
	AccessKey, SecretKey string
}

// Config is what objstore.New needs to reach the server.
func (s S3) Config() objstore.Config {
	return objstore.Config{
		Endpoint: s.Endpoint, Region: s.Region, PathStyle: true, AccessKeyID: s.AccessKey, SecretAccessKey: s.SecretKey,
	}
}

// Storage is the same as the settings of a catalog's storage (s3.endpoint, …).
func (s S3) Storage() map[string]string { return s.Config().Storage() }

// Client is a client of the library's own, for what Firn doesn't do itself.
func (s S3) Client() *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: aws.String(s.Endpoint), Region: s.Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(s.AccessKey, s.SecretKey, ""),
	})
}

// MakeBucket makes an empty bucket.
func (s S3) MakeBucket(t testing.TB, name string) {
	t.Helper()
	if _, err := s.Client().CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name}); err != nil {
		t.Fatalf("make bucket %s: %v", name, err)
	}
}
