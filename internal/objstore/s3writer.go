package objstore

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

const (
	// partSize is the size of a part of a multipart upload; a smaller object
	// is written by one PUT.
	partSize = 8 << 20
	// partsInFlight bounds the parts being sent, and so a writer's memory to
	// partSize × (partsInFlight + 1).
	partsInFlight = 4
	// abortTimeout is how long giving an upload up may take, after whatever
	// ended the writer's own context.
	abortTimeout = 30 * time.Second
)

// s3Writer gathers a part in memory, and sends it while the next one fills.
type s3Writer struct {
	store            *s3Store
	uri, bucket, key string
	name             string
	ctx              context.Context //nolint:containedctx // io.Writer has none

	buf []byte
	// free has the buffers of parts that were sent.
	free     chan []byte
	uploadID *string
	group    *errgroup.Group
	gctx     context.Context //nolint:containedctx // that of group
	next     int32
	done     bool

	mu    sync.Mutex
	parts []types.CompletedPart
}

// Create implements Store. Parts are sent under ctx.
func (s *s3Store) Create(ctx context.Context, uri string) (Writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	bucket, key, err := splitS3("create", uri, false)
	if err != nil {
		return nil, err
	}
	return &s3Writer{
		store: s, uri: uri, bucket: bucket, key: key, name: uuid.NewString(), ctx: ctx, free: make(chan []byte, partsInFlight),
	}, nil
}

func (w *s3Writer) Write(p []byte) (int, error) {
	if w.done {
		return 0, storageError("write", w.uri, nil, errors.New("the writer is finished already"))
	}
	n := 0
	for len(p) > 0 {
		// A full part is only sent when more follows, so that an object of
		// exactly one part still goes by one PUT.
		if len(w.buf) == partSize {
			if err := w.send(); err != nil {
				return n, err
			}
		}
		k := min(partSize-len(w.buf), len(p))
		w.buf = append(w.buf, p[:k]...)
		p, n = p[k:], n+k
	}
	return n, nil
}

// send starts the upload of the gathered part, waiting while too many are on
// their way.
func (w *s3Writer) send() error {
	if w.uploadID == nil {
		r, err := w.store.client.CreateMultipartUpload(w.ctx, &s3.CreateMultipartUploadInput{
			Bucket: &w.bucket, Key: &w.key, Metadata: map[string]string{writerKey: w.name},
			ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
		})
		if err != nil {
			return s3Error(w.ctx, "write", w.uri, err)
		}
		w.uploadID = r.UploadId
		w.group, w.gctx = errgroup.WithContext(w.ctx)
		w.group.SetLimit(partsInFlight)
	}
	if w.gctx.Err() != nil {
		return w.group.Wait()
	}
	w.next++
	number, body := w.next, w.buf
	w.group.Go(func() error {
		sum := checksum(body)
		r, err := w.store.client.UploadPart(w.gctx, &s3.UploadPartInput{
			Bucket: &w.bucket, Key: &w.key, UploadId: w.uploadID, PartNumber: aws.Int32(number),
			Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))), ChecksumCRC32C: sum,
		})
		if err != nil {
			return s3Error(w.gctx, "write", w.uri, err)
		}
		w.mu.Lock()
		w.parts = append(w.parts, types.CompletedPart{ETag: r.ETag, PartNumber: aws.Int32(number), ChecksumCRC32C: sum})
		w.mu.Unlock()
		select {
		case w.free <- body[:0]:
		default:
		}
		return nil
	})
	// The part before has left its buffer, or there are buffers to make.
	select {
	case w.buf = <-w.free:
	default:
		w.buf = make([]byte, 0, partSize)
	}
	return nil
}

// Commit implements Writer.
func (w *s3Writer) Commit(ctx context.Context) error {
	if w.done {
		return storageError("commit", w.uri, nil, errors.New("the writer is finished already"))
	}
	if w.uploadID == nil {
		w.done = true
		return w.store.put(ctx, w.uri, w.bucket, w.key, w.buf, true)
	}
	err := w.send()
	if err == nil {
		err = w.group.Wait()
	}
	if err != nil {
		w.Abort()
		return err
	}
	slices.SortFunc(w.parts, func(a, b types.CompletedPart) int { return int(*a.PartNumber - *b.PartNumber) })
	c := conditional{store: w.store, op: "commit", uri: w.uri, bucket: w.bucket, key: w.key, name: w.name, repeat: true}
	err = c.run(ctx, func() error {
		_, err := w.store.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: &w.bucket, Key: &w.key, UploadId: w.uploadID, IfNoneMatch: aws.String("*"),
			MultipartUpload: &types.CompletedMultipartUpload{Parts: w.parts},
		}, once)
		return err
	})
	if err != nil {
		// Also after a refusal: the upload stays otherwise.
		w.Abort()
		return err
	}
	w.done = true
	return nil
}

// Abort implements Writer. It waits for the parts on their way, since a part
// that arrives after the abort would stay.
func (w *s3Writer) Abort() {
	if w.done {
		return
	}
	w.done = true
	if w.uploadID == nil {
		return
	}
	_ = w.group.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), abortTimeout)
	defer cancel()
	// What can't be aborted is left to the bucket's lifecycle rule; it was
	// never visible.
	_, _ = w.store.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
		Bucket: &w.bucket, Key: &w.key, UploadId: w.uploadID,
	})
}
