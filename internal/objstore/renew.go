package objstore

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Renewer gives keys that somebody else mints and renews. It is safe for concurrent
// use.
type Renewer interface {
	// Keys gives the keys to sign a request with. It is asked for each request.
	Keys(ctx context.Context) (Keys, error)
	// Expired tells that the store says that the keys of that id have ended,
	// whatever was said of them. The next Keys gives others.
	Expired(accessKeyID string)
}

// expiredCodes are with what stores refuse keys that have ended, untouched. MinIO
// doesn't know them any more.
var expiredCodes = map[string]bool{"ExpiredToken": true, "ExpiredTokenException": true, "TokenRefreshRequired": true, "InvalidAccessKeyId": true}

// renewing is a Renewer as the SDK's provider.
func renewing(r Renewer) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		k, err := r.Keys(ctx)
		return aws.Credentials{AccessKeyID: k.AccessKeyID, SecretAccessKey: k.SecretAccessKey, SessionToken: k.SessionToken, Source: "firn"}, err
	})
}

// classify is the function of that name, but for keys that can be renewed: that
// they have ended is a reason to ask again, with others.
func (s *s3Store) classify(err error) class {
	ae, ok := errors.AsType[smithy.APIError](err)
	if !ok || s.renewer == nil || !expiredCodes[ae.ErrorCode()] {
		return classify(err)
	}
	if re, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && re.Response != nil && re.Response.Request != nil {
		// Requests are under way with older keys and newer ones.
		_, id, _ := strings.Cut(re.Response.Request.Header.Get("Authorization"), "Credential=")
		id, _, _ = strings.Cut(id, "/")
		s.renewer.Expired(id)
	}
	return throttled
}
