package objstore

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/uuid"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the CRC-32C as S3 takes it. The store refuses a body that doesn't
// have it.
func checksum(b []byte) *string {
	sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(b, castagnoli))
	return aws.String(base64.StdEncoding.EncodeToString(sum))
}

// put writes an object with one PUT. Whether it may be sent again is repeat: it may
// for a data file, whose name nobody else uses, and never for a write that decides
// who wins.
func (s *s3Store) put(ctx context.Context, uri, bucket, key string, data []byte, repeat bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := conditional{store: s, op: "write", uri: uri, bucket: bucket, key: key, name: uuid.NewString(), repeat: repeat}
	sum := checksum(data)
	return w.run(ctx, func() error {
		_, err := s.client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: &bucket, Key: &key, Body: bytes.NewReader(data), ContentLength: aws.Int64(int64(len(data))),
			IfNoneMatch: aws.String("*"), Metadata: map[string]string{writerKey: w.name}, ChecksumCRC32C: sum,
		}, once)
		return err
	})
}

// conditional is a write that must not take effect twice, nor seem to have failed
// when it succeeded.
type conditional struct {
	store                *s3Store
	op, uri, bucket, key string
	// name is the write's own, in the object's metadata.
	name   string
	repeat bool
}

// run sends the write until it's settled.
func (w *conditional) run(ctx context.Context, send func() error) error {
	for attempt := 1; ; attempt++ {
		again, err := w.settle(ctx, send())
		if !again || attempt >= w.store.tuning.attempts || w.store.tuning.wait(ctx, attempt) != nil {
			return err
		}
	}
}

// settle says what became of a write that was sent once, and whether it may be
// sent again.
//
//   - Refused since something stands there: if that has our write's name, an
//     earlier copy of ours made it, and the write has succeeded.
//   - Turned away untouched (throttled, keys that ended, or never sent): again, if
//     the write may be repeated. The last two are errors without doubt.
//   - Anything else may have taken effect, also what a store or something before it
//     says it turned away. If it has, it has succeeded. If nothing stands there it
//     may still arrive: ErrUncertain, or again if the write may be repeated.
func (w *conditional) settle(ctx context.Context, sent error) (again bool, err error) {
	if sent == nil {
		return false, nil
	}
	err = s3Error(ctx, w.op, w.uri, sent)
	if ctx.Err() != nil {
		return false, storageError(w.op, w.uri, ErrUncertain, err)
	}
	c := w.store.classify(sent)
	// An upload that is gone may have been completed by our own earlier copy.
	gone := w.repeat && errors.Is(err, ErrNotFound)
	switch {
	case errors.Is(err, ErrExists) || c == unclear || gone:
	case c == throttled && w.repeat:
		return true, err
	case c == throttled && !unsent(sent) && !errors.Is(err, ErrPermission):
	default:
		return false, err
	}
	ours, present, herr := w.look(ctx)
	switch {
	case ours:
		return false, nil
	case present || errors.Is(err, ErrExists):
		if !errors.Is(err, ErrExists) {
			err = storageError(w.op, w.uri, ErrExists, err)
		}
		return false, errors.Join(err, herr)
	case gone:
		return false, errors.Join(err, herr)
	case w.repeat:
		return true, errors.Join(err, herr)
	}
	return false, storageError(w.op, w.uri, ErrUncertain, errors.Join(err, herr))
}

// look reads whose object stands under the key. A store that forbids to list says
// "forbidden" of what isn't there.
func (w *conditional) look(ctx context.Context) (ours, present bool, err error) {
	h, err := w.store.head(ctx, w.bucket, w.key)
	if err != nil {
		err = s3Error(ctx, "stat", w.uri, err)
		if errors.Is(err, ErrNotFound) {
			return false, false, nil
		}
		return false, false, err
	}
	for k, v := range h.Metadata {
		if strings.EqualFold(k, writerKey) && v == w.name {
			return true, true, nil
		}
	}
	return false, true, nil
}
