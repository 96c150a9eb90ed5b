//go:build integration

package integration_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/firn-project/firn/integration/servers"
	"github.com/firn-project/firn/internal/objstore"
)

// forbidden fails the test unless the store answered 403.
func forbidden(t *testing.T, what string, err error) {
	t.Helper()
	re, ok := errors.AsType[*smithyhttp.ResponseError](err)
	if !ok || re.HTTPStatusCode() != http.StatusForbidden {
		t.Errorf("%s: %v; want 403", what, err)
	}
}

// TestScopedKeys: what STS makes for a job's prefix is good for PUTs and uploads
// below that, and for nothing else; what it makes for a job's inputs, for reading
// these.
func TestScopedKeys(t *testing.T) {
	t.Run("minio", func(t *testing.T) {
		m := servers.StartMinIO(t)
		m.MakeBucket(t, "lake")
		c := m.Config()
		c.STSEndpoint = m.Endpoint
		checkScopedKeys(t, m, c, "lake")
	})
	t.Run("seaweedfs", func(t *testing.T) {
		w := servers.StartSeaweedFS(t)
		c := w.Config()
		c.STSEndpoint, c.RoleARN = w.Endpoint, w.Role
		checkScopedKeys(t, w.S3, c, servers.Bucket)
	})
}

func checkScopedKeys(t *testing.T, server servers.S3, own objstore.Config, bucket string) {
	ctx := t.Context()
	const table = "w/air/t-1/"
	mine, other, metadata, theirs := table+"data/job-1/a.parquet", table+"data/job-10/a.parquet", table+"metadata/v1.json", "w/air/u-2/data/job-1/a.parquet"
	root := server.Client()
	for _, key := range []string{table + "data/job-1/there", other, metadata, theirs} {
		if _, err := root.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader([]byte("x"))}); err != nil {
			t.Fatal(err)
		}
	}
	client := func(s objstore.Scope) *s3.Client {
		c, err := own.Narrow(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		if c.SessionToken == "" || c.Expires.IsZero() || c.AccessKeyID == own.AccessKeyID {
			t.Fatalf("keys %v end at %v", c.SessionToken != "", c.Expires)
		}
		return s3.New(s3.Options{
			BaseEndpoint: aws.String(server.Endpoint), Region: server.Region, UsePathStyle: true, Retryer: aws.NopRetryer{},
			Credentials: credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken),
		})
	}
	w := client(objstore.Scope{Write: "s3://" + bucket + "/" + table + "data/job-1/"})
	if err := put(ctx, w, bucket, mine); err != nil {
		t.Errorf("PUT below the own prefix: %v", err)
	}
	if err := multipart(ctx, w, bucket, table+"data/job-1/parts"); err != nil {
		t.Errorf("multipart below the own prefix: %v", err)
	}
	forbidden(t, "PUT of job-10", put(ctx, w, bucket, other))
	forbidden(t, "PUT of the prefix without its slash", put(ctx, w, bucket, table+"data/job-1"))
	if err := put(ctx, w, bucket, table+"data/job-1/../job-10/b"); err == nil {
		t.Error("a key that climbs out of the prefix was taken")
	}
	forbidden(t, "PUT of metadata", put(ctx, w, bucket, table+"metadata/v2.json"))
	forbidden(t, "PUT of another table", put(ctx, w, bucket, theirs+"2"))
	forbidden(t, "multipart of job-10", multipart(ctx, w, bucket, table+"data/job-10/parts"))
	_, err := w.CopyObject(ctx, &s3.CopyObjectInput{Bucket: &bucket, Key: aws.String(table + "data/job-1/copy"), CopySource: aws.String(bucket + "/" + theirs)})
	forbidden(t, "COPY of another table's file", err)
	checkReads(ctx, t, w, bucket, metadata, other, theirs)
	_, err = w.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: &mine})
	forbidden(t, "DELETE of an own file", err)
	_, err = w.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: aws.String(table + "data/job-1/")})
	forbidden(t, "LIST", err)
	if _, err := root.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &bucket, Key: &mine}); err != nil {
		t.Errorf("the own file: %v", err)
	}

	r := client(objstore.Scope{Read: []string{"s3://" + bucket + "/" + other}})
	if err := get(ctx, r, bucket, other); err != nil {
		t.Errorf("GET of an input: %v", err)
	}
	checkReads(ctx, t, r, bucket, metadata, theirs, mine, other+"2")
	forbidden(t, "PUT of an input", put(ctx, r, bucket, other+"3"))
	_, err = r.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: aws.String(other)})
	forbidden(t, "DELETE of an input", err)
	_, err = r.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &bucket})
	forbidden(t, "LIST for reading", err)

	l := client(objstore.Scope{Read: []string{"s3://" + bucket + "/" + table + "data/*"}, List: []string{"s3://" + bucket + "/" + table + "data/"}})
	found, err := l.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: aws.String(table + "data/")})
	if err != nil || len(found.Contents) == 0 {
		t.Errorf("LIST for a pattern: %v", err)
	}
	_, err = l.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: aws.String(table + "metadata/")})
	forbidden(t, "LIST outside of the pattern", err)
	_, err = l.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &bucket})
	forbidden(t, "LIST of the bucket", err)
}

func checkReads(ctx context.Context, t *testing.T, c *s3.Client, bucket string, keys ...string) {
	t.Helper()
	for _, key := range keys {
		forbidden(t, "GET of "+key, get(ctx, c, bucket, key))
	}
}

func get(ctx context.Context, c *s3.Client, bucket, key string) error {
	o, err := c.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return err
	}
	return o.Body.Close()
}

func put(ctx context.Context, c *s3.Client, bucket, key string) error {
	_, err := c.PutObject(ctx, &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader([]byte("y"))})
	return err
}

func multipart(ctx context.Context, c *s3.Client, bucket, key string) error {
	up, err := c.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return err
	}
	part, err := c.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &bucket, Key: &key, UploadId: up.UploadId, PartNumber: aws.Int32(1), Body: bytes.NewReader([]byte("z")),
	})
	if err != nil {
		return err
	}
	_, err = c.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &bucket, Key: &key, UploadId: up.UploadId, IfNoneMatch: aws.String("*"),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: []types.CompletedPart{{ETag: part.ETag, PartNumber: aws.Int32(1)}}},
	})
	return err
}
