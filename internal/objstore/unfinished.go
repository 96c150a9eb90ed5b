package objstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"strings"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
)

func (r *router) RemoveUnfinished(ctx context.Context, prefix string) (int, error) {
	s, err := r.route("tidy", prefix)
	if err != nil {
		return 0, err
	}
	return s.RemoveUnfinished(ctx, prefix)
}

func (r *router) ListUnfinished(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	s, err := r.route("list", prefix)
	if err != nil {
		return func(yield func(Info, error) bool) { yield(Info{}, err) }
	}
	return s.ListUnfinished(ctx, prefix)
}

// ListUnfinished implements Store.
func (localStore) ListUnfinished(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return listLocal(ctx, prefix, true)
}

// ListUnfinished implements Store. What is uploaded in one piece is there or not.
func (*s3Store) ListUnfinished(context.Context, string) iter.Seq2[Info, error] {
	return func(func(Info, error) bool) {}
}

// errOpenPrefix: a prefix that would take in names that only begin with it.
var errOpenPrefix = errors.New("want a prefix that ends in a slash")

// RemoveUnfinished implements Store: temporary files, and then the directories
// that are empty. A link is no directory, so nothing outside is reached.
func (localStore) RemoveUnfinished(ctx context.Context, prefix string) (int, error) {
	p, err := localPath("tidy", prefix)
	if err != nil {
		return 0, err
	}
	if !strings.HasSuffix(p, "/") || p == "/" {
		return 0, badLocation("tidy", prefix, errOpenPrefix)
	}
	return removeUnfinished(ctx, strings.TrimSuffix(prefix, p), p)
}

// removeUnfinished tidies one directory, whose path ends in a slash. head is what
// the caller's URIs have before it.
func removeUnfinished(ctx context.Context, head, dir string) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	// Names only: a directory with a file for each of many tasks is read whole, as
	// by List.
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return 0, nil
	}
	if err != nil {
		return 0, localError("tidy", head+dir, err)
	}
	removed := 0
	var failed []error
	for _, e := range entries {
		path := dir + e.Name()
		switch {
		case e.IsDir():
			n, err := removeUnfinished(ctx, head, path+"/")
			removed += n
			failed = append(failed, err)
		case strings.HasSuffix(e.Name(), tempSuffix):
			if err := os.Remove(path); err == nil {
				removed++
			} else if !errors.Is(err, fs.ErrNotExist) {
				failed = append(failed, localError("delete", head+path, err))
			}
		}
	}
	// The system refuses to remove a directory with anything in it, also what came
	// just now.
	switch err := os.Remove(strings.TrimSuffix(dir, "/")); {
	case err == nil:
		removed++
	case errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist):
	default:
		failed = append(failed, localError("delete", head+dir, err))
	}
	return removed, errors.Join(failed...)
}

// RemoveUnfinished implements Store: uploads that were begun and not completed.
func (s *s3Store) RemoveUnfinished(ctx context.Context, prefix string) (int, error) {
	bucket, key, err := splitS3("tidy", prefix, true)
	if err != nil {
		return 0, err
	}
	if !strings.HasSuffix(key, "/") {
		return 0, badLocation("tidy", prefix, errOpenPrefix)
	}
	removed := 0
	var failed []error
	pages := s3.NewListMultipartUploadsPaginator(s.client, &s3.ListMultipartUploadsInput{Bucket: &bucket, Prefix: &key})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if ae, ok := errors.AsType[smithy.APIError](err); ok && ae.ErrorCode() == "NotImplemented" {
			return removed, nil // such a server is left to its own rules
		}
		if err != nil {
			return removed, errors.Join(append(failed, s3Error(ctx, "list uploads", prefix, err))...)
		}
		for _, u := range page.Uploads {
			name := aws.ToString(u.Key)
			if !strings.HasPrefix(name, key) {
				continue // some servers don't mind the prefix
			}
			_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &bucket, Key: u.Key, UploadId: u.UploadId})
			if err = s3Error(ctx, "abort upload", prefix+strings.TrimPrefix(name, key), err); err == nil {
				removed++
			} else if !errors.Is(err, ErrNotFound) {
				failed = append(failed, fmt.Errorf("upload of %s: %w", name, err))
			}
		}
	}
	return removed, errors.Join(failed...)
}
