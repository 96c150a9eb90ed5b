package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

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
	h, err := s.head(ctx, bucket, key)
	if err != nil {
		return nil, s3Error(ctx, "open", uri, err)
	}
	rctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return &s3Object{store: s, uri: uri, bucket: bucket, key: key, etag: h.ETag, size: aws.ToInt64(h.ContentLength), ctx: rctx, cancel: cancel}, nil
}

func (o *s3Object) Size() int64 { return o.size }

func (o *s3Object) Close() error {
	o.cancel()
	return nil
}

// ReadAt asks for exactly the range, of the very object that was opened. A reply
// that breaks off is taken up where it ended.
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
	n := 0
	for attempt := 1; n < len(want); attempt++ {
		k, err := o.readSome(want[n:], off+int64(n))
		n += k
		if k > 0 {
			attempt = 1
		}
		if err == nil {
			continue
		}
		if classify(err) == final || attempt >= o.store.tuning.attempts || o.store.tuning.wait(o.ctx, attempt) != nil {
			return n, o.readError(err)
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// readSome makes one request. A broken reply gives what came of it.
func (o *s3Object) readSome(p []byte, off int64) (int, error) {
	r, err := o.store.client.GetObject(o.ctx, &s3.GetObjectInput{
		Bucket: &o.bucket, Key: &o.key, IfMatch: o.etag,
		Range: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+int64(len(p))-1)),
	})
	if err != nil {
		// The SDK has repeated it already.
		return 0, &tired{err}
	}
	// Not every server heeds the condition.
	if o.etag != nil && r.ETag != nil && *r.ETag != *o.etag {
		_ = r.Body.Close()
		return 0, &tired{errReplaced}
	}
	n, err := io.ReadFull(r.Body, p)
	if cerr := r.Body.Close(); err == nil {
		err = cerr
	}
	return n, err
}

// tired is an error that no other try helps with.
type tired struct{ error }

var errReplaced = errors.New("the object was replaced while it was read")

func (o *s3Object) readError(err error) error {
	if t, ok := errors.AsType[*tired](err); ok {
		err = t.error
	}
	err = s3Error(o.ctx, "read", o.uri, err)
	if errors.Is(err, ErrExists) {
		return storageError("read", o.uri, nil, errReplaced)
	}
	return err
}
