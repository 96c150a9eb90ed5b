package objstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// s3Store keeps objects in an S3-compatible store. Writes are conditional
// (If-None-Match: *), on the single PUT and on the completion of a multipart
// upload, so that two writers of one name never both succeed. Conditional copies
// and deletes aren't used: several servers ignore their conditions.
//
// A conditional write whose reply was lost may have taken effect, and a second
// copy of it would meet the object that the first one made. So the SDK never
// repeats one. Each write carries a name of its own in the object's metadata, and
// what stands under the key is looked at: settle has the rules.
type s3Store struct {
	client *s3.Client
	tuning *tuning
	// renewer is where the keys come from; nil for others.
	renewer Renewer
}

// writerKey is the metadata key with the name of the write.
const writerKey = "firn-write"

// broken is a store whose configuration can't be used; each call says why.
type broken struct{ error }

func (b broken) Open(context.Context, string) (Object, error)          { return nil, b }
func (b broken) Create(context.Context, string) (Writer, error)        { return nil, b }
func (b broken) PutIfAbsent(context.Context, string, []byte) error     { return b }
func (b broken) Stat(context.Context, string) (int64, error)           { return 0, b }
func (b broken) Delete(context.Context, string) error                  { return b }
func (b broken) RemoveUnfinished(context.Context, string) (int, error) { return 0, b }
func (b broken) List(context.Context, string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) { yield(Info{}, b) }
}

func (b broken) ListUnfinished(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return b.List(ctx, prefix)
}
func (b broken) Unwrap() error { return b.error }

func newS3Store(c Config, t *tuning) Store {
	// A redirect repeats a request, and makes a read of some writes.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := &http.Client{Transport: t.transport, CheckRedirect: stay}
	region, provider, err := c.credentials(client)
	if err != nil {
		return broken{err}
	}
	store := &s3Store{tuning: t, renewer: c.Renewer}
	o := s3.Options{
		Region:       region,
		Credentials:  provider,
		UsePathStyle: c.PathStyle || (c.Endpoint != "" && !c.VirtualHost),
		// Checksums are given in headers: not all servers know the trailing kind.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
		HTTPClient:                 client,
		Retryer:                    t.retryer(store.classify),
	}
	if c.Endpoint != "" {
		o.BaseEndpoint = aws.String(c.Endpoint)
	}
	store.client = s3.New(o)
	return store
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

// s3Error makes the error that a person reads. The end of the call's own context
// is given as it is.
func s3Error(ctx context.Context, op, uri string, err error) error {
	if err == nil {
		return nil
	}
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("%s %s: %w", op, uri, cause)
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
		switch code := ae.ErrorCode(); {
		case expiredCodes[code]:
			sentinel = ErrPermission
		case code == "PreconditionFailed":
			sentinel = ErrExists
		case code == "QuotaExceeded", code == "XMinioStorageFull", code == "InsufficientCapacity":
			sentinel = ErrFull
		}
	}
	return storageError(op, uri, sentinel, err)
}

// Stat implements Store.
func (s *s3Store) Stat(ctx context.Context, uri string) (int64, error) {
	bucket, key, err := splitS3("stat", uri, false)
	if err != nil {
		return 0, err
	}
	h, err := s.head(ctx, bucket, key)
	if err != nil {
		return 0, s3Error(ctx, "stat", uri, err)
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
	if err = s3Error(ctx, "delete", uri, err); errors.Is(err, ErrNotFound) {
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
	return s.put(ctx, uri, bucket, key, data, false)
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
				yield(Info{}, s3Error(ctx, "list", prefix, err))
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
