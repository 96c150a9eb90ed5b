package objstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/google/uuid"
)

// s3Store keeps objects in an S3-compatible store. Writes are conditional
// (If-None-Match: *), on the single PUT and on the completion of a multipart
// upload, so that two writers of one name never both succeed.
//
// The SDK repeats a request whose reply was lost. A repeated conditional write
// then meets the object that its first copy made and is refused. So each write
// carries a name of its own in the object's metadata, and a refusal is looked
// at: when the object that stands there has our writer's name, the write was
// ours and has succeeded.
type s3Store struct {
	client *s3.Client
	http   *http.Client
}

// writerKey is the metadata key with the name of the write.
const writerKey = "firn-write"

func newS3Store(c Config) *s3Store {
	// A transport of our own: more idle connections to the one host.
	client := &http.Client{Transport: newTransport()}
	o := s3.Options{
		Region:       c.Region,
		UsePathStyle: c.PathStyle || (c.Endpoint != "" && !c.VirtualHost),
		// Checksums only where S3 demands them: other servers don't know the
		// trailing kind.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
		HTTPClient:                 client,
	}
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if c.Endpoint != "" {
		o.BaseEndpoint = aws.String(c.Endpoint)
	}
	if c.AccessKeyID != "" {
		o.Credentials = credentials.NewStaticCredentialsProvider(c.AccessKeyID, c.SecretAccessKey, c.SessionToken)
	} else {
		o.Credentials = aws.AnonymousCredentials{}
	}
	return &s3Store{client: s3.New(o), http: client}
}

func newTransport() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = 16
	return t
}

// splitS3 gives the bucket and the key. allowEmpty lets the key be empty, for
// listings.
func splitS3(op, uri string, allowEmpty bool) (bucket, key string, err error) {
	_, rest, _ := strings.Cut(uri, "://")
	bucket, key, _ = strings.Cut(rest, "/")
	if bucket == "" || (key == "" && !allowEmpty) {
		return "", "", badLocation(op, uri, errors.New("want s3://bucket/key"))
	}
	return bucket, key, nil
}

func s3Error(op, uri string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var sentinel error
	if re, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		switch re.HTTPStatusCode() {
		case http.StatusNotFound:
			sentinel = ErrNotFound
		case http.StatusForbidden, http.StatusUnauthorized:
			sentinel = ErrPermission
		case http.StatusPreconditionFailed:
			sentinel = ErrExists
		case http.StatusInsufficientStorage:
			sentinel = ErrFull
		}
	}
	if ae, ok := errors.AsType[smithy.APIError](err); ok {
		switch ae.ErrorCode() {
		case "QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity":
			sentinel = ErrFull
		}
	}
	return storageError(op, uri, sentinel, err)
}

type s3Object struct {
	store       *s3Store
	uri         string
	bucket, key string
	etag        *string
	size        int64
	ctx         context.Context //nolint:containedctx // io.ReaderAt has none
	cancel      context.CancelFunc
}

// Open implements Store. The object's reads are tied to ctx's values but not to
// its end: they end with Close.
func (s *s3Store) Open(ctx context.Context, uri string) (Object, error) {
	bucket, key, err := splitS3("open", uri, false)
	if err != nil {
		return nil, err
	}
	h, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return nil, s3Error("open", uri, err)
	}
	rctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return &s3Object{store: s, uri: uri, bucket: bucket, key: key, etag: h.ETag, size: aws.ToInt64(h.ContentLength), ctx: rctx, cancel: cancel}, nil
}

func (o *s3Object) Size() int64 { return o.size }

func (o *s3Object) Close() error {
	o.cancel()
	return nil
}

// ReadAt asks for exactly the range, of the very object that was opened.
func (o *s3Object) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, storageError("read", o.uri, nil, fmt.Errorf("negative offset %d", off))
	}
	if len(p) == 0 {
		return 0, nil
	}
	if off >= o.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), o.size-off)]
	r, err := o.store.client.GetObject(o.ctx, &s3.GetObjectInput{
		Bucket: &o.bucket, Key: &o.key, IfMatch: o.etag,
		Range: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+int64(len(want))-1)),
	})
	if err != nil {
		return 0, s3Error("read", o.uri, err)
	}
	n, err := io.ReadFull(r.Body, want)
	if cerr := r.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return n, s3Error("read", o.uri, err)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Stat implements Store.
func (s *s3Store) Stat(ctx context.Context, uri string) (int64, error) {
	bucket, key, err := splitS3("stat", uri, false)
	if err != nil {
		return 0, err
	}
	h, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return 0, s3Error("stat", uri, err)
	}
	return aws.ToInt64(h.ContentLength), nil
}

// Delete implements Store.
func (s *s3Store) Delete(ctx context.Context, uri string) error {
	bucket, key, err := splitS3("delete", uri, false)
	if err != nil {
		return err
	}
	_, err = s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: &key})
	if err = s3Error("delete", uri, err); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// PutIfAbsent implements Store.
func (s *s3Store) PutIfAbsent(ctx context.Context, uri string, data []byte) error {
	bucket, key, err := splitS3("write", uri, false)
	if err != nil {
		return err
	}
	return s.put(ctx, uri, bucket, key, data)
}

func (s *s3Store) put(ctx context.Context, uri, bucket, key string, data []byte) error {
	name := uuid.NewString()
	_, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &bucket, Key: &key, Body: bytes.NewReader(data), ContentLength: aws.Int64(int64(len(data))),
		IfNoneMatch: aws.String("*"), Metadata: map[string]string{writerKey: name},
	})
	return s.settle(ctx, uri, bucket, key, name, s3Error("write", uri, err))
}

// settle turns a refusal by our own earlier copy into success.
func (s *s3Store) settle(ctx context.Context, uri, bucket, key, name string, err error) error {
	if !errors.Is(err, ErrExists) {
		return err
	}
	h, herr := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &bucket, Key: &key})
	if herr != nil {
		return errors.Join(err, s3Error("stat", uri, herr))
	}
	for k, v := range h.Metadata {
		if strings.EqualFold(k, writerKey) && v == name {
			return nil
		}
	}
	return err
}

// List implements Store.
func (s *s3Store) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		bucket, key, err := splitS3("list", prefix, true)
		if err != nil {
			yield(Info{}, err)
			return
		}
		head, _, _ := strings.Cut(prefix, "://")
		pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &key})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(Info{}, s3Error("list", prefix, err))
				return
			}
			for _, o := range page.Contents {
				if !yield(Info{URI: head + "://" + bucket + "/" + aws.ToString(o.Key), Size: aws.ToInt64(o.Size)}, nil) {
					return
				}
			}
		}
	}
}
