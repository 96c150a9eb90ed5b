package objstore

import (
	"context"
	"errors"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// head looks at an object. The refusal of a HEAD has no body that would say why: where
// keys can be renewed, the first byte is asked for, which finds out whether they have
// ended, and then the object is looked at again.
func (s *s3Store) head(ctx context.Context, bucket, key string) (*s3.HeadObjectOutput, error) {
	look := func() (*s3.HeadObjectOutput, error) {
		return s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &bucket, Key: &key})
	}
	h, err := look()
	if s.renewer == nil || !answered(err, http.StatusBadRequest, http.StatusForbidden) {
		return h, err
	}
	r, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key, Range: aws.String("bytes=0-0")})
	switch {
	case err == nil:
		_ = r.Body.Close()
	case !answered(err, http.StatusRequestedRangeNotSatisfiable): // which an empty object is
		return nil, err
	}
	return look()
}

// answered says whether an error is an answer with one of the statuses.
func answered(err error, statuses ...int) bool {
	re, ok := errors.AsType[*smithyhttp.ResponseError](err)
	for _, s := range statuses {
		if ok && re.HTTPStatusCode() == s {
			return true
		}
	}
	return false
}
